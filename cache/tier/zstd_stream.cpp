#include "cache/tier/zstd_stream.hpp"

#include <zstd.h>

#include <string>
#include <vector>

namespace nc::tier {
namespace {

constexpr int kLevel = 3;
// 8 MiB: what level 3 never exceeds, and what a hostile frame can make us allocate.
constexpr int kMaxWindowLog = 23;
constexpr std::size_t kPiece = 1 << 20;

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, "a compressed blob in the tier is damaged: " + std::string(what), ""};
}

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

struct Inflater::Impl {
  Sink out;
  std::unique_ptr<ZSTD_DCtx, FreeContext> context{ZSTD_createDCtx()};
  std::vector<std::byte> buffer = std::vector<std::byte>(ZSTD_DStreamOutSize());
  bool complete = false;
};

Inflater::Inflater(Sink out) : impl_(std::make_unique<Impl>()) {
  impl_->out = std::move(out);
  ZSTD_DCtx_setParameter(impl_->context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
}

Inflater::~Inflater() = default;

Status Inflater::write(Bytes piece) {
  ZSTD_inBuffer in{piece.data(), piece.size(), 0};
  bool more = false;  // the decoder may hold bytes although all input is taken
  while (in.pos < in.size || more) {
    if (impl_->complete) return corrupt("there is more after its end");
    ZSTD_outBuffer out{impl_->buffer.data(), impl_->buffer.size(), 0};
    const auto left = ZSTD_decompressStream(impl_->context.get(), &out, &in);
    if (ZSTD_isError(left) != 0) return corrupt(ZSTD_getErrorName(left));
    if (out.pos > 0) NC_TRY(impl_->out(Bytes(impl_->buffer).first(out.pos)));
    impl_->complete = left == 0;
    more = !impl_->complete && out.pos == out.size;
  }
  return {};
}

Status Inflater::finish() {
  return impl_->complete ? Status() : Status(corrupt("it is cut off"));
}

Result<bool> worth_compressing(Source& source) {
  std::vector<std::byte> sample(kPiece);
  NC_ASSIGN(const auto got, source.read_at(0, sample));
  std::vector<std::byte> out(ZSTD_compressBound(got));
  const auto size = ZSTD_compress(out.data(), out.size(), sample.data(), got, 1);
  return ZSTD_isError(size) == 0 && size < got - got / 8;
}

Result<std::uint64_t> deflate(Source& source, File& file) {
  const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setPledgedSrcSize(context.get(), source.size());
  std::vector<std::byte> piece(kPiece);
  std::vector<std::byte> buffer(ZSTD_CStreamOutSize());
  std::uint64_t read = 0;
  std::uint64_t written = 0;
  bool ended = false;
  while (!ended) {
    NC_ASSIGN(const auto got, source.read_at(read, piece));
    read += got;
    const bool last = read >= source.size() || got == 0;
    ZSTD_inBuffer in{piece.data(), got, 0};
    std::size_t left = 0;
    do {
      ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
      left = ZSTD_compressStream2(context.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      if (ZSTD_isError(left) != 0) {
        return Error{Code::kInternal,
                     std::string("cannot compress a blob: ") + ZSTD_getErrorName(left), ""};
      }
      NC_TRY(file.write(Bytes(buffer).first(out.pos)));
      written += out.pos;
    } while (last ? left != 0 : in.pos < in.size);
    ended = last;
  }
  return written;
}

}  // namespace nc::tier

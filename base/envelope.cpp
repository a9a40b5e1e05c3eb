#include "base/envelope.hpp"

#include <zstd.h>

#include <limits>

#include <fmt/format.h>

#include "base/hash.hpp"

namespace nc {
namespace {

constexpr std::string_view kMagic = "NCE1";
constexpr std::uint8_t kVersion = 1;
constexpr int kZstdLevel = 3;

Error corrupt(std::string message) {
  return {Code::kCorrupt, std::move(message), "the record is damaged and must be made again"};
}

std::uint8_t byte_at(Bytes bytes, std::size_t i) {
  return std::to_integer<std::uint8_t>(bytes[i]);
}

bool known_kind(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(Envelope::Kind::kManifest) &&
         kind <= static_cast<std::uint8_t>(Envelope::Kind::kTrailer);
}

struct Header {
  Envelope::Kind kind = Envelope::Kind::kBlob;
  Envelope::Encoding encoding = Envelope::Encoding::kRaw;
  std::uint64_t raw_size = 0;
  std::uint64_t stored_size = 0;
};

Result<Header> read_header(Bytes head, std::uint64_t limit) {
  if (head.size() < Envelope::kHeaderSize) {
    return corrupt(fmt::format("record cut off: {} bytes are too few for a header", head.size()));
  }
  if (as_text(head.first(kMagic.size())) != kMagic) return corrupt("not a neuroncache record");
  if (const auto version = byte_at(head, 4); version != kVersion) {
    if (version == 0) return corrupt("record version 0 does not exist");
    return Error{Code::kUnsupported,
                 fmt::format("record version {} is newer than {}", version, kVersion),
                 "use a newer neuroncache"};
  }
  const std::uint8_t kind = byte_at(head, 5);
  const std::uint8_t encoding = byte_at(head, 6);
  if (!known_kind(kind)) return corrupt(fmt::format("unknown kind of record {}", kind));
  if (encoding > 1) return corrupt(fmt::format("unknown encoding {}", encoding));
  if (byte_at(head, 7) != 0) return corrupt("a reserved byte of the header is not zero");
  Header header;
  header.kind = static_cast<Envelope::Kind>(kind);
  header.encoding = static_cast<Envelope::Encoding>(encoding);
  header.raw_size = get_u64(head.data() + 8);
  header.stored_size = get_u64(head.data() + 16);
  if (header.raw_size > limit) {
    return Error{Code::kTooLarge,
                 fmt::format("record of {} is over the limit of {}", format_size(header.raw_size),
                             format_size(limit)),
                 ""};
  }
  const bool raw = header.encoding == Envelope::Encoding::kRaw;
  // A compressed payload is kept only when it is smaller.
  if (raw ? header.stored_size != header.raw_size : header.stored_size >= header.raw_size) {
    return corrupt(fmt::format("sizes contradict: {} bytes stored for {}", header.stored_size,
                               header.raw_size));
  }
  if (header.stored_size > std::numeric_limits<std::uint64_t>::max() - Envelope::kOverhead) {
    return corrupt("the size in the header is impossible");
  }
  return header;
}

// Empty when zstd does not pay.
std::string compress_if_it_pays(Bytes payload) {
  std::string out(ZSTD_compressBound(payload.size()), '\0');
  const std::size_t size =
      ZSTD_compress(out.data(), out.size(), payload.data(), payload.size(), kZstdLevel);
  if (ZSTD_isError(size) != 0 || size > payload.size() - (payload.size() + 7) / 8) return {};
  out.resize(size);
  return out;
}

Result<std::string> decompress(Bytes stored, std::uint64_t raw_size) {
  // Before anything is allocated: the frame itself must claim the same size.
  if (ZSTD_getFrameContentSize(stored.data(), stored.size()) != raw_size ||
      ZSTD_findFrameCompressedSize(stored.data(), stored.size()) != stored.size()) {
    return corrupt("the compressed payload does not fit its header");
  }
  std::string out(raw_size, '\0');
  const std::size_t size = ZSTD_decompress(out.data(), out.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0) {
    return corrupt(fmt::format("the payload does not decompress: {}", ZSTD_getErrorName(size)));
  }
  if (size != raw_size) return corrupt("the payload decompresses to another size");
  return out;
}

}  // namespace

std::string Envelope::seal(Kind kind, Bytes payload, bool compress) {
  std::string packed;
  if (compress && !payload.empty()) packed = compress_if_it_pays(payload);
  const bool zstd = !packed.empty();
  const Bytes stored = zstd ? as_bytes(packed) : payload;
  std::string out;
  out.reserve(kOverhead + stored.size());
  out.append(kMagic);
  out.push_back(static_cast<char>(kVersion));
  out.push_back(static_cast<char>(kind));
  out.push_back(static_cast<char>(zstd ? Encoding::kZstd : Encoding::kRaw));
  out.push_back('\0');
  put_u64(out, payload.size());
  put_u64(out, stored.size());
  out.append(as_text(stored));
  const Xxh128 checksum = xxh128(as_bytes(out));
  put_u64(out, checksum.low);
  put_u64(out, checksum.high);
  return out;
}

Result<Envelope> Envelope::unseal(Bytes bytes, std::uint64_t limit) {
  NC_ASSIGN(const Header header, read_header(bytes, limit));
  if (bytes.size() != kOverhead + header.stored_size) {
    return corrupt(fmt::format("record has {} bytes, its header says {}", bytes.size(),
                               kOverhead + header.stored_size));
  }
  const Bytes covered = bytes.first(bytes.size() - 16);
  const Xxh128 stored_sum{get_u64(covered.data() + covered.size()),
                          get_u64(covered.data() + covered.size() + 8)};
  if (xxh128(covered) != stored_sum) return corrupt("the checksum of the record is wrong");
  const Bytes stored = covered.subspan(kHeaderSize);
  Envelope envelope;
  envelope.kind = header.kind;
  if (header.encoding == Encoding::kRaw) {
    envelope.payload.assign(as_text(stored));
  } else {
    NC_ASSIGN(envelope.payload, decompress(stored, header.raw_size));
  }
  return envelope;
}

Result<std::uint64_t> Envelope::sealed_size(Bytes head, std::uint64_t limit) {
  NC_ASSIGN(const Header header, read_header(head, limit));
  return kOverhead + header.stored_size;
}

}  // namespace nc

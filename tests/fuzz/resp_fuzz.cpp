// What a tier's Redis answers: whole, in pieces, streamed; never more than the limit is kept.
#include "cache/tier/redis_engine.hpp"
#include "cache/tier/resp.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using nc::tier::RespReader;
using nc::tier::RespReply;

constexpr std::uint64_t kLimit = 1000;

RespReader reader_of(std::string_view text, std::size_t piece) {
  return RespReader([text, piece](std::span<std::byte> out) mutable -> nc::Result<std::size_t> {
    const auto n = std::min({piece, out.size(), text.size()});
    if (n == 0) return nc::Error{nc::Code::kUnavailable, "closed", ""};
    std::copy_n(nc::as_bytes(text).begin(), n, out.begin());
    text.remove_prefix(n);
    return n;
  });
}

std::uint64_t bulk_bytes(const RespReply& reply) {
  std::uint64_t sum = reply.kind == RespReply::Kind::kBulk ? reply.text.size() : 0;
  for (const auto& item : reply.items) sum += bulk_bytes(item);
  return sum;
}

bool same(const RespReply& a, const RespReply& b) {
  if (a.kind != b.kind || a.text != b.text || a.integer != b.integer) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = nc::as_text(nc::fuzz_bytes(data, size));
  auto whole = reader_of(text, size + 1);
  auto pieces = reader_of(text, 3);
  while (true) {
    const auto a = whole.reply(kLimit);
    const auto b = pieces.reply(kLimit);
    FUZZ_REQUIRE(a.ok() == b.ok());
    if (!a.ok()) {
      FUZZ_REQUIRE(a.error().code == b.error().code);
      break;
    }
    FUZZ_REQUIRE(same(*a, *b));
    FUZZ_REQUIRE(bulk_bytes(*a) <= kLimit);
    const auto error = nc::tier::redis_error(a->text, "x");
    FUZZ_REQUIRE(!error.message.empty() && error.message.size() < 300);
  }
  auto streamed = reader_of(text, 5);
  const auto head = streamed.head();
  if (head.ok() && head->kind == RespReply::Kind::kBulk) {
    std::uint64_t got = 0;
    const auto done =
        streamed.stream(static_cast<std::uint64_t>(head->integer), [&](nc::Bytes one) {
          got += one.size();
          return nc::Status();
        });
    FUZZ_REQUIRE(got <= static_cast<std::uint64_t>(head->integer));
    if (done.ok()) FUZZ_REQUIRE(got == static_cast<std::uint64_t>(head->integer));
  }
  return 0;
}

// The envelope: bytes as they come, and bytes whose checksum was put right, so that what lies
// behind it is reached too.
#include "base/envelope.hpp"
#include "base/hash.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::Bytes;
using nc::Envelope;

namespace {

constexpr std::uint64_t kLimit = 1 << 20;

void try_one(Bytes bytes) {
  const auto size = Envelope::sealed_size(bytes, kLimit);
  const auto open = Envelope::unseal(bytes, kLimit);
  if (!open.ok()) {
    FUZZ_REQUIRE(!open.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(size.ok() && *size == bytes.size());
  FUZZ_REQUIRE(open->payload.size() <= kLimit);
  const auto again = Envelope::unseal(
      nc::as_bytes(Envelope::seal(open->kind, nc::as_bytes(open->payload), true)), kLimit);
  FUZZ_REQUIRE(again.ok() && again->payload == open->payload && again->kind == open->kind);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes bytes = nc::fuzz_bytes(data, size);
  try_one(bytes);
  if (size < Envelope::kHeaderSize) return 0;
  // As a header, with sizes that fit, and a payload.
  std::string record(nc::as_text(bytes));
  record.replace(0, 5, std::string("NCE1\1", 5));
  std::string stored;
  nc::put_u64(stored, size - Envelope::kHeaderSize);
  record.replace(16, 8, stored);
  const nc::Xxh128 sum = nc::xxh128(nc::as_bytes(record));
  nc::put_u64(record, sum.low);
  nc::put_u64(record, sum.high);
  try_one(nc::as_bytes(record));
  // And as a payload.
  const auto open =
      Envelope::unseal(nc::as_bytes(Envelope::seal(Envelope::Kind::kBlob, bytes, true)), size);
  FUZZ_REQUIRE(open.ok() && open->payload == nc::as_text(bytes));
  return 0;
}

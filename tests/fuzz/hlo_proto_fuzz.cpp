// Digests of HloModuleProto: what is accepted has a digest that names of modules do not change and
// all else does.
#include "client/cc/input/digest.hpp"
#include "client/cc/input/hlo_proto.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const nc::Bytes bytes = nc::fuzz_bytes(data, size);
  const auto digest = nc::cc::hlo_proto_digest(bytes);
  FUZZ_REQUIRE(nc::cc::hlo_proto_digest(bytes) == digest);
  if (!digest) return 0;
  const auto with = [&](std::string_view more) {
    return nc::cc::hlo_proto_digest(nc::as_bytes(std::string(nc::as_text(bytes)).append(more)));
  };
  FUZZ_REQUIRE(with("\x0A\x05other") == digest);     // another name
  FUZZ_REQUIRE(with("\x28\x4D") == digest);          // another id
  FUZZ_REQUIRE(with("\x58\x01") != digest);          // is_dynamic
  FUZZ_REQUIRE(with("\xA0\x06\x01") != digest);      // a field that nobody knows
  FUZZ_REQUIRE(with("\x30\x01") != digest);          // the entry twice, or another one
  FUZZ_REQUIRE(with("\x1A\x02\x12\x00") != digest);  // an instruction without an opcode
  FUZZ_REQUIRE(nc::cc::digest_bytes(bytes).normalised);
  return 0;
}

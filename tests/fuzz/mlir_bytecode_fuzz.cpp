// Digests of MLIR bytecode. Almost no change of a byte leaves a file that is understood, so besides
// the bytes as they come, one byte of a sound file is changed and its digest compared.
#include "client/cc/input/digest.hpp"
#include "client/cc/input/mlir_bytecode.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const nc::Bytes bytes = nc::fuzz_bytes(data, size);
  const auto digest = nc::cc::mlir_bytecode_digest(bytes);
  FUZZ_REQUIRE(nc::cc::mlir_bytecode_digest(bytes) == digest);
  if (!digest) return 0;
  FUZZ_REQUIRE(nc::cc::digest_bytes(bytes).form == "mlir-bytecode");
  std::string changed(nc::as_text(bytes));
  changed.pop_back();
  FUZZ_REQUIRE(!nc::cc::mlir_bytecode_digest(nc::as_bytes(changed)));
  // The producer follows the version and counts.
  changed = nc::as_text(bytes);
  if (changed[5] != '\0' && changed[5] != 'x') {
    changed[5] = 'x';
    const auto other = nc::cc::mlir_bytecode_digest(nc::as_bytes(changed));
    FUZZ_REQUIRE(other && other != digest);
  }
  return 0;
}

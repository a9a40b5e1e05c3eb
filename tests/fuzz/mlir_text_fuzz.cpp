// Digests of MLIR text: what is accepted has a digest that comments do not change and tokens do.
#include "client/cc/input/digest.hpp"
#include "client/cc/input/mlir_text.hpp"
#include "tests/fuzz/fuzz_input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const nc::Bytes bytes = nc::fuzz_bytes(data, size);
  const auto digest = nc::cc::mlir_text_digest(bytes);
  FUZZ_REQUIRE(nc::cc::mlir_text_digest(bytes) == digest);
  if (!digest) return 0;
  const std::string text(nc::as_text(bytes));
  const auto of = [](const std::string& other) {
    return nc::cc::mlir_text_digest(nc::as_bytes(other));
  };
  FUZZ_REQUIRE(of("// \" {\n" + text) == digest);
  FUZZ_REQUIRE(of(text + "\n\t// loc(\n") == digest);
  FUZZ_REQUIRE(of(text + "\n#a_new_place = loc(\"f\":1:2)") == digest);
  FUZZ_REQUIRE(of(text + "\n}") == std::nullopt);
  FUZZ_REQUIRE(of(text + "\n{}") != digest);
  FUZZ_REQUIRE(of(text + "\n\"\"") != digest);
  // One digit of data more is another program, wherever it stands but in a comment or location.
  const std::size_t dense = text.find("dense<\"0x");
  const std::size_t comment = text.find("//");
  if (dense != std::string::npos && comment > dense && text.find("loc") > dense) {
    std::string longer = text;
    longer.insert(dense + 9, "0");
    FUZZ_REQUIRE(of(longer) != digest);
  }
  return 0;
}

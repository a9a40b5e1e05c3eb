// The manifest: what parses is within its limits and comes back the same from its canonical form.
#include <optional>
#include <string>

#include "cache/manifest.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::Code;
using nc::Manifest;

namespace {

void try_one(std::string_view text) {
  const auto m = Manifest::parse(text);
  if (!m.ok()) {
    FUZZ_REQUIRE(!m.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(m->outputs.size() <= Manifest::kMaxOutputs);
  FUZZ_REQUIRE(!m->kind.empty() && !m->name_space.empty());
  const std::string canonical = m->to_json();
  FUZZ_REQUIRE(canonical.size() <= Manifest::kMaxBytes);
  const auto again = Manifest::parse(canonical);
  FUZZ_REQUIRE(again.ok());
  FUZZ_REQUIRE(again->to_json() == canonical);
  FUZZ_REQUIRE(again->key == m->key && again->parts == m->parts && again->outputs == m->outputs);
  FUZZ_REQUIRE(again->meta == m->meta && again->producer == m->producer);
  FUZZ_REQUIRE(again->signature == m->signature && again->bytes() == m->bytes());
}

// The same text with the key that its parts have, so that what lies behind that check is reached.
std::optional<std::string> with_right_key(std::string_view text) {
  const auto m = Manifest::parse(text);
  if (!m.is(Code::kKeyMismatch)) return std::nullopt;
  const std::string& message = m.error().message;
  const auto right = message.find("hash to ");
  const auto wrong = message.find("its key ");
  if (right == std::string::npos || wrong == std::string::npos) return std::nullopt;
  const auto at = text.find(message.substr(wrong + 8, 64));
  if (at == std::string_view::npos) return std::nullopt;  // written with escapes
  return std::string(text).replace(at, 64, message.substr(right + 8, 64));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  try_one(text);
  if (const auto fixed = with_right_key(text)) try_one(*fixed);
  return 0;
}

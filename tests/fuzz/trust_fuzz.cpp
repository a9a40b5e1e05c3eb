// What decides who is believed: signatures, keyrings, key and token files. What parses comes back
// the same from its text, and no input makes a signature that verifies.
#include <string>

#include "base/trust/keyring.hpp"
#include "base/trust/time_text.hpp"
#include "base/trust/tokens.hpp"
#include "cache/trust/envelope.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using namespace nc::trust;

namespace {

void try_signature(std::string_view text) {
  const auto signature = Signature::parse(text);
  if (!signature.ok()) {
    FUZZ_REQUIRE(!signature.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(signature->bytes.size() == kSignatureSize);
  FUZZ_REQUIRE(signature->key_id.size() == 32 && signature->signed_ms >= 0);
  const auto again = Signature::parse(signature->to_json());
  FUZZ_REQUIRE(again.ok() && again->bytes == signature->bytes);
  FUZZ_REQUIRE(again->key_id == signature->key_id && again->signed_ms == signature->signed_ms);
}

void try_keyring(std::string_view text) {
  auto ring = Keyring::parse(text);
  if (!ring.ok()) {
    FUZZ_REQUIRE(!ring.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(ring->keys().size() <= Keyring::kMaxKeys);
  const std::string canonical = ring->text();
  const auto again = Keyring::parse(canonical);
  FUZZ_REQUIRE(again.ok() && again->text() == canonical);
  for (const TrustedKey& key : ring->keys()) {
    FUZZ_REQUIRE(key.id == key.key.id() && ring->find(key.id) == &key);
    FUZZ_REQUIRE(!key.key.verify(nc::as_bytes(text), nc::as_bytes(std::string(64, '\0'))));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  try_signature(text);
  try_keyring(text);
  if (const auto key = PrivateKey::parse(text); key.ok()) {
    FUZZ_REQUIRE(key->id() == key->public_key().id());
  }
  if (const auto tokens = TokenFile::parse(text); tokens.ok()) {
    const auto again = TokenFile::parse(tokens->text());
    FUZZ_REQUIRE(again.ok() && again->text() == tokens->text());
    FUZZ_REQUIRE(tokens->find_client("") == nullptr);
  }
  if (const auto time = parse_time(text)) FUZZ_REQUIRE(time_text(*time) == text);
  if (const auto set = NamespaceSet::parse(text); set.ok()) FUZZ_REQUIRE(set->text() == text);
  return 0;
}

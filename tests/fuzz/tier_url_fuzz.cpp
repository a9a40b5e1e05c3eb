// Addresses of tiers: what is let in says the same when it is shown, and no text made from an
// address holds its credentials.
#include "cache/tier/tier_url.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::tier::parse_tier_url;
using nc::tier::TierAddress;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = nc::as_text(nc::fuzz_bytes(data, size));
  const auto decoded = nc::tier::percent_decode(text);
  if (decoded.ok()) {
    FUZZ_REQUIRE(*nc::tier::percent_decode(nc::tier::percent_encode(*decoded)) == *decoded);
  }
  const auto address = parse_tier_url(text);
  if (!address.ok()) {
    FUZZ_REQUIRE(address.is(nc::Code::kInvalid));
    FUZZ_REQUIRE(address.error().message.size() < 1000);
    return 0;
  }
  FUZZ_REQUIRE(!(address->read_only && address->write_only));
  FUZZ_REQUIRE(address->timeout_ms >= 100);
  FUZZ_REQUIRE(address->shown.find('@') == std::string::npos);
  // What is shown is an address too, of the same place.
  const auto again = parse_tier_url(address->shown);
  FUZZ_REQUIRE(again.ok());
  FUZZ_REQUIRE(again->scheme == address->scheme && again->tls == address->tls);
  FUZZ_REQUIRE(again->host == address->host && again->port == address->port);
  FUZZ_REQUIRE(again->path == address->path && again->shown == address->shown);
  FUZZ_REQUIRE(again->user.empty() && again->password.empty());
  return 0;
}

// The failure record, and what is made of any text that a compiler may write.
#include "cache/failure_policy.hpp"
#include "cache/manifest.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::Failure;

namespace {

void try_record(std::string_view text) {
  const auto f = Failure::parse(text);
  if (!f.ok()) {
    FUZZ_REQUIRE(!f.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(f->log.size() <= nc::kMaxFailureLog);
  FUZZ_REQUIRE(f->message.size() <= nc::kMaxFailureMessage);
  const std::string canonical = f->to_json();
  const auto again = Failure::parse(canonical);
  FUZZ_REQUIRE(again.ok() && again->to_json() == canonical);
  FUZZ_REQUIRE(nc::failure_expired(*f, nc::failure_expires_ms(*f, 1000), 1000));
}

void try_log(std::string_view text) {
  Failure f;
  f.message = text;
  f.log = text;
  const auto kept = nc::prepare_failure(f, 1'700'000'000'000, 3'600'000);
  FUZZ_REQUIRE(kept.has_value());
  FUZZ_REQUIRE(kept->message.find('\n') == std::string::npos);
  const auto again = Failure::parse(kept->to_json());
  FUZZ_REQUIRE(again.ok() && again->log == kept->log && again->message == kept->message);
  const std::size_t limit = text.empty() ? 0 : static_cast<unsigned char>(text[0]);
  FUZZ_REQUIRE(nc::cut_middle(text, limit).size() <= limit);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  try_record(text);
  try_log(text);
  return 0;
}

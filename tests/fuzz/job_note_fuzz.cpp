// The note of a queued build as anybody may have written it into a tier, and what a host makes of
// it.
#include "cache/tier/job_note.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::tier::JobNote;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  const auto note = JobNote::parse(text);
  if (!note.ok()) {
    FUZZ_REQUIRE(!note.error().message.empty());
    // Whatever a compiler printed can be told.
    JobNote told;
    told.message = told.log = text;
    FUZZ_REQUIRE(JobNote::parse(told.to_text()).ok());
    return 0;
  }
  FUZZ_REQUIRE(note->attempts <= JobNote::kMaxAttempts);
  const std::string canonical = note->to_text();
  FUZZ_REQUIRE(canonical.size() <= JobNote::kMaxBytes);
  const auto again = JobNote::parse(canonical);
  FUZZ_REQUIRE(again.ok() && again->to_text() == canonical);
  return 0;
}

// What the daemon keeps of builds: recorded actions, jobs of the queue, rows of recordings,
// measured peaks, counters of tiers. What is read is written the same way.
#include "daemon/action_record.hpp"
#include "daemon/peak_book.hpp"
#include "daemon/tier_totals.hpp"
#include "daemon/work.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace nc::daemon {
namespace {

template <class Record>
void again(std::string_view text) {
  const auto record = Record::decode(text);
  if (!record) return;
  const auto second = Record::decode(record->encode());
  FUZZ_REQUIRE(second && second->encode() == record->encode());
}

void check(std::string_view text) {
  const auto action = ActionRecord::parse(text);
  if (action.ok()) {
    const std::string canonical = action->to_json();
    FUZZ_REQUIRE(canonical.size() <= ActionRecord::kMaxBytes);
    const auto second = ActionRecord::parse(canonical);
    FUZZ_REQUIRE(second.ok() && second->to_json() == canonical);
    const auto entry = ActionRecord::from_entry(action->to_entry(1));
    FUZZ_REQUIRE(entry.ok() && entry->to_json() == canonical);
  } else {
    FUZZ_REQUIRE(!action.error().message.empty());
  }
  again<Job>(text);
  again<RecordedAction>(text);
  again<PeakRow>(text);
  tier::LinkCounters counters;
  if (add_totals(text, counters)) {
    tier::LinkCounters second;
    FUZZ_REQUIRE(add_totals(encode_totals(counters), second));
    FUZZ_REQUIRE(encode_totals(second) == encode_totals(counters));
  }
  if (const auto of = PeakClass::from_record_key(text)) FUZZ_REQUIRE(of->record_key() == text);
}

}  // namespace
}  // namespace nc::daemon

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  nc::daemon::check(nc::as_text(nc::fuzz_bytes(data, size)));
  return 0;
}

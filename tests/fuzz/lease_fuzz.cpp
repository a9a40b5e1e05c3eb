// The record of a lease as anybody may have written it into a tier, and what a host makes of it.
#include "cache/tier/layout.hpp"
#include "cache/tier/lease.hpp"
#include "cache/tier/memory_engine.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::tier::ClusterLease;
using nc::tier::LeaseRecord;

namespace {

constexpr nc::Millis kPeriod = 10'000;

void try_record(std::string_view text) {
  const auto record = LeaseRecord::parse(text);
  if (!record.ok()) {
    FUZZ_REQUIRE(!record.error().message.empty());
    return;
  }
  FUZZ_REQUIRE(nc::is_hex(record->holder, 32) && record->beat >= 1);
  const std::string canonical = record->to_text();
  const auto again = LeaseRecord::parse(canonical);
  FUZZ_REQUIRE(again.ok() && again->to_text() == canonical);
}

// Whatever lies there without changing, a host that wants the key holds it in the end.
void try_wait(std::string_view text) {
  nc::FakeClock clock;
  nc::FakeRandom random;
  const auto key = nc::Sha256::of(nc::as_bytes("key"));
  auto objects = std::make_shared<nc::tier::MemoryObjects>(clock);
  objects->put(nc::tier::lease_name(key, 1), std::string(text));
  nc::tier::MemoryEngine engine(objects);
  nc::tier::LeaseCounters counters;
  nc::tier::LeasePace pace(100);
  ClusterLease lease({engine, clock, random, counters, pace, [] { return nc::Result(false); }},
                     {kPeriod, 1'000}, key, {"host", "", "", 1});
  const nc::Millis limit = 2 * LeaseRecord::kMaxPeriodMs;
  while (lease.state() != ClusterLease::State::kHeld) {
    const auto next = lease.step();
    FUZZ_REQUIRE(next.has_value() && *next < limit);
    clock.advance(*next - clock.monotonic_ms());
  }
  FUZZ_REQUIRE(lease.believed() && lease.fence() == 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  try_record(text);
  try_wait(text);
  return 0;
}

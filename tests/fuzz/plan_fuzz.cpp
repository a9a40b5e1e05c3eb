// What the daemon keeps of buckets: the text of a plan, generations of a histogram.
#include "bucketing/planner/epochs.hpp"
#include "bucketing/planner/histogram.hpp"
#include "tests/fuzz/fuzz_input.hpp"

using nc::buckets::Plan;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = nc::as_text(nc::fuzz_bytes(data, size));
  const auto plan = Plan::parse(text);
  if (plan.ok()) {
    FUZZ_REQUIRE(plan->text() == text);
    for (const nc::buckets::Size n : {0U, 1U, 77U, 5000U, nc::buckets::kMaxSize}) {
      const std::vector<nc::buckets::Size> sizes(plan->families.size(), n);
      for (const auto& bucket : plan->buckets(sizes)) FUZZ_REQUIRE(!bucket || *bucket >= n);
    }
  } else {
    FUZZ_REQUIRE(!plan.error().message.empty());
  }
  nc::buckets::SizeHistogram sizes;
  if (sizes.decode(text))
    FUZZ_REQUIRE(sizes.encode(sizes.generations().at(0)).size() <= text.size());
  nc::buckets::PairHistogram pairs;
  if (pairs.decode(text)) FUZZ_REQUIRE(pairs.cells() > 0);
  return 0;
}

#include "bucketing/planner/optimum.hpp"

#include <algorithm>
#include <limits>

#include "bucketing/planner/line_envelope.hpp"

namespace nc::buckets {
namespace {

// One sum of weights more than there are candidates: sums[i] is of the first i.
std::vector<std::uint64_t> weight_sums(std::span<const Candidate> candidates) {
  std::vector<std::uint64_t> sums(candidates.size() + 1, 0);
  for (std::size_t i = 0; i < candidates.size(); ++i) sums[i + 1] = sums[i] + candidates[i].weight;
  return sums;
}

Wide cost_of(std::span<const Candidate> candidates, std::span<const std::uint64_t> sums,
             std::span<const std::uint32_t> picks) {
  Wide cost = 0;
  std::uint64_t served = 0;
  for (const std::uint32_t pick : picks) {
    cost += static_cast<Wide>(candidates[pick].cost) * (sums[pick + 1] - served);
    served = sums[pick + 1];
  }
  return cost;
}

// Can every sum with up to `buckets` prices be made in 64 bits?
bool fits_in_64(std::span<const Candidate> candidates, const Prices& prices, std::size_t buckets) {
  constexpr Wide kMost = std::numeric_limits<std::int64_t>::max() / 4;
  if (candidates.empty()) return true;
  Wide weights = 0;
  for (const Candidate& one : candidates) weights += one.weight;
  const auto count = static_cast<Wide>(std::max<std::size_t>(buckets, 1));
  return weights * candidates.back().cost < kMost && prices.fresh < kMost / count &&
         prices.resident < kMost / count;
}

template <class Value>
Choice solve_priced(std::span<const Candidate> candidates, const Prices& prices) {
  const auto sums = weight_sums(candidates);
  const std::size_t n = candidates.size();
  std::vector<std::uint32_t> from(n + 1, 0);
  LineEnvelope<Value> envelope(n);
  Value before = 0;  // the best of the first j - 1 candidates
  for (std::size_t j = 1; j <= n; ++j) {
    envelope.push(before, sums[j - 1], static_cast<std::uint32_t>(j - 1));
    const Candidate& last = candidates[j - 1];
    const auto& line = envelope.lowest(last.cost);
    from[j] = line.index;
    before = static_cast<Value>(prices.of(last)) +
             static_cast<Value>(last.cost) * static_cast<Value>(sums[j]) + line.at(last.cost);
  }
  Choice choice;
  for (auto j = static_cast<std::uint32_t>(n); j > 0; j = from[j]) choice.picks.push_back(j - 1);
  std::reverse(choice.picks.begin(), choice.picks.end());
  choice.cost = cost_of(candidates, sums, choice.picks);
  return choice;
}

}  // namespace

Choice best_priced(std::span<const Candidate> candidates, const Prices& prices) {
  // A best sum is never above that of one bucket, which has one price.
  return fits_in_64(candidates, prices, 1) ? solve_priced<std::int64_t>(candidates, prices)
                                           : solve_priced<Wide>(candidates, prices);
}

// The sums for k = 1, 2, ... buckets are convex. A toll on each bucket finds a corner of that curve
// in O(n); the toll at which two corners cost the same finds one between them, until it has `most`
// buckets. No corner between: `most` lies on an edge, and is found row by row.
Choice best_at_most(std::span<const Candidate> candidates, const Prices& prices,
                    std::uint32_t most) {
  if (most == 0) return {};
  Choice many = best_priced(candidates, prices);
  if (many.picks.size() <= most) return many;
  if (most > 1) {
    const auto sum = [&](const Choice& choice) {
      Wide total = choice.cost;
      for (const std::uint32_t pick : choice.picks) total += prices.of(candidates[pick]);
      return total;
    };
    Wide many_sum = sum(many);
    std::size_t few = 1;
    Wide few_sum = BestByCount(candidates, prices, 1).sum(1);
    for (;;) {
      const Wide toll = (few_sum - many_sum) / static_cast<Wide>(many.picks.size() - few);
      Choice between = best_priced(candidates, {prices.fresh + toll, prices.resident + toll});
      const std::size_t count = between.picks.size();
      if (count == most) return between;
      if (count <= few || count >= many.picks.size()) break;
      if (count < most) {
        few = count;
        few_sum = sum(between);
      } else {
        many_sum = sum(between);
        many = std::move(between);
      }
    }
  }
  return BestByCount(candidates, prices, most).choice(most);
}

struct BestByCount::Impl {
  std::vector<Candidate> candidates;
  std::vector<std::uint64_t> sums;
  std::uint32_t most = 0;
  std::vector<Wide> by_count;       // [k - 1]: with exactly k buckets
  std::vector<std::uint32_t> from;  // row k - 2, column j: where the bucket that ends at j begins

  template <class Value>
  void solve(const Prices& prices);
};

// Row by row: best[j] is of the first j candidates with k buckets, k the row's.
template <class Value>
void BestByCount::Impl::solve(const Prices& prices) {
  const std::size_t n = candidates.size();
  std::vector<Value> ends(n + 1, 0);  // what a bucket ending here costs if it served all before
  std::vector<Value> best(n + 1, 0);
  for (std::size_t j = 1; j <= n; ++j) {
    const Candidate& last = candidates[j - 1];
    ends[j] = static_cast<Value>(prices.of(last)) +
              static_cast<Value>(last.cost) * static_cast<Value>(sums[j]);
    best[j] = ends[j];
  }
  by_count.push_back(best[n]);
  LineEnvelope<Value> envelope(n);
  std::vector<Value> next(n + 1, 0);
  for (std::size_t k = 2; k <= most; ++k) {
    std::uint32_t* const row = from.data() + (k - 2) * (n + 1);
    envelope.clear();
    for (std::size_t j = k; j <= n; ++j) {
      envelope.push(best[j - 1], sums[j - 1], static_cast<std::uint32_t>(j - 1));
      const auto& line = envelope.lowest(candidates[j - 1].cost);
      row[j] = line.index;
      next[j] = ends[j] + line.at(candidates[j - 1].cost);
    }
    best.swap(next);
    by_count.push_back(best[n]);
  }
}

BestByCount::BestByCount(std::span<const Candidate> candidates, const Prices& prices,
                         std::uint32_t most)
    : impl_(std::make_unique<Impl>()) {
  impl_->candidates.assign(candidates.begin(), candidates.end());
  impl_->sums = weight_sums(candidates);
  impl_->most = static_cast<std::uint32_t>(std::min<std::size_t>(most, candidates.size()));
  if (impl_->most == 0) return;
  impl_->from.resize((impl_->most - 1) * (candidates.size() + 1), 0);
  if (fits_in_64(candidates, prices, impl_->most)) {
    impl_->solve<std::int64_t>(prices);
  } else {
    impl_->solve<Wide>(prices);
  }
}

BestByCount::~BestByCount() = default;
BestByCount::BestByCount(BestByCount&&) noexcept = default;
BestByCount& BestByCount::operator=(BestByCount&&) noexcept = default;

std::uint32_t BestByCount::most() const {
  return impl_->most;
}

Wide BestByCount::sum(std::uint32_t k) const {
  return impl_->by_count[k - 1];
}

Choice BestByCount::choice(std::uint32_t k) const {
  Choice choice;
  const std::size_t columns = impl_->candidates.size() + 1;
  auto j = static_cast<std::uint32_t>(impl_->candidates.size());
  for (; k >= 2; --k) {
    choice.picks.push_back(j - 1);
    j = impl_->from[(k - 2) * columns + j];
  }
  if (j > 0) choice.picks.push_back(j - 1);
  std::reverse(choice.picks.begin(), choice.picks.end());
  choice.cost = cost_of(impl_->candidates, impl_->sums, choice.picks);
  return choice;
}

std::uint32_t BestByCount::cheapest() const {
  std::uint32_t best = 1;
  for (std::uint32_t k = 2; k <= impl_->most; ++k) {
    if (impl_->by_count[k - 1] < impl_->by_count[best - 1]) best = k;
  }
  return best;
}

}  // namespace nc::buckets

// The exact optimum: which candidates should be buckets.
//
// A bucket that ends at candidate j serves the calls of all candidates after the bucket before it,
// each at the cost of j. Such costs are Monge (whatever the non-decreasing cost), so that the best
// choice is found with lower envelopes of lines: no bound on the count in O(n), with one in O(K n).
//
//   D[j] = price_j + f_j W_j + min_{i < j} (D[i] - f_j W_i)     W: sums of weights, f: costs
//
// Everything is exact, and ties are broken alike everywhere: the bucket before ends as low as it
// can.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "bucketing/planner/sizes.hpp"

namespace nc::buckets {

struct Candidate {
  Size end = 0;
  bool resident = false;     // its artifact exists already
  std::uint64_t weight = 0;  // of the calls that round up to it; may be 0
  std::uint64_t cost = 0;    // of one call padded to it; does not fall with `end`
};

// What having a bucket costs, in units of weight x cost.
struct Prices {
  Wide fresh = 0;
  Wide resident = 0;
  Wide of(const Candidate& candidate) const { return candidate.resident ? resident : fresh; }
};

struct Choice {
  std::vector<std::uint32_t> picks;  // indices into the candidates, ascending; the last one is in
  Wide cost = 0;                     // of the calls alone
};

// The cheapest with any number of buckets, calls and prices together.
Choice best_priced(std::span<const Candidate> candidates, const Prices& prices);

// The cheapest with at most `most` buckets: a few times the work of best_priced(), in rare cases
// that of BestByCount.
Choice best_at_most(std::span<const Candidate> candidates, const Prices& prices,
                    std::uint32_t most);

// The cheapest for each count of buckets up to `most`.
class BestByCount {
 public:
  BestByCount(std::span<const Candidate> candidates, const Prices& prices, std::uint32_t most);
  ~BestByCount();
  BestByCount(BestByCount&&) noexcept;
  BestByCount& operator=(BestByCount&&) noexcept;

  std::uint32_t most() const;       // min(most, number of candidates)
  Wide sum(std::uint32_t k) const;  // calls and prices with exactly k buckets, 1 <= k <= most()
  Choice choice(std::uint32_t k) const;
  std::uint32_t cheapest() const;  // the k with the least sum; of several the least

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nc::buckets

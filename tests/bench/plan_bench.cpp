// The planner's budgets: the exact optimum, the priced plan, a whole program, the map in a step.
// The first two are times, because people wait for them; everything beside them is a ratio of this
// run.
#include <ctime>
#include <random>

#include "bucketing/planner/optimum.hpp"
#include "bucketing/planner/program_plan.hpp"
#include "tests/bench/bench_util.hpp"

namespace nc::bench {
namespace {

using namespace nc::buckets;  // NOLINT(google-build-using-namespace): it is about nothing else

constexpr std::size_t kCandidates = 100'000;
constexpr std::uint32_t kBuckets = 64;
constexpr int kRounds = 5;

// Weights fall with the size, as lengths of real traffic do.
std::vector<Candidate> candidates(std::size_t count, const CostModel& cost) {
  std::mt19937_64 random(1);
  std::vector<Candidate> out;
  for (std::size_t i = 1; i <= count; ++i) {
    const auto end = static_cast<Size>(i * 128);
    out.push_back({end, random() % 8 == 0, 1 + random() % (1 + 100'000'000 / i), cost.at(end)});
  }
  return out;
}

// Processor time of this thread: what the work costs, also when other programs run.
double cpu_now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// The least of some rounds.
template <class Work>
double best_us(int rounds, const Work& work) {
  double best = 1e300;
  for (int i = 0; i < rounds; ++i) {
    const double begin = cpu_now_us();
    work();
    best = std::min(best, cpu_now_us() - begin);
  }
  return best;
}

volatile std::uint64_t g_sink = 0;

double exact_us(std::size_t count, const CostModel& cost) {
  const auto input = candidates(count, cost);
  return best_us(kRounds,
                 [&] { g_sink = g_sink + best_at_most(input, {}, kBuckets).picks.size(); });
}

double all_counts_us(std::size_t count) {
  const auto input = candidates(count, CostModel::linear());
  return best_us(3, [&] {
    const BestByCount found(input, {}, kBuckets);
    g_sink = g_sink + found.choice(kBuckets).picks.size();
  });
}

double priced_us(std::size_t count, const CostModel& cost) {
  const auto input = candidates(count, cost);
  Wide sum = 0;
  for (const Candidate& one : input) sum += static_cast<Wide>(one.cost) * one.weight;
  const Prices prices{sum / 1000, sum / 50'000};
  return best_us(kRounds, [&] { g_sink = g_sink + best_priced(input, prices).picks.size(); });
}

// What the definition says, for one more bucket over `count` candidates: O(n^2).
double one_row_of_brute_force_us(std::size_t count) {
  const auto input = candidates(count, CostModel::linear());
  std::vector<std::uint64_t> sums(count + 1, 0);
  for (std::size_t i = 0; i < count; ++i) sums[i + 1] = sums[i] + input[i].weight;
  std::vector<std::uint64_t> before(sums);
  return best_us(1, [&] {
    for (std::size_t j = 1; j <= count; ++j) {
      std::uint64_t least = UINT64_MAX;
      for (std::size_t i = 0; i < j; ++i) {
        least = std::min(least, before[i] + input[j - 1].cost * (sums[j] - sums[i]));
      }
      g_sink = g_sink + least;
    }
  });
}

ProgramAsk program() {
  std::mt19937_64 random(2);
  ProgramAsk ask;
  for (const char* name : {"batch", "decoder", "encoder", "heads"}) {
    SizeHistogram histogram;
    for (std::uint32_t day = 0; day < 8; ++day) {
      std::vector<SizeHistogram::Cell> cells;
      for (int i = 0; i < 2000; ++i) {
        cells.push_back({{static_cast<Size>(1 + random() % 32'768)}, 1 + random() % 100});
      }
      histogram.add(day, cells);
    }
    ask.families.push_back({name, {128, 128, 0}, History::of(histogram), {}, {}});
  }
  return ask;
}

double map_us() {
  FamilyPlan plan{"seq", {128, 128, 0}, {}, 3, 2, true};
  for (Size end = 128; plan.buckets.size() < kBuckets; end += 384) plan.buckets.push_back(end);
  constexpr int kCalls = 1'000'000;
  return best_us(3,
                 [&] {
                   for (int i = 0; i < kCalls; ++i) {
                     g_sink = g_sink + *plan.bucket(static_cast<Size>(i) * 7919U % 24'000U);
                   }
                 }) /
         kCalls;
}

int run() {
  Budgets budgets;
  const auto linear = CostModel::linear();
  const auto quadratic = CostModel::quadratic();
  const double exact = exact_us(kCandidates, linear);
  const double priced = priced_us(kCandidates, linear);
  budgets.at_most("exact optimum, 100,000 candidates, 64 buckets", exact / 1000, 100, "ms");
  budgets.at_most("priced plan, 100,000 candidates", priced / 1000, 5, "ms");
  budgets.at_most("exact optimum, sums beyond 64 bits", exact_us(kCandidates, quadratic) / 1000,
                  100, "ms");
  budgets.at_most("the optimum of all 64 counts / of one", all_counts_us(kCandidates) / exact, 40);
  budgets.at_most("priced plan, sums beyond 64 bits", priced_us(kCandidates, quadratic) / 1000, 5,
                  "ms");
  budgets.at_most("exact optimum, time per candidate: 100,000 / 10,000",
                  exact / exact_us(kCandidates / 10, linear) / 10, 3);
  constexpr std::size_t kSome = 10'000;
  budgets.at_most("64 rows / one row by the definition, 10,000 candidates",
                  all_counts_us(kSome) / one_row_of_brute_force_us(kSome), 1);
  const ProgramAsk ask = program();
  budgets.at_most(
      "a program of 4 families of 16,000 sizes",
      best_us(kRounds, [&] { g_sink = g_sink + plan_program(ask).plan.artifacts(); }) / 1000, 100,
      "ms");
  budgets.at_most("one size to its bucket", map_us(), 0.2, "us");
  return budgets.exit_status();
}

}  // namespace
}  // namespace nc::bench

int main() {
  return nc::bench::run();
}

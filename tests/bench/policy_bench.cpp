// The parts of the cache that decide, without a disk: eviction order, counters, miss explanations,
// manifests.
#include <benchmark/benchmark.h>

#include "cache/counters.hpp"
#include "cache/eviction.hpp"
#include "cache/manifest.hpp"
#include "cache/miss_explainer.hpp"
#include "tests/bench/store_entries.hpp"

namespace nc::bench {
namespace {

ActionKey cheap_key(std::uint64_t i) {
  ActionKey key;
  std::string text;
  put_u64(text, i * 0x9e3779b97f4a7c15ULL);
  for (std::size_t b = 0; b < key.raw.size(); ++b) key.raw[b] = static_cast<std::byte>(text[b % 8]);
  return key;
}

EvictionEntry eviction_entry(std::uint64_t i) {
  EvictionEntry e;
  e.key = cheap_key(i);
  e.bytes = 4096 + (i * 7919) % (1 << 24);
  e.build_ms = (i * 104729) % 600'000;
  e.uses = 1 + i % 5;
  return e;
}

// One entry comes, one is used, the cheapest goes.
void eviction_turn(benchmark::State& state) {
  const auto size = static_cast<std::uint64_t>(state.range(0));
  EvictionQueue queue;
  for (std::uint64_t i = 0; i < size; ++i) queue.insert(eviction_entry(i));
  std::uint64_t next = size;
  for (auto _ : state) {
    queue.insert(eviction_entry(next));
    queue.touch(cheap_key(next - size / 2), 0);
    queue.evicted(*queue.victim());
    ++next;
  }
}
BENCHMARK(eviction_turn)->RangeMultiplier(10)->Range(100, 1'000'000);

void counter_add(benchmark::State& state) {
  CounterBook book;
  for (auto _ : state) book.add("default", Counter::kHits);
}
BENCHMARK(counter_add)->ThreadRange(1, 4);

void explain_miss(benchmark::State& state) {
  const auto size = static_cast<std::uint64_t>(state.range(0));
  MissExplainer explainer;
  for (std::uint64_t i = 0; i < size; ++i) {
    explainer.remember(cheap_key(i), "graph", "layer", parts_of(i));
  }
  Request request;
  request.key = cheap_key(size + 1);
  request.kind = "graph";
  request.label = "layer";
  request.parts = parts_of(size + 1);
  request.parts.back().second = "another";  // two parts differ: everything is looked through
  const auto lookup = [&](const ActionKey&) {
    return std::optional(MissExplainer::Known{parts_of(1), 0, "host"});
  };
  for (auto _ : state) benchmark::DoNotOptimize(explainer.explain(request, lookup));
  state.counters["remembered"] = static_cast<double>(explainer.size());
}
BENCHMARK(explain_miss)->Arg(100)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMicrosecond);

void manifest_parse(benchmark::State& state) {
  const std::string text = manifest_of(1, "bytes").to_json();
  for (auto _ : state) benchmark::DoNotOptimize(Manifest::parse(text));
  state.SetBytesProcessed(static_cast<std::int64_t>(text.size()) * state.iterations());
}
BENCHMARK(manifest_parse)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nc::bench

BENCHMARK_MAIN();

// A host of a fleet: a store on a disk in memory, and a chain of tiers that it shares with others.
#pragma once

#include "cache/tier/chain.hpp"
#include "cache/tier/memory_engine.hpp"
#include "tests/unit/cache/store_box.hpp"

namespace nc::tier {

class TierBox : public StoreBox {
 public:
  TierBox() {
    if (!open().ok()) std::abort();
  }
  ~TierBox() { chain.reset(); }

  // A tier in memory; `url` gives options and place in the order, e.g. "file:///a?priority=1".
  MemoryEngine& add(const std::shared_ptr<MemoryObjects>& objects, const std::string& url) {
    MemoryEngine::Options engine;
    engine.wait = [this](Millis ms) { clock.advance(ms); };
    auto address = parse_tier_url(url);
    EXPECT_TRUE(address.ok()) << url;
    engine.timeout_ms = address->timeout_ms;
    auto made = std::make_unique<MemoryEngine>(objects, engine);
    MemoryEngine& kept = *made;
    links.push_back(std::make_unique<Link>(*address, std::move(made), clock, random));
    return kept;
  }

  void connect() {
    TransferDeps transfer{*store,
                          fs,
                          random,
                          trust,
                          options.dir + "/staging",
                          [this](Millis ms) { clock.advance(ms); }};
    WriteBack::Options queue;
    queue.max_items = max_items;
    chain = std::make_unique<Chain>(std::move(links), Chain::Deps{clock, transfer, queue});
    links.clear();
    EXPECT_TRUE(chain->restore().ok());
  }

  // Sends all that can be sent within `ms`.
  void deliver(Millis ms = 0) {
    const auto end = clock.monotonic_ms() + ms;
    for (;;) {
      while (chain->step()) {
      }
      if (clock.monotonic_ms() >= end) return;
      clock.advance(500);
    }
  }

  // Accepts what bears the word "good" as its signature, and signs so.
  Trust trust{
      [](const Manifest& m, std::string_view) -> Status {
        return m.signature == R"({"by":"good"})" ? Status() : Error{Code::kDenied, "unsigned", ""};
      },
      [](Manifest& m) -> Status {
        m.signature = R"({"by":"good"})";
        return {};
      }};
  std::size_t max_items = 1000;
  std::vector<std::unique_ptr<Link>> links;
  std::unique_ptr<Chain> chain;
};

inline std::string words(std::size_t size, int seed) {  // that compress well
  std::string text;
  while (text.size() < size) text += "line " + std::to_string(seed * 1000 + text.size()) + "\n";
  text.resize(size);
  return text;
}

}  // namespace nc::tier

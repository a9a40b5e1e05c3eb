// How histories and plans lie in the store's tables "histograms" and "plans"; docs/formats.md has
// the grammar. Decoders trust nothing; nullopt means damaged, or of a newer version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "bucketing/planner/epochs.hpp"

namespace nc::daemon {

inline constexpr std::string_view kHistogramTable = "histograms";
inline constexpr std::string_view kPlanTable = "plans";

// ---- Keys ----
struct RecordName {
  Sha256 program;
  char kind = 0;              // 'h' head, 'f' sizes, 'j' pairs, 'e' plan, 'p' pin
  std::uint64_t number = 0;   // generation of 'f' and 'j', epoch of 'e'
  std::string first, second;  // families of 'f' and 'j'
  Sha256 pin;                 // of 'p'
};
std::string head_key(const Sha256& program);
std::string sizes_key(const Sha256& program, std::uint32_t generation, std::string_view family);
std::string pairs_key(const Sha256& program, std::uint32_t generation, std::string_view first,
                      std::string_view second);
std::string epoch_key(const Sha256& program, std::uint64_t epoch);
std::string pin_key(const Sha256& program, const Sha256& pin);
std::optional<RecordName> read_name(std::string_view key);

// ---- Values that are not of bucketing/ ----

// What is known of a program beside its sizes.
struct ProgramHead {
  std::string label;
  Millis seen_ms = 0;
  std::uint64_t compile_ms = 0;  // of all builds that were told
  std::uint64_t builds = 0;
  std::uint64_t calls = 0;  // timed ones, the last million or so, and what they took together
  std::uint64_t calls_us = 0;

  std::uint64_t usual_compile_ms() const { return builds == 0 ? 0 : compile_ms / builds; }
  std::uint64_t usual_call_us() const { return calls == 0 ? 0 : calls_us / calls; }
  void add_calls(std::uint64_t count, std::uint64_t us);
  std::string encode() const;
  static std::optional<ProgramHead> decode(std::string_view text);
};

// The answer that a job keeps getting.
struct Pin {
  std::string job;
  std::uint64_t after = 0;
  Millis used_ms = 0;
  buckets::Plan plan;
  std::vector<std::optional<double>> waste;  // by family of the plan, when it was made
  bool waste_met = true;

  std::string encode() const;
  static std::optional<Pin> decode(std::string_view text);
};

// Names the pin of a job, an epoch before, and a set of families (sorted).
Sha256 pin_id(std::string_view job, std::uint64_t after, const std::vector<std::string>& families);

}  // namespace nc::daemon

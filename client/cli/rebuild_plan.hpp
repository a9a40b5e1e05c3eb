// Which recorded actions are to be built, for which compilers and targets: one item for each key.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/cc/rebuild.hpp"
#include "client/client.hpp"

namespace nc::cli {

// Of one recording; what is empty takes everything, or leaves it as it was recorded.
struct Selection {
  std::string recording;
  std::vector<std::string> labels;     // patterns as a shell has them
  std::vector<std::string> keys;       // beginnings of keys
  std::vector<std::string> compilers;  // each as for cc::choose_compiler; "recorded" for as it was
  std::vector<std::string> targets;    // "recorded" likewise
};
inline constexpr std::string_view kAsRecorded = "recorded";

struct RebuildItem {
  client::RecordedAction action;  // as it is to be built
  std::string target;             // "" when the command names none
  std::optional<cc::RealCompiler> compiler;
  std::string obstacle;  // why it cannot be built here, or ""
  bool there = false;
  std::string otherwise;  // the obstacle if what is there turns out to be unusable, or ""
  double seconds = 0;     // that the build takes, from history; 0: not known
  bool guessed = false;   // from that of others
};

// The target that its key has, "" for that of the machine.
std::string target_of(const client::RecordedAction& action);
// All of a recording. kNotFound: there is none.
Result<std::vector<client::RecordedAction>> recorded_actions(client::Client& client,
                                                             const std::string& recording);

// Part `index` of `count`, from 1. Each key is in one part.
struct Shard {
  std::uint64_t index = 1;
  std::uint64_t count = 1;
  bool has(const Digest& key) const;
};
Result<Shard> parse_shard(std::string_view text);  // "2/8"

// In the order of the selections and, within one, of keys. `build_here`: without its compiler an
// item has an obstacle. kNotFound: no such recording or compiler.
Result<std::vector<RebuildItem>> plan_rebuild(client::Client& client,
                                              const cc::CompilerSearch& search,
                                              std::span<const Selection> selections,
                                              const Shard& shard, bool build_here);

struct RebuildCost {
  std::size_t there = 0, missing = 0, blocked = 0;
  std::size_t guessed = 0, unknown = 0;  // of the missing
  double seconds = 0;                    // of the missing, one after the other
};
RebuildCost cost_of(std::span<const RebuildItem> items);

}  // namespace nc::cli

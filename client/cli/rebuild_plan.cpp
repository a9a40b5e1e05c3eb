#include "client/cli/rebuild_plan.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>

namespace nc::cli {
namespace {

constexpr std::size_t kPage = 1000;
constexpr std::string_view kProgram = "neuronx-cc ";

// Compilers that were looked for, by what was wanted.
class Compilers {
 public:
  explicit Compilers(const cc::CompilerSearch& search) : search_(search) {}

  const Result<cc::KnownCompiler>& get(const std::string& wanted) {
    auto it = known_.find(wanted);
    if (it == known_.end()) it = known_.emplace(wanted, cc::choose_compiler(search_, wanted)).first;
    return it->second;
  }

  // The one that an action was recorded with; null when it is not here.
  const cc::KnownCompiler* of(const client::RecordedAction& record) {
    std::vector<std::string> wanted{""};
    if (record.compiler.starts_with(kProgram))
      wanted.push_back(record.compiler.substr(kProgram.size()));
    for (const std::string& one : wanted) {
      const auto& found = get(one);
      if (found.ok() && cc::recorded_with(record, found->identity)) return &*found;
    }
    return nullptr;
  }

 private:
  const cc::CompilerSearch& search_;
  std::map<std::string, Result<cc::KnownCompiler>> known_;
};

bool selected(const Selection& selection, const client::RecordedPage::Action& action) {
  const auto any = [](const std::vector<std::string>& wanted, auto fits) {
    return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), fits);
  };
  return any(selection.labels,
             [&](const std::string& pattern) {
               return ::fnmatch(pattern.c_str(), action.label.c_str(), 0) == 0;
             }) &&
         any(selection.keys, [&](const std::string& key) { return action.key.starts_with(key); });
}

class Planner {
 public:
  Planner(client::Client& client, const cc::CompilerSearch& search, const Shard& shard,
          bool build_here)
      : client_(client), compilers_(search), shard_(shard), build_here_(build_here) {}

  Status add(const Selection& selection) {
    std::string after;
    std::size_t found = 0;
    for (;;) {
      NC_ASSIGN(const client::RecordedPage page,
                client_.recorded_actions(selection.recording, after, kPage));
      for (const auto& action : page.actions) {
        if (!selected(selection, action)) continue;
        ++found;
        NC_TRY(add_action(selection, action));
      }
      if (!page.next) break;
      after = *page.next;
    }
    if (found > 0) return {};
    return Error{Code::kNotFound,
                 fmt::format("nothing in the recording '{}' is selected", selection.recording),
                 "see `neuroncache ls`, and the labels and keys of the plan"};
  }

  std::vector<RebuildItem> take() {
    guess();
    return std::move(items_);
  }

 private:
  Status add_action(const Selection& selection, const client::RecordedPage::Action& listed) {
    const auto key = ActionKey::from_hex(listed.key);
    if (!key) return Error{Code::kInvalid, fmt::format("'{}' is no key", listed.key), ""};
    if (!listed.lost.empty()) return add_lost(selection, listed, *key);
    auto record = client_.recorded(selection.recording, *key);
    if (record.is(Code::kNotFound)) {
      client::RecordedPage::Action lost = listed;
      lost.lost = "what was recorded of it is gone from the store: record it again";
      return add_lost(selection, lost, *key);
    }
    if (!record.ok()) return std::move(record).error().context(listed.label);
    static const std::vector<std::string> as_recorded{std::string(kAsRecorded)};
    const auto& compilers = selection.compilers.empty() ? as_recorded : selection.compilers;
    const auto& targets = selection.targets.empty() ? as_recorded : selection.targets;
    for (const std::string& compiler : compilers) {
      for (const std::string& target : targets) {
        NC_TRY(add_item(*record, listed, compiler, target == kAsRecorded ? "" : target));
      }
    }
    return {};
  }

  // Of an action that is only known by name nothing can be built, but it may be there.
  Status add_lost(const Selection& selection, const client::RecordedPage::Action& listed,
                  const ActionKey& key) {
    if (!shard_.has(key) || !keys_.insert(key).second) return {};
    RebuildItem item;
    item.action.key = key;
    item.action.kind = "neff";
    item.action.label = listed.label;
    item.action.program = "neuronx-cc";
    item.action.compiler = listed.compiler;
    item.obstacle = listed.lost;
    const auto entry = client_.manifest(key);
    if (!entry.ok() && !entry.is(Code::kNotFound)) return entry.error();
    if (entry.ok()) {
      item.action.parts = entry->parts;
      item.action.name_space = entry->name_space;
      item.action.kind = entry->kind;
      item.target = target_of(item.action);
    }
    const auto as_recorded = [](const std::vector<std::string>& wanted) {
      return wanted.empty() || wanted == std::vector<std::string>{std::string(kAsRecorded)};
    };
    item.there = entry.ok() && as_recorded(selection.compilers) && as_recorded(selection.targets);
    if (item.there) item.otherwise = std::exchange(item.obstacle, "");
    items_.push_back(std::move(item));
    return {};
  }

  Status add_item(const client::RecordedAction& record, const client::RecordedPage::Action& listed,
                  const std::string& compiler, const std::string& target) {
    RebuildItem item;
    const cc::KnownCompiler* known = nullptr;
    if (compiler == kAsRecorded) {
      known = compilers_.of(record);
      if (known == nullptr && build_here_)
        item.obstacle = fmt::format("{}, as it was recorded with, is not here", record.compiler);
    } else {
      const auto& found = compilers_.get(compiler);
      if (!found.ok()) return found.error();
      known = &*found;
    }
    cc::Aim aim;
    if (known != nullptr) aim.compiler = &known->identity;
    aim.target = target;
    auto aimed = cc::aim_at(record, aim);
    if (aimed.ok()) {
      item.action = *std::move(aimed);
    } else {
      item.action = record;
      item.obstacle = aimed.error().text();
    }
    if (!shard_.has(item.action.key) || !keys_.insert(item.action.key).second) return {};
    if (known != nullptr) item.compiler = known->compiler;
    item.target = target_of(item.action);
    item.seconds = static_cast<double>(listed.build_ms) / 1000;
    const auto there = client_.manifest(item.action.key);
    if (!there.ok() && !there.is(Code::kNotFound)) return there.error();
    item.there = there.ok() && aimed.ok();
    if (item.there) item.otherwise = std::exchange(item.obstacle, "");
    items_.push_back(std::move(item));
    return {};
  }

  // What has no history takes as long as what is in the middle of what has.
  void guess() {
    std::vector<double> known;
    for (const RebuildItem& item : items_) {
      if (item.seconds > 0) known.push_back(item.seconds);
    }
    if (known.empty()) return;
    const auto middle = known.begin() + static_cast<std::ptrdiff_t>(known.size() / 2);
    std::nth_element(known.begin(), middle, known.end());
    for (RebuildItem& item : items_) {
      if (item.seconds > 0) continue;
      item.seconds = *middle;
      item.guessed = true;
    }
  }

  client::Client& client_;
  Compilers compilers_;
  const Shard shard_;
  const bool build_here_;
  std::set<ActionKey> keys_;
  std::vector<RebuildItem> items_;
};

}  // namespace

std::string target_of(const client::RecordedAction& action) {
  for (const auto& [name, value] : action.parts) {
    if (name == "flag.target") return value;
  }
  return {};
}

Result<std::vector<client::RecordedAction>> recorded_actions(client::Client& client,
                                                             const std::string& recording) {
  std::vector<client::RecordedAction> out;
  std::string after;
  for (;;) {
    NC_ASSIGN(const client::RecordedPage page, client.recorded_actions(recording, after, kPage));
    for (const auto& action : page.actions) {
      const auto key = ActionKey::from_hex(action.key);
      if (!key) return Error{Code::kInvalid, fmt::format("'{}' is no key", action.key), ""};
      auto record = action.lost.empty()
                        ? client.recorded(recording, *key)
                        : Result<client::RecordedAction>(Error{Code::kNotFound, action.lost, ""});
      if (!record.ok() && !record.is(Code::kNotFound)) return std::move(record).error();
      if (record.ok()) {
        out.push_back(*std::move(record));
      } else {
        client::RecordedAction lost;
        lost.key = *key;
        lost.label = action.label;
        lost.compiler = action.compiler;
        out.push_back(std::move(lost));
      }
    }
    if (!page.next) return out;
    after = *page.next;
  }
}

bool Shard::has(const Digest& key) const {
  std::uint64_t number = 0;
  constexpr std::size_t kDigits = 16;
  const std::string hex = key.hex().substr(0, kDigits);
  std::from_chars(hex.data(), hex.data() + hex.size(), number, 16);
  return number % count == index - 1;
}

Result<Shard> parse_shard(std::string_view text) {
  Shard shard;
  const char* const end = text.data() + text.size();
  const auto [slash, first] = std::from_chars(text.data(), end, shard.index);
  if (first == std::errc() && slash != end && *slash == '/') {
    const auto [last, second] = std::from_chars(slash + 1, end, shard.count);
    if (second == std::errc() && last == end && shard.index >= 1 && shard.index <= shard.count)
      return shard;
  }
  return Error{Code::kInvalid, fmt::format("--shard: '{}' is no part of a whole", text),
               "give one as in 2/8, from 1/8 to 8/8"};
}

Result<std::vector<RebuildItem>> plan_rebuild(client::Client& client,
                                              const cc::CompilerSearch& search,
                                              std::span<const Selection> selections,
                                              const Shard& shard, bool build_here) {
  Planner planner(client, search, shard, build_here);
  for (const Selection& selection : selections) NC_TRY(planner.add(selection));
  return planner.take();
}

RebuildCost cost_of(std::span<const RebuildItem> items) {
  RebuildCost cost;
  for (const RebuildItem& item : items) {
    if (item.there) {
      ++cost.there;
    } else if (!item.obstacle.empty()) {
      ++cost.blocked;
    } else {
      ++cost.missing;
      cost.seconds += item.seconds;
      if (item.seconds == 0) ++cost.unknown;
      if (item.guessed) ++cost.guessed;
    }
  }
  return cost;
}

}  // namespace nc::cli

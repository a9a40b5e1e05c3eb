#include "daemon/tier_totals.hpp"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

using tier::LinkCounters;

constexpr std::string_view kTable = "tier_counters";
constexpr std::string_view kEntryMs = "entry_ms";
constexpr int kVersion = 1;
constexpr std::size_t kMaxRecord = 4096;

struct Field {
  std::string_view name;
  std::atomic<std::uint64_t> LinkCounters::*counter;
};
constexpr std::array kFields = {Field{"hits", &LinkCounters::hits},
                                Field{"absent", &LinkCounters::absent},
                                Field{"denied", &LinkCounters::denied},
                                Field{"failed", &LinkCounters::failed},
                                Field{"timed_out", &LinkCounters::timed_out},
                                Field{"refused", &LinkCounters::refused},
                                Field{"corrupt", &LinkCounters::corrupt},
                                Field{"skipped", &LinkCounters::skipped},
                                Field{"sent", &LinkCounters::sent},
                                Field{"known", &LinkCounters::known},
                                Field{"send_failed", &LinkCounters::send_failed},
                                Field{"unsigned", &LinkCounters::unsigned_kept},
                                Field{"bytes_in", &LinkCounters::bytes_in},
                                Field{"bytes_out", &LinkCounters::bytes_out}};

constexpr std::uint64_t bounded(std::uint64_t n) {
  constexpr auto kMost = static_cast<std::uint64_t>(JsonFields::kMaxInteger);
  return n < kMost ? n : kMost;
}

}  // namespace

std::string encode_totals(const LinkCounters& counters) {
  js::object object{{"v", kVersion}};
  for (const Field& field : kFields) {
    object[js::string_view(field.name.data(), field.name.size())] =
        bounded((counters.*field.counter).load());
  }
  object[js::string_view(kEntryMs.data(), kEntryMs.size())] =
      bounded(static_cast<std::uint64_t>(counters.entry_ms.load()));
  return js::serialize(object);
}

bool add_totals(std::string_view record, LinkCounters& counters) {
  const auto object = parse_json_object(record, kMaxRecord, "the record");
  if (!object.ok()) return false;
  int version = 0;
  Millis entry_ms = 0;
  std::array<std::uint64_t, kFields.size()> values{};
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000).integer(kEntryMs, entry_ms, 0, JsonFields::kMaxInteger);
  for (std::size_t i = 0; i < kFields.size(); ++i) {
    fields.integer(kFields[i].name, values[i], 0, JsonFields::kMaxInteger);
  }
  if (!fields.done().ok() || version != kVersion) return false;
  for (std::size_t i = 0; i < kFields.size(); ++i) counters.*kFields[i].counter += values[i];
  counters.entry_ms += entry_ms;
  return true;
}

Status TierTotals::restore(tier::Chain& chain) {
  NC_ASSIGN(const auto records, store_.records(kTable));
  std::vector<Store::RecordChange> dropped;
  for (const auto& [name, record] : records) {
    auto link = chain.link(name);
    if (!name.empty() && link.ok() && add_totals(record, (*link)->counters())) {
      written_[name] = record;
    } else {
      dropped.push_back({name, std::nullopt});
    }
  }
  return dropped.empty() ? Status() : store_.change_records(kTable, std::move(dropped));
}

Status TierTotals::write(tier::Chain& chain) {
  std::vector<Store::RecordChange> changes;
  for (const auto& link : chain.links()) {
    std::string record = encode_totals(link->counters());
    if (written_[link->name()] != record) changes.push_back({link->name(), std::move(record)});
  }
  if (changes.empty()) return {};
  const auto fresh = changes;
  NC_TRY(store_.change_records(kTable, std::move(changes)));
  for (const auto& change : fresh) written_[change.key] = *change.value;
  return {};
}

}  // namespace nc::daemon

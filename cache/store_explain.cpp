// Misses: why, and the journal of them.
#include <boost/json.hpp>

#include "cache/store_impl.hpp"

namespace nc {
namespace {

namespace json = boost::json;

std::string journal_line(const Request& request, const Miss& miss, Millis now) {
  json::object line;
  line["time_ms"] = now;
  line["key"] = request.key.hex();
  line["namespace"] = request.name_space;
  line["kind"] = request.kind;
  line["label"] = request.label;
  line["program"] = request.program;
  line["compiler"] = request.compiler;
  line["model"] = request.model;
  line["cause"] = miss.cause;
  line["nearest"] = nullptr;
  if (miss.nearest) {
    json::object nearest;
    nearest["key"] = miss.nearest->key.hex();
    nearest["created_ms"] = miss.nearest->created_ms;
    nearest["host"] = miss.nearest->host;
    json::array differs;
    for (const auto& row : miss.nearest->differs) {
      differs.push_back(json::array{row.name, row.wanted, row.have});
    }
    nearest["differs"] = std::move(differs);
    line["nearest"] = std::move(nearest);
  }
  return json::serialize(line);
}

}  // namespace

Result<Miss> StoreImpl::explain_miss(const Request& request) {
  const auto parts_of = [&](const ActionKey& key) -> std::optional<MissExplainer::Known> {
    const auto sealed = index_->get(Family::kManifests, key.view());
    if (!sealed.ok() || !sealed->has_value()) return std::nullopt;
    auto manifest = parse_sealed(**sealed);
    if (!manifest) return std::nullopt;
    return MissExplainer::Known{std::move(manifest->parts), manifest->created_ms,
                                manifest->producer.host};
  };
  Miss miss;
  bool evicted = false;
  {
    MutexLock lock(explain_mutex_);
    miss = explainer_.explain(request, parts_of);
    evicted = explainer_.removal(request.key) == RemovalCause::kEvicted;
  }
  if (evicted) book_.add(request.name_space, Counter::kMissedAfterEviction);
  if (read_only_) return miss;
  KvBatch batch;
  {
    MutexLock lock(mutex_);
    batch.put(Family::kMisses, ring_key(kMissRing, miss_next_++),
              journal_line(request, miss, clock_.wall_ms()));
    while (miss_next_ - miss_first_ > kMaxMisses) {
      batch.erase(Family::kMisses, ring_key(kMissRing, miss_first_++));
    }
  }
  // The answer does not depend on the journal.
  ignore_error(noted(index_->commit(batch, false), request.name_space), "noted in the health");
  return miss;
}

Result<std::vector<std::string>> StoreImpl::misses(std::size_t limit) {
  std::uint64_t next = 0;
  std::uint64_t first = 0;
  {
    MutexLock lock(mutex_);
    next = miss_next_;
    first = miss_first_;
  }
  std::vector<std::string> out;
  while (next > first && out.size() < limit) {
    NC_ASSIGN(auto line, index_->get(Family::kMisses, ring_key(kMissRing, --next)));
    if (line) out.push_back(*std::move(line));
  }
  return out;
}

}  // namespace nc

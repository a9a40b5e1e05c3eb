// Recorded actions and the queue as JSON.
#include <fmt/format.h>

#include "client/codec.hpp"
#include "client/protocol.hpp"

namespace nc::client::codec {
namespace {

namespace bj = json::bj;

QueueCounts counts_of(const bj::object& o) {
  QueueCounts counts;
  if (const bj::object* given = json::object(o, "counts")) {
    counts.queued = json::natural(*given, "queued");
    counts.building = json::natural(*given, "building");
    counts.built = json::natural(*given, "built");
    counts.failed = json::natural(*given, "failed");
  }
  return counts;
}

template <class F>
void each_object(const bj::object& o, std::string_view name, F use) {
  if (const bj::array* list = json::array(o, name)) {
    for (const bj::value& item : *list) {
      if (const bj::object* object = item.if_object()) use(*object);
    }
  }
}

}  // namespace

std::string record_body(const RecordedAction& r) {
  bj::object o;
  o["v"] = 1;
  o["key"] = r.key.hex();
  o["namespace"] = r.name_space;
  o["kind"] = r.kind;
  o["label"] = r.label;
  o["program"] = r.program;
  o["model"] = r.model;
  o["compiler"] = r.compiler;
  bj::array parts;
  for (const auto& [name, value] : r.parts) parts.push_back(bj::array{name, value});
  o["parts"] = std::move(parts);
  bj::array argv;
  for (const std::string& one : r.argv) argv.emplace_back(one);
  o["argv"] = std::move(argv);
  bj::object env;
  for (const auto& [name, value] : r.env) env[name] = value;
  o["env"] = std::move(env);
  bj::array inputs;
  for (const OutputInfo& input : r.inputs) {
    inputs.push_back(bj::object{{"name", input.name},
                                {"digest", input.digest.hex()},
                                {"size", input.size},
                                {"mode", input.mode}});
  }
  o["inputs"] = std::move(inputs);
  return json::serialize(o);
}

Result<RecordedAction> recorded_action(const bj::object& o) {
  const auto malformed = [](std::string_view what) {
    return Error{Code::kInvalid, fmt::format("the recorded action cannot be used: {}", what),
                 "see `neuroncache doctor`; the two ends may be of different versions"};
  };
  if (json::integer(o, "v") != 1) return malformed("it is of another version");
  // What it shares with a manifest.
  NC_ASSIGN(EntryManifest common, manifest(o));
  RecordedAction r;
  r.key = common.key;
  r.name_space = std::move(common.name_space);
  r.kind = std::move(common.kind);
  r.label = std::move(common.label);
  r.program = json::text(o, "program");
  r.model = std::move(common.model);
  r.compiler = std::move(common.compiler);
  r.parts = std::move(common.parts);
  if (const bj::array* argv = json::array(o, "argv")) {
    for (const bj::value& one : *argv) {
      if (!one.is_string()) return malformed("an argument is not a string");
      r.argv.emplace_back(one.get_string());
    }
  }
  if (const bj::object* env = json::object(o, "env")) {
    for (const auto& item : *env) {
      if (!item.value().is_string()) return malformed("a variable is not a string");
      r.env.emplace(std::string(item.key()), std::string(item.value().get_string()));
    }
  }
  if (const bj::array* inputs = json::array(o, "inputs")) {
    for (const bj::value& item : *inputs) {
      const bj::object* input = item.if_object();
      const auto digest =
          input == nullptr ? std::nullopt : Digest::from_hex(json::text(*input, "digest"));
      if (!digest) return malformed("an input without a digest");
      r.inputs.push_back({json::text(*input, "name"), *digest, json::natural(*input, "size"),
                          static_cast<std::uint32_t>(json::integer(*input, "mode", 0644))});
    }
  }
  return r;
}

std::vector<RecordingInfo> recordings(const bj::object& o) {
  std::vector<RecordingInfo> out;
  each_object(o, "recordings", [&out](const bj::object& r) {
    out.push_back({json::text(r, "name"), json::natural(r, "actions"), json::natural(r, "bytes"),
                   json::integer(r, "first_ms"), json::integer(r, "last_ms")});
  });
  return out;
}

RecordedPage recorded_page(const bj::object& o) {
  RecordedPage page;
  each_object(o, "actions", [&page](const bj::object& a) {
    page.actions.push_back({json::text(a, "key"), json::text(a, "label"), json::text(a, "compiler"),
                            json::natural(a, "bytes"), json::natural(a, "build_ms"),
                            json::integer(a, "recorded_ms"), json::boolean(a, "built"),
                            json::text(a, "lost")});
  });
  if (std::string next = json::text(o, "next"); !next.empty()) page.next = std::move(next);
  return page;
}

Enqueued enqueued(const bj::object& o) {
  return {json::natural(o, "queued"), json::natural(o, "already"), json::natural(o, "built"),
          json::natural(o, "lost")};
}

QueuePage queue_page(const bj::object& o) {
  QueuePage page;
  page.counts = counts_of(o);
  each_object(o, "jobs", [&page](const bj::object& j) {
    page.jobs.push_back({json::text(j, "key"), json::text(j, "state"), json::text(j, "label"),
                         json::text(j, "compiler"), json::natural(j, "number"),
                         json::natural(j, "attempts"), json::text(j, "class"),
                         json::text(j, "message"), json::integer(j, "queued_ms"),
                         json::integer(j, "ended_ms")});
  });
  if (const auto next = json::number(o, "next")) page.next = static_cast<std::uint64_t>(*next);
  return page;
}

ClusterQueuePage cluster_queue_page(const bj::object& o) {
  ClusterQueuePage page;
  page.tier = json::text(o, "tier");
  const QueueCounts counts = counts_of(o);
  page.queued = counts.queued;
  page.building = counts.building;
  page.failed = counts.failed;
  each_object(o, "jobs", [&page](const bj::object& j) {
    page.jobs.push_back({json::text(j, "key"), json::text(j, "state"), json::text(j, "label"),
                         json::text(j, "compiler"), json::natural(j, "attempts"),
                         json::text(j, "host"), json::text(j, "class"), json::text(j, "message"),
                         json::text(j, "log"), json::text(j, "problem")});
  });
  if (std::string next = json::text(o, "next"); !next.empty()) page.next = std::move(next);
  return page;
}

Result<Taken> taken(const bj::object& o) {
  Taken taken;
  taken.pending = json::natural(o, "pending");
  taken.problem = json::text(o, "problem");
  taken.counts = counts_of(o);
  if (json::text(o, "state") != protocol::state::kJob) return taken;
  const bj::object* record = json::object(o, "record");
  const bj::object* lease = json::object(o, "lease");
  if (record == nullptr || lease == nullptr || json::text(*lease, "id").empty()) {
    return Error{Code::kInvalid, "the daemon's answer cannot be used: a job without its lease",
                 "see `neuroncache doctor`; the two ends may be of different versions"};
  }
  TakenJob job;
  NC_ASSIGN(job.record, recorded_action(*record));
  job.lease = {job.record.key, json::text(*lease, "id"), json::natural(*lease, "fence"),
               json::integer(*lease, "ttl_ms"), json::integer(*lease, "heartbeat_ms")};
  taken.job = std::move(job);
  return taken;
}

BuildsInfo builds(const bj::object& o) {
  BuildsInfo info;
  info.budget_bytes = json::natural(o, "budget_bytes");
  info.reserved_bytes = json::natural(o, "reserved_bytes");
  info.cores = json::natural(o, "cores");
  info.cores_used = json::natural(o, "cores_used");
  const auto build = [](const bj::object& b, std::string_view since) {
    return BuildsInfo::Build{json::text(b, "lease"),
                             json::text(b, "key"),
                             json::text(b, "label"),
                             json::natural(b, "bytes"),
                             json::natural(b, "taken_bytes"),
                             json::natural(b, "cores"),
                             json::number(b, since).value_or(0)};
  };
  each_object(o, "running",
              [&](const bj::object& b) { info.running.push_back(build(b, "elapsed_s")); });
  each_object(o, "waiting",
              [&](const bj::object& b) { info.waiting.push_back(build(b, "waited_s")); });
  return info;
}

}  // namespace nc::client::codec

#include <algorithm>

#include <fmt/format.h>

#include "client/codec.hpp"
#include "client/protocol.hpp"

namespace nc::client::codec {
namespace {

namespace bj = json::bj;

Error malformed(std::string_view what) {
  return Error{Code::kInvalid, fmt::format("the daemon's answer cannot be used: {}", what),
               "see `neuroncache doctor`; the two ends may be of different versions"};
}

KeyParts parts_of(const bj::object& o) {
  KeyParts parts;
  if (const bj::array* list = json::array(o, "parts")) {
    for (const bj::value& item : *list) {
      const bj::array* pair = item.if_array();
      if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
          !(*pair)[1].is_string())
        continue;
      parts.emplace_back(std::string((*pair)[0].get_string()),
                         std::string((*pair)[1].get_string()));
    }
  }
  return parts;
}

ProducerInfo producer_of(const bj::object& o, std::string_view name) {
  ProducerInfo p;
  if (const bj::object* producer = json::object(o, name)) {
    p.host = json::text(*producer, "host");
    p.pid = json::integer(*producer, "pid");
    p.program = json::text(*producer, "program");
    p.version = json::text(*producer, "version");
  }
  return p;
}

MissReason miss_of(const bj::object& o) {
  MissReason reason;
  reason.cause = json::text(o, "cause");
  if (const bj::object* near = json::object(o, "nearest")) {
    NearestEntry nearest;
    nearest.key = json::text(*near, "key");
    nearest.created_ms = json::integer(*near, "created_ms");
    nearest.host = json::text(*near, "host");
    if (const bj::array* list = json::array(*near, "differs")) {
      for (const bj::value& item : *list) {
        const bj::array* triple = item.if_array();
        if (triple == nullptr || triple->size() != 3) continue;
        const auto field = [&](std::size_t i) {
          return (*triple)[i].is_string() ? std::string((*triple)[i].get_string()) : std::string();
        };
        nearest.differs.push_back({field(0), field(1), field(2)});
      }
    }
    reason.nearest = std::move(nearest);
  }
  return reason;
}

Numbers numbers_of(const bj::object* o) {
  Numbers out;
  if (o == nullptr) return out;
  for (const auto& item : *o) {
    if (const auto number = json::as_number(item.value()))
      out.emplace(std::string(item.key()), *number);
  }
  return out;
}

// {"graph": {"entries": 1}} and the short form {"graph": 1} (a count of entries).
std::map<std::string, Numbers> groups_of(const bj::object* o) {
  std::map<std::string, Numbers> out;
  if (o == nullptr) return out;
  for (const auto& item : *o) {
    if (const bj::object* group = item.value().if_object()) {
      out.emplace(std::string(item.key()), numbers_of(group));
    } else if (const auto number = json::as_number(item.value())) {
      out.emplace(std::string(item.key()), Numbers{{"entries", *number}});
    }
  }
  return out;
}

template <class T, class F>
std::vector<T> list_of(const bj::object& o, std::string_view name, F convert) {
  std::vector<T> out;
  if (const bj::array* list = json::array(o, name)) {
    out.reserve(list->size());
    for (const bj::value& item : *list) {
      if (const bj::object* object = item.if_object()) out.push_back(convert(*object));
    }
  }
  return out;
}

std::optional<std::string> cursor_of(const bj::object& o) {
  std::string next = json::text(o, "next");
  if (next.empty()) return std::nullopt;
  return next;
}

Result<std::vector<BlobPlace>> blobs_of(const EntryManifest& manifest, const bj::object& o) {
  const bj::object* blobs = json::object(o, "blobs");
  std::vector<BlobPlace> out;
  out.reserve(manifest.outputs.size());
  for (const OutputInfo& output : manifest.outputs) {
    BlobPlace place;
    place.output = output;
    if (const bj::object* blob = blobs == nullptr ? nullptr : json::object(*blobs, output.name)) {
      place.path = json::text(*blob, "path");
      if (const bj::value* text = blob->if_contains("inline");
          text != nullptr && text->is_string()) {
        place.inline_bytes =
            from_base64(std::string_view(text->get_string().data(), text->get_string().size()));
        if (!place.inline_bytes)
          return malformed(fmt::format("output {} is not base64", output.name));
      }
    }
    out.push_back(std::move(place));
  }
  return out;
}

}  // namespace

Hello hello(const bj::object& o) {
  Hello h;
  if (const bj::object* range = json::object(o, "protocol")) {
    h.min_protocol = static_cast<int>(json::integer(*range, "min"));
    h.max_protocol = static_cast<int>(json::integer(*range, "max"));
  }
  h.version = json::text(o, "version");
  if (const bj::array* list = json::array(o, "capabilities")) {
    for (const bj::value& item : *list) {
      if (item.is_string()) h.capabilities.emplace_back(item.get_string());
    }
  }
  h.pid = json::integer(o, "pid");
  h.started_ms = json::integer(o, "started_ms");
  if (const bj::object* store = json::object(o, "store")) {
    h.store_id = json::text(*store, "id");
    h.store_path = json::text(*store, "path");
    h.read_only = json::boolean(*store, "read_only");
  }
  return h;
}

Result<EntryManifest> manifest(const bj::object& o) {
  EntryManifest m;
  const auto key = ActionKey::from_hex(json::text(o, "key"));
  if (!key) return malformed("a manifest without a key");
  m.key = *key;
  m.kind = json::text(o, "kind");
  m.name_space = json::text(o, "namespace");
  m.label = json::text(o, "label");
  m.model = json::text(o, "model");
  m.compiler = json::text(o, "compiler");
  m.created_ms = json::integer(o, "created_ms");
  m.build_ms = json::natural(o, "build_ms");
  m.peak_rss_bytes = json::natural(o, "peak_rss_bytes");
  m.producer = producer_of(o, "producer");
  m.parts = parts_of(o);
  if (const bj::array* list = json::array(o, "outputs")) {
    for (const bj::value& item : *list) {
      const bj::object* output = item.if_object();
      const auto digest =
          output == nullptr ? std::nullopt : Digest::from_hex(json::text(*output, "digest"));
      if (!digest) return malformed("an output without a digest");
      m.outputs.push_back({json::text(*output, "name"), *digest, json::natural(*output, "size"),
                           static_cast<std::uint32_t>(json::integer(*output, "mode", 0644))});
    }
  }
  if (const bj::object* meta = json::object(o, "meta")) {
    for (const auto& item : *meta) {
      if (item.value().is_string())
        m.meta.emplace(std::string(item.key()), std::string(item.value().get_string()));
    }
  }
  return m;
}

FailureInfo failure(const bj::object& o) {
  return {json::text(o, "class"),         json::text(o, "message"),
          json::text(o, "log"),           json::integer(o, "exit_code"),
          json::integer(o, "created_ms"), json::integer(o, "expires_ms")};
}

Result<Acquired> acquired(const bj::object& o, const ActionKey& key) {
  Acquired a;
  const std::string state = json::text(o, "state");
  if (const bj::object* miss = json::object(o, "miss")) a.miss = miss_of(*miss);
  if (state == protocol::state::kHit) {
    a.state = Acquired::State::kHit;
    a.waited = json::boolean(o, "waited");
    const bj::object* m = json::object(o, "manifest");
    if (m == nullptr) return malformed("a hit without a manifest");
    NC_ASSIGN(a.manifest, manifest(*m));
    if (a.manifest.key != key) return malformed("a hit for another key");
    NC_ASSIGN(a.blobs, blobs_of(a.manifest, o));
  } else if (state == protocol::state::kLease) {
    a.state = Acquired::State::kLease;
    const bj::object* lease = json::object(o, "lease");
    if (lease == nullptr || json::text(*lease, "id").empty())
      return malformed("a lease without an id");
    a.lease = {key, json::text(*lease, "id"), json::natural(*lease, "fence"),
               json::integer(*lease, "ttl_ms"), json::integer(*lease, "heartbeat_ms")};
  } else if (state == protocol::state::kBuilding) {
    a.state = Acquired::State::kBuilding;
    a.building.ticket = json::text(o, "ticket");
    a.building.builder = producer_of(o, "builder");
    a.building.elapsed_s = json::number(o, "elapsed_s").value_or(0);
    a.building.usual_s = json::number(o, "usual_s");
    a.building.waiters = json::integer(o, "waiters");
    a.building.progress = json::text(o, "progress");
  } else if (state == protocol::state::kFailed) {
    a.state = Acquired::State::kFailed;
    if (const bj::object* f = json::object(o, "failure")) a.failure = failure(*f);
  } else if (state == protocol::state::kMiss) {
    a.state = Acquired::State::kMiss;
  } else {
    return malformed(fmt::format("unknown state '{}'", state));
  }
  return a;
}

Result<Admission> admission(const bj::object& o) {
  Admission a;
  const std::string state = json::text(o, "state");
  a.expected_bytes = json::natural(o, "expected_bytes");
  a.learned = json::text(o, "source") == "learned";
  a.waited_s = json::number(o, "waited_s").value_or(0);
  a.reserved_bytes = json::natural(o, "reserved_bytes");
  if (state == protocol::state::kAdmitted) {
    a.state = Admission::State::kAdmitted;
    a.cores = static_cast<std::uint32_t>(json::natural(o, "cores"));
    a.alone = json::boolean(o, "alone");
    a.build_timeout_ms = json::integer(o, "build_timeout_ms");
  } else if (state == protocol::state::kWaiting) {
    a.ahead = json::integer(o, "ahead");
    a.running = json::integer(o, "running");
    a.budget_bytes = json::natural(o, "budget_bytes");
  } else {
    return malformed(fmt::format("unknown state '{}'", state));
  }
  return a;
}

Stats stats(const bj::object& o) {
  Stats s;
  s.counters = numbers_of(json::object(o, "counters"));
  s.bypass_reasons = numbers_of(json::object(o, "bypass_reasons"));
  s.kinds = groups_of(json::object(o, "kinds"));
  s.namespaces = groups_of(json::object(o, "namespaces"));
  s.limits = numbers_of(json::object(o, "limits"));
  s.builds = numbers_of(json::object(o, "builds"));
  if (const bj::object* health = json::object(o, "health")) {
    s.health.numbers = numbers_of(health);
    if (const std::string problem = json::text(*health, "problem"); !problem.empty())
      s.health.problems.push_back(problem);
    if (const bj::array* list = json::array(*health, "problems")) {
      for (const bj::value& item : *list) {
        if (item.is_string()) s.health.problems.emplace_back(item.get_string());
      }
    }
    s.health.ok = s.health.problems.empty() && json::boolean(*health, "writable", true) &&
                  json::boolean(*health, "ok", true);
  }
  return s;
}

EntrySummary entry(const bj::object& o) {
  EntrySummary e;
  e.key = json::text(o, "key");
  e.kind = json::text(o, "kind");
  e.name_space = json::text(o, "namespace");
  e.label = json::text(o, "label");
  e.model = json::text(o, "model");
  e.compiler = json::text(o, "compiler");
  e.bytes = json::natural(o, "bytes");
  e.build_ms = json::natural(o, "build_ms");
  e.created_ms = json::integer(o, "created_ms");
  e.used_ms = json::integer(o, "used_ms");
  e.uses = json::natural(o, "uses");
  e.pinned = json::boolean(o, "pinned");
  e.in_use = json::boolean(o, "in_use");
  e.failed = json::boolean(o, "failed");
  return e;
}

EntryPage entry_page(const bj::object& o) {
  return {list_of<EntrySummary>(o, "entries", entry), cursor_of(o)};
}

Result<EntryDetails> entry_details(const bj::object& o) {
  EntryDetails d;
  const bj::object* inner = json::object(o, "entry");
  d.summary = entry(inner != nullptr ? *inner : o);
  if (const bj::object* m = json::object(o, "manifest")) {
    NC_ASSIGN(d.manifest, manifest(*m));
  }
  if (const bj::object* f = json::object(o, "failure")) {
    d.failure = failure(*f);
    d.failure_parts = parts_of(*f);
  }
  return d;
}

PruneAnswer prune_answer(const bj::object& o) {
  PruneAnswer a;
  a.entries = list_of<EntrySummary>(o, "entries", entry);
  a.count = json::natural(o, "count");
  a.bytes = json::natural(o, "bytes");
  a.swept_bytes = json::natural(o, "swept_bytes");
  a.rebuild_seconds = json::number(o, "rebuild_seconds").value_or(0);
  a.kept = list_of<PruneAnswer::Kept>(o, "kept", [](const bj::object& k) {
    return PruneAnswer::Kept{json::text(k, "key"), json::text(k, "why")};
  });
  return a;
}

VerifyPage verify_page(const bj::object& o) {
  VerifyPage p;
  p.checked = json::natural(o, "checked");
  p.bytes = json::natural(o, "bytes");
  p.orphans = json::natural(o, "orphans");
  p.next = cursor_of(o);
  p.bad = list_of<VerifyPage::Bad>(o, "bad", [](const bj::object& b) {
    std::string what = json::text(b, "key");
    if (what.empty()) what = json::text(b, "digest");
    return VerifyPage::Bad{std::move(what), json::text(b, "problem"), json::text(b, "action")};
  });
  return p;
}

std::vector<MissRecord> misses(const bj::object& o) {
  return list_of<MissRecord>(o, "misses", [](const bj::object& m) {
    MissRecord r;
    r.time_ms = json::integer(m, "time_ms");
    r.key = json::text(m, "key");
    r.name_space = json::text(m, "namespace");
    r.kind = json::text(m, "kind");
    r.label = json::text(m, "label");
    r.program = json::text(m, "program");
    r.compiler = json::text(m, "compiler");
    r.model = json::text(m, "model");
    r.reason = miss_of(m);
    return r;
  });
}

std::vector<LeaseInfo> leases(const bj::object& o) {
  return list_of<LeaseInfo>(o, "leases", [](const bj::object& l) {
    LeaseInfo info;
    info.id = json::text(l, "id");
    info.key = json::text(l, "key");
    info.kind = json::text(l, "kind");
    info.label = json::text(l, "label");
    info.progress = json::text(l, "progress");
    info.builder = producer_of(l, "builder");
    info.elapsed_s = json::number(l, "elapsed_s").value_or(0);
    info.usual_s = json::number(l, "usual_s");
    info.waiters = json::integer(l, "waiters");
    return info;
  });
}

std::vector<ConfigValue> config(const bj::object& o) {
  return list_of<ConfigValue>(o, "settings", [](const bj::object& c) {
    return ConfigValue{json::text(c, "name"),   json::text(c, "value"),   json::text(c, "origin"),
                       json::text(c, "detail"), json::text(c, "default"), json::boolean(c, "live")};
  });
}

Error error(int status, std::string_view body, std::string_view target) {
  if (auto parsed = json::parse_object(body, "the error"); parsed.ok()) {
    if (const bj::object* e = json::object(*parsed, "error")) {
      const auto name = json::text(*e, "code");
      const auto code = name == "unsupported_protocol"
                            ? Code::kUnsupported
                            : code_from_name(name).value_or(Code::kInternal);
      std::string message = json::text(*e, "message");
      if (message.empty()) message = fmt::format("the daemon answered {} to {}", status, target);
      std::string action = json::text(*e, "action");
      if (action.empty()) action = "see the daemon's log";
      return {code, std::move(message), std::move(action)};
    }
  }
  const Code code = status == 404   ? Code::kNotFound
                    : status == 403 ? Code::kDenied
                                    : Code::kInternal;
  return {code, fmt::format("the daemon answered {} to {} without a reason", status, target),
          "see the daemon's log; is another program listening there?"};
}

}  // namespace nc::client::codec

#include <fmt/format.h>

#include "client/codec.hpp"
#include "client/protocol.hpp"

namespace nc::client::codec {
namespace {

namespace bj = json::bj;

bj::array parts_array(const KeyParts& parts) {
  bj::array out;
  out.reserve(parts.size());
  for (const auto& [name, value] : parts) out.push_back(bj::array{name, value});
  return out;
}

void put_unless_empty(bj::object& o, std::string_view name, const std::string& value) {
  if (!value.empty()) o[bj::string_view(name.data(), name.size())] = value;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string acquire_body(const AcquireRequest& request) {
  bj::object o;
  o["intent"] = bj::string_view(request.lookup_only ? protocol::intent::kLookup.data()
                                                    : protocol::intent::kBuild.data());
  o["namespace"] = request.name_space;
  put_unless_empty(o, "kind", request.kind);
  put_unless_empty(o, "label", request.label);
  put_unless_empty(o, "program", request.program);
  put_unless_empty(o, "compiler", request.compiler);
  put_unless_empty(o, "model", request.model);
  put_unless_empty(o, "ticket", request.ticket);
  put_unless_empty(o, "recording", request.recording);
  if (request.wait_ms > 0) o["wait_ms"] = request.wait_ms;
  if (request.retry) o["retry"] = true;
  if (!request.parts.empty()) o["parts"] = parts_array(request.parts);
  return json::serialize(o);
}

std::string heartbeat_body(const Lease& lease, const BuildStatus& status) {
  bj::object o;
  o["key"] = lease.key.hex();
  o["fence"] = lease.fence;
  o["progress"] = status.progress;
  if (status.reserved_bytes > 0) {
    o["reserved_bytes"] = status.reserved_bytes;
    o["cores"] = status.cores;
  }
  if (status.detached) o["detached"] = true;
  return json::serialize(o);
}

std::string admission_body(const Lease& lease, const AdmissionRequest& request) {
  bj::object o;
  o["lease"] = lease.id;
  o["key"] = lease.key.hex();
  o["fence"] = lease.fence;
  put_unless_empty(o, "compiler", request.compiler);
  o["input_bytes"] = request.input_bytes;
  o["cores"] = request.cores;
  if (request.minimum_bytes > 0) o["minimum_bytes"] = request.minimum_bytes;
  if (request.alone) o["alone"] = true;
  if (request.wait_ms > 0) o["wait_ms"] = request.wait_ms;
  return json::serialize(o);
}

std::string fail_body(const Lease& lease, const FailReport& report) {
  bj::object o;
  o["key"] = lease.key.hex();
  o["fence"] = lease.fence;
  o["class"] = report.failure_class;
  o["message"] = report.message;
  o["log"] = report.log;
  o["exit_code"] = report.exit_code;
  if (report.peak_rss_bytes > 0) o["peak_rss_bytes"] = report.peak_rss_bytes;
  if (report.unstored) o["unstored"] = true;
  return json::serialize(o);
}

std::string bypass_body(std::string_view name_space, std::string_view reason,
                        std::string_view ticket, std::uint64_t count) {
  bj::object o;
  o["namespace"] = bj::string_view(name_space.data(), name_space.size());
  o["reason"] = bj::string_view(reason.data(), reason.size());
  o["ticket"] = ticket.empty() ? bj::value(nullptr)
                               : bj::value(bj::string_view(ticket.data(), ticket.size()));
  o["count"] = count;
  return json::serialize(o);
}

std::string prune_body(const PruneRequest& request) {
  bj::object o;
  const EntryFilter& f = request.filter;
  if (f.name_space) o["namespace"] = *f.name_space;
  if (f.compiler) o["compiler"] = *f.compiler;
  if (f.model) o["model"] = *f.model;
  if (f.kind) o["kind"] = *f.kind;
  if (f.older_than_s) o["older_than_s"] = *f.older_than_s;
  if (f.unused_since_s) o["unused_since_s"] = *f.unused_since_s;
  if (f.failed) o["failed"] = *f.failed;
  if (request.max_bytes) o["max_bytes"] = *request.max_bytes;
  if (request.max_entries) o["max_entries"] = *request.max_entries;
  o["dry_run"] = request.dry_run;
  return json::serialize(o);
}

std::string filter_query(const EntryFilter& filter) {
  std::string out;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!out.empty()) out += '&';
    out += fmt::format("{}={}", name, escape(value));
  };
  if (filter.name_space) add("namespace", *filter.name_space);
  if (filter.compiler) add("compiler", *filter.compiler);
  if (filter.model) add("model", *filter.model);
  if (filter.kind) add("kind", *filter.kind);
  if (filter.older_than_s) add("older_than_s", fmt::format("{}", *filter.older_than_s));
  if (filter.unused_since_s) add("unused_since_s", fmt::format("{}", *filter.unused_since_s));
  if (filter.failed) add("failed", *filter.failed ? "1" : "0");
  return out;
}

std::string manifest_text(const EntryManifest& m) {
  bj::object o;
  o["v"] = 1;
  o["key"] = m.key.hex();
  o["kind"] = m.kind;
  o["namespace"] = m.name_space;
  o["label"] = m.label;
  o["model"] = m.model;
  o["compiler"] = m.compiler;
  o["created_ms"] = m.created_ms;
  o["build_ms"] = m.build_ms;
  o["peak_rss_bytes"] = m.peak_rss_bytes;
  o["producer"] = bj::object{{"host", m.producer.host},
                             {"pid", m.producer.pid},
                             {"program", m.producer.program},
                             {"version", m.producer.version}};
  o["parts"] = parts_array(m.parts);
  bj::array outputs;
  for (const OutputInfo& output : m.outputs) {
    outputs.push_back(bj::object{{"name", output.name},
                                 {"digest", output.digest.hex()},
                                 {"size", output.size},
                                 {"mode", output.mode}});
  }
  o["outputs"] = std::move(outputs);
  bj::object meta;
  for (const auto& [name, value] : m.meta) meta[name] = value;
  o["meta"] = std::move(meta);
  o["signature"] = nullptr;
  return json::serialize(o);
}

}  // namespace nc::client::codec

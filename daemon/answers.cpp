#include "daemon/answers.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace nc::daemon {

namespace js = boost::json;

void append_json(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (u < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", u);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string hit_tail(const Hit& hit) {
  const std::string& manifest = hit.json;
  std::string out;
  std::size_t size = manifest.size() + 128;
  for (const BlobRef& blob : hit.blobs) {
    size += 512 + blob.path.size() + (blob.inline_bytes ? blob.inline_bytes->size() * 4 / 3 : 0);
  }
  out.reserve(size);
  out += R"(,"manifest":)";
  out += manifest;
  out += R"(,"blobs":{)";
  bool first = true;
  for (const BlobRef& blob : hit.blobs) {
    if (!first) out.push_back(',');
    first = false;
    append_json(out, blob.output.name);
    out += R"(:{"digest":")";
    out += blob.output.digest.hex();
    fmt::format_to(std::back_inserter(out), R"(","size":{},"path":)", blob.output.size);
    if (blob.path.empty()) {
      out += "null";
    } else {
      append_json(out, blob.path);
    }
    out += R"(,"inline":)";
    if (blob.inline_bytes) {
      out.push_back('"');
      out += to_base64(as_bytes(*blob.inline_bytes));
      out.push_back('"');
    } else {
      out += "null";
    }
    out.push_back('}');
  }
  out += "}}";
  return out;
}

HttpResponse hit_answer(std::string_view tail, bool waited) {
  const std::string_view head =
      waited ? R"({"state":"hit","waited":true)" : R"({"state":"hit","waited":false)";
  std::string text;
  text.reserve(head.size() + tail.size());
  text += head;
  text += tail;
  return HttpResponse::json(std::move(text));
}

js::object miss_json(const Miss& miss) {
  js::object object;
  object["cause"] = miss.cause;
  if (!miss.nearest) {
    object["nearest"] = nullptr;
    return object;
  }
  js::array differs;
  for (const auto& one : miss.nearest->differs) {
    differs.push_back(js::array{one.name, one.wanted, one.have});
  }
  object["nearest"] = js::object{{"key", miss.nearest->key.hex()},
                                 {"created_ms", miss.nearest->created_ms},
                                 {"host", miss.nearest->host},
                                 {"differs", std::move(differs)}};
  return object;
}

js::object builder_json(const Lease& lease) {
  return {{"pid", lease.builder.process.pid},
          {"host", lease.builder.host},
          {"program", lease.request.program}};
}

js::object lease_json(const Lease& lease, Millis ttl_ms) {
  // A heartbeat this often leaves room for two lost ones.
  constexpr Millis kHeartbeatsPerTtl = 5;
  return {{"id", lease.id},
          {"fence", lease.fence},
          {"ttl_ms", ttl_ms},
          {"heartbeat_ms", std::max<Millis>(200, ttl_ms / kHeartbeatsPerTtl)}};
}

js::object failure_json(const Failure& failure) {
  return {{"class", failure_class_name(failure.failure_class)},
          {"message", failure.message},
          {"log", failure.log},
          {"exit_code", failure.exit_code},
          {"created_ms", failure.created_ms},
          {"expires_ms", failure.expires_ms}};
}

js::object entry_json(const EntryInfo& entry) {
  return {
      {"key", entry.key.hex()},   {"kind", entry.kind},         {"namespace", entry.name_space},
      {"label", entry.label},     {"model", entry.model},       {"compiler", entry.compiler},
      {"bytes", entry.bytes},     {"build_ms", entry.build_ms}, {"created_ms", entry.created_ms},
      {"used_ms", entry.used_ms}, {"uses", entry.uses},         {"pinned", entry.pinned},
      {"in_use", entry.in_use},   {"failed", entry.failed}};
}

js::value optional_number(const std::optional<double>& number) {
  return number ? js::value(*number) : js::value(nullptr);
}

HttpResponse answer(const js::object& object, int status) {
  return HttpResponse::json(js::serialize(object), status);
}

HttpResponse enqueued_answer(const Enqueued& sums) {
  return answer({{"queued", sums.queued},
                 {"already", sums.already},
                 {"built", sums.built},
                 {"lost", sums.lost}});
}

}  // namespace nc::daemon

#include "cache/manifest.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "cache/json_fields.hpp"
#include "cache/output_list.hpp"

namespace nc {
namespace {

namespace json = boost::json;

constexpr std::string_view kWhat = "manifest";
constexpr std::int64_t kMaxOutputSize = 1LL << 50;  // 256 of them add up without overflow
constexpr std::int64_t kMaxMode = 0777;
constexpr std::size_t kMaxSignature = 4096;

Status read_producer(const json::value& value, Producer& producer) {
  if (!value.is_object()) {
    return Error{Code::kInvalid, "manifest: \"producer\" is not an object", ""};
  }
  JsonFields fields(value.get_object(), "manifest: producer");
  fields.text("host", producer.host).integer("pid", producer.pid, 0, JsonFields::kMaxInteger);
  fields.text("program", producer.program).text("version", producer.version);
  return fields.done();
}

// Strings and integers only, so that writing it again gives the same text everywhere.
Result<std::string> read_signature(const json::value& value) {
  if (value.is_null()) return std::string();
  const json::object* object = value.if_object();
  const bool plain = object != nullptr && std::all_of(object->begin(), object->end(), [](auto& m) {
                       return m.value().is_string() || m.value().is_int64();
                     });
  if (!plain) {
    return Error{Code::kInvalid,
                 "manifest: \"signature\" is not an object of strings and integers, or null", ""};
  }
  std::string text = json::serialize(*object);
  if (text.size() > kMaxSignature) {
    return Error{Code::kTooLarge, fmt::format("manifest: signature of {} bytes", text.size()), ""};
  }
  return text;
}

json::value signature_value(const std::string& text) {
  if (text.empty()) return nullptr;
  json::error_code error;
  json::value value = json::parse(text, error);
  return error ? json::value(nullptr) : value;
}

}  // namespace

Result<std::vector<Output>> outputs_from_json(const json::value& value, std::string_view what,
                                              std::string_view field, std::string_view one) {
  const json::array* array = value.if_array();
  if (array == nullptr) {
    return Error{Code::kInvalid, fmt::format("{}: \"{}\" is not an array", what, field), ""};
  }
  if (array->size() > Manifest::kMaxOutputs) {
    return Error{
        Code::kTooLarge,
        fmt::format("{}: {} {}, {} are allowed", what, array->size(), field, Manifest::kMaxOutputs),
        "pack small ones into one"};
  }
  std::vector<Output> outputs;
  outputs.reserve(array->size());
  std::set<std::string_view> names;
  for (const json::value& item : *array) {
    const std::string where = fmt::format("{}: {} {}", what, one, outputs.size());
    if (!item.is_object()) return Error{Code::kInvalid, where + " is not an object", ""};
    Output output;
    JsonFields fields(item.get_object(), where);
    fields.require("name").text("name", output.name, 255, is_output_name);
    fields.require("digest").digest("digest", output.digest);
    fields.require("size").integer("size", output.size, 0, kMaxOutputSize);
    fields.integer("mode", output.mode, 0, kMaxMode);
    NC_TRY(fields.done());
    outputs.push_back(std::move(output));
    if (!names.insert(outputs.back().name).second) {
      return Error{Code::kInvalid,
                   fmt::format("{}: the name \"{}\" is there twice", where, outputs.back().name),
                   ""};
    }
  }
  return outputs;
}

json::array outputs_to_json(const std::vector<Output>& outputs) {
  json::array files;
  files.reserve(outputs.size());
  for (const Output& o : outputs) {
    files.push_back(json::object{
        {"name", o.name}, {"digest", o.digest.hex()}, {"size", o.size}, {"mode", o.mode}});
  }
  return files;
}

Result<Manifest> Manifest::parse(std::string_view text) {
  NC_ASSIGN(const json::object object, parse_json_object(text, kMaxBytes, kWhat));
  Manifest m;
  JsonFields fields(object, std::string(kWhat));
  fields.version(1);
  fields.require("key").digest("key", m.key);
  fields.require("kind").text("kind", m.kind, 32, is_kind_name);
  fields.text("namespace", m.name_space, 64, is_namespace_name);
  fields.text("label", m.label).text("model", m.model).text("compiler", m.compiler);
  fields.integer("created_ms", m.created_ms, 0, JsonFields::kMaxInteger);
  fields.integer("build_ms", m.build_ms, 0, JsonFields::kMaxInteger);
  fields.integer("peak_rss_bytes", m.peak_rss_bytes, 0, JsonFields::kMaxInteger);
  fields.require("parts").parts("parts", m.parts).strings("meta", m.meta);
  fields.require("outputs");
  NC_TRY(fields.done());
  if (const auto* producer = fields.member("producer"))
    NC_TRY(read_producer(*producer, m.producer));
  NC_ASSIGN(m.outputs, outputs_from_json(*fields.member("outputs"), kWhat, "outputs", "output"));
  if (const auto* signature = fields.member("signature")) {
    NC_ASSIGN(m.signature, read_signature(*signature));
  }
  NC_TRY(check_key(m.parts, m.key, kWhat));
  // Defaults that were left out make the stored form a little longer; it must be readable again.
  constexpr std::size_t kDefaultsRoom = 16 << 10;
  if (text.size() > kMaxBytes - kDefaultsRoom && m.to_json().size() > kMaxBytes) {
    return Error{Code::kTooLarge,
                 fmt::format("manifest: over {} in its canonical form", format_size(kMaxBytes)),
                 ""};
  }
  return m;
}

std::string Manifest::to_json() const {
  json::object extra;
  for (const auto& [name, value] : meta) extra.emplace(name, value);
  json::object object;
  object["v"] = 1;
  object["key"] = key.hex();
  object["kind"] = kind;
  object["namespace"] = name_space;
  object["label"] = label;
  object["model"] = model;
  object["compiler"] = compiler;
  object["created_ms"] = created_ms;
  object["build_ms"] = build_ms;
  object["peak_rss_bytes"] = peak_rss_bytes;
  object["producer"] = json::object{{"host", producer.host},
                                    {"pid", producer.pid},
                                    {"program", producer.program},
                                    {"version", producer.version}};
  object["parts"] = parts_to_json(parts);
  object["outputs"] = outputs_to_json(outputs);
  object["meta"] = std::move(extra);
  object["signature"] = signature_value(signature);
  return json::serialize(object);
}

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const Output& o : outputs) sum += o.size;
  return sum;
}

}  // namespace nc

#include "cache/trust/envelope.hpp"

#include <fmt/format.h>

#include "cache/json_fields.hpp"

namespace nc::trust {
namespace {

namespace json = boost::json;

constexpr std::string_view kTag{"neuroncache-manifest-signature-v1\0", 34};
constexpr std::string_view kWhat = "signature";
constexpr std::size_t kMaxJson = 4096;
constexpr std::size_t kMembers = 5;

void put_text(std::string& out, std::string_view text) {
  put_u64(out, text.size());
  out += text;
}

template <class Pairs>
void put_pairs(std::string& out, const Pairs& pairs) {
  put_u32(out, static_cast<std::uint32_t>(pairs.size()));
  for (const auto& [name, value] : pairs) {
    put_text(out, name);
    put_text(out, value);
  }
}

bool is_key_id(std::string_view text) {
  return is_hex(text, 32);
}

}  // namespace

Result<Signature> Signature::parse(std::string_view text) {
  NC_ASSIGN(const json::object object, parse_json_object(text, kMaxJson, kWhat));
  JsonFields fields(object, std::string(kWhat));
  std::int64_t version = 0;
  std::string algorithm;
  fields.require("v").integer("v", version, 0, JsonFields::kMaxInteger);
  fields.require("alg").text("alg", algorithm, 32);
  NC_TRY(fields.done());
  if (version != 1 || algorithm != "ed25519") {
    return Error{Code::kUnsupported,
                 fmt::format("signature: version {} with {}, only 1 with ed25519 is known", version,
                             algorithm),
                 "use a newer neuroncache"};
  }
  Signature signature;
  std::string encoded;
  fields.require("key").text("key", signature.key_id, 32, is_key_id);
  fields.require("time_ms").integer("time_ms", signature.signed_ms, 0, JsonFields::kMaxInteger);
  fields.require("sig").text("sig", encoded, 88);
  NC_TRY(fields.done());
  auto bytes = from_base64(encoded);
  if (!bytes || bytes->size() != kSignatureSize || object.size() != kMembers) {
    return Error{Code::kInvalid,
                 "signature: not 64 bytes of base64, or with members of unknown use", ""};
  }
  signature.bytes = std::move(*bytes);
  return signature;
}

std::string Signature::to_json() const {
  return json::serialize(json::object{{"v", 1},
                                      {"alg", "ed25519"},
                                      {"key", key_id},
                                      {"time_ms", signed_ms},
                                      {"sig", to_base64(as_bytes(bytes))}});
}

std::string signed_bytes(const Manifest& m, std::string_view key_id, Millis signed_ms) {
  std::string out(kTag);
  put_text(out, key_id);
  put_u64(out, static_cast<std::uint64_t>(signed_ms));
  out += m.key.view();
  for (const std::string* text : {&m.kind, &m.name_space, &m.label, &m.model, &m.compiler}) {
    put_text(out, *text);
  }
  put_u64(out, static_cast<std::uint64_t>(m.created_ms));
  put_u64(out, m.build_ms);
  put_u64(out, m.peak_rss_bytes);
  put_text(out, m.producer.host);
  put_u64(out, static_cast<std::uint64_t>(m.producer.pid));
  put_text(out, m.producer.program);
  put_text(out, m.producer.version);
  put_pairs(out, m.parts);
  put_u32(out, static_cast<std::uint32_t>(m.outputs.size()));
  for (const Output& output : m.outputs) {
    put_text(out, output.name);
    out += output.digest.view();
    put_u64(out, output.size);
    put_u32(out, output.mode);
  }
  put_pairs(out, m.meta);
  return out;
}

Status sign_manifest(Manifest& manifest, const PrivateKey& key, Millis now_ms) {
  Signature signature{key.id(), now_ms, {}};
  NC_ASSIGN(signature.bytes, key.sign(as_bytes(signed_bytes(manifest, key.id(), now_ms))));
  manifest.signature = signature.to_json();
  return {};
}

}  // namespace nc::trust

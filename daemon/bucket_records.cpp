#include "daemon/bucket_records.hpp"

#include <boost/json.hpp>

#include "cache/json_fields.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::size_t kProgramBytes = 32;
constexpr std::size_t kMaxRecord = 1 << 20;
constexpr int kVersion = 1;

void put_big_endian(std::string& out, std::uint64_t value, unsigned bytes) {
  while (bytes-- > 0) out.push_back(static_cast<char>(value >> (8 * bytes)));
}

std::uint64_t take_big_endian(std::string_view& in, unsigned bytes) {
  std::uint64_t value = 0;
  for (unsigned i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(in[i]);
  in.remove_prefix(bytes);
  return value;
}

std::string key_of(const Sha256& program, char kind) {
  return std::string(program.view()) + kind;
}

std::optional<Sha256> raw_sha256(std::string_view raw) {
  return Sha256::from_hex(to_hex(as_bytes(raw)));
}

std::optional<js::object> parse(std::string_view text) {
  auto object = parse_json_object(text, kMaxRecord, "the record");
  if (!object.ok()) return std::nullopt;
  return *std::move(object);
}

bool read_waste(const js::object& object, std::vector<std::optional<double>>& out) {
  const js::value* waste = object.if_contains("waste");
  if (waste == nullptr || !waste->is_array()) return false;
  for (const js::value& one : waste->get_array()) {
    js::error_code error;
    if (one.is_null()) {
      out.emplace_back();
    } else {
      out.emplace_back(one.to_number<double>(error));
      if (error) return false;
    }
  }
  return true;
}

}  // namespace

std::string head_key(const Sha256& program) {
  return key_of(program, 'h');
}

std::string sizes_key(const Sha256& program, std::uint32_t generation, std::string_view family) {
  std::string key = key_of(program, 'f');
  put_big_endian(key, generation, 4);
  return key.append(family);
}

std::string pairs_key(const Sha256& program, std::uint32_t generation, std::string_view first,
                      std::string_view second) {
  std::string key = key_of(program, 'j');
  put_big_endian(key, generation, 4);
  key.append(first).push_back('\0');
  return key.append(second);
}

std::string epoch_key(const Sha256& program, std::uint64_t epoch) {
  std::string key = key_of(program, 'e');
  put_big_endian(key, epoch, 8);
  return key;
}

std::string pin_key(const Sha256& program, const Sha256& pin) {
  return key_of(program, 'p').append(pin.view());
}

std::optional<RecordName> read_name(std::string_view key) {
  if (key.size() <= kProgramBytes) return std::nullopt;
  RecordName name;
  name.program = *raw_sha256(key.substr(0, kProgramBytes));
  name.kind = key[kProgramBytes];
  std::string_view rest = key.substr(kProgramBytes + 1);
  switch (name.kind) {
    case 'h':
      return rest.empty() ? std::optional(name) : std::nullopt;
    case 'e':
      if (rest.size() != 8) return std::nullopt;
      name.number = take_big_endian(rest, 8);
      return name;
    case 'p':
      if (rest.size() != kProgramBytes) return std::nullopt;
      name.pin = *raw_sha256(rest);
      return name;
    case 'f':
    case 'j':
      break;
    default:
      return std::nullopt;
  }
  if (rest.size() < 5) return std::nullopt;
  name.number = take_big_endian(rest, 4);
  const std::size_t end = rest.find('\0');
  if ((name.kind == 'j') != (end != std::string_view::npos)) return std::nullopt;
  name.first = rest.substr(0, end);
  if (name.kind == 'j') name.second = rest.substr(end + 1);
  const bool named = buckets::is_family_name(name.first) &&
                     (name.kind == 'f' || buckets::is_family_name(name.second));
  return named ? std::optional(name) : std::nullopt;
}

void ProgramHead::add_calls(std::uint64_t count, std::uint64_t us) {
  constexpr std::uint64_t kRemembered = 1ULL << 20;
  calls += count;
  calls_us += us;
  while (calls > kRemembered || calls_us > kRemembered << 30) {
    calls /= 2;
    calls_us /= 2;
  }
}

std::string ProgramHead::encode() const {
  return js::serialize(js::object{{"v", kVersion},
                                  {"label", label},
                                  {"seen_ms", seen_ms},
                                  {"compile_ms", compile_ms},
                                  {"builds", builds},
                                  {"calls", calls},
                                  {"calls_us", calls_us}});
}

std::optional<ProgramHead> ProgramHead::decode(std::string_view text) {
  const auto object = parse(text);
  if (!object) return std::nullopt;
  ProgramHead head;
  int version = 0;
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000)
      .text("label", head.label)
      .integer("seen_ms", head.seen_ms, 0, JsonFields::kMaxInteger)
      .integer("compile_ms", head.compile_ms, 0, JsonFields::kMaxInteger)
      .integer("builds", head.builds, 0, JsonFields::kMaxInteger)
      .integer("calls", head.calls, 0, JsonFields::kMaxInteger)
      .integer("calls_us", head.calls_us, 0, JsonFields::kMaxInteger);
  if (!fields.done().ok() || version != kVersion) return std::nullopt;
  return head;
}

std::string Pin::encode() const {
  js::array shares;
  for (const auto& one : waste) shares.push_back(one ? js::value(*one) : js::value(nullptr));
  return js::serialize(js::object{{"v", kVersion},
                                  {"job", job},
                                  {"after", after},
                                  {"used_ms", used_ms},
                                  {"plan", plan.text()},
                                  {"waste", std::move(shares)},
                                  {"waste_met", waste_met ? 1 : 0}});
}

std::optional<Pin> Pin::decode(std::string_view text) {
  const auto object = parse(text);
  if (!object) return std::nullopt;
  Pin pin;
  int version = 0;
  int met = 1;
  std::string plan;
  JsonFields fields(*object, "the record");
  fields.integer("v", version, 1, 1000)
      .text("job", pin.job)
      .integer("after", pin.after, 0, JsonFields::kMaxInteger)
      .integer("used_ms", pin.used_ms, 0, JsonFields::kMaxInteger)
      .text("plan", plan, kMaxRecord)
      .integer("waste_met", met, 0, 1);
  if (!fields.done().ok() || version != kVersion || !read_waste(*object, pin.waste)) {
    return std::nullopt;
  }
  auto parsed = buckets::Plan::parse(plan);
  if (!parsed.ok() || parsed->families.size() != pin.waste.size()) return std::nullopt;
  pin.plan = *std::move(parsed);
  pin.waste_met = met == 1;
  return pin;
}

Sha256 pin_id(std::string_view job, std::uint64_t after, const std::vector<std::string>& families) {
  std::string text(job);
  text.push_back('\0');
  text += std::to_string(after);
  text.push_back('\0');
  for (const std::string& family : families) text.append(family).push_back('\0');
  return Sha256::of(as_bytes(text));
}

}  // namespace nc::daemon

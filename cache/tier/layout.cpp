#include "cache/tier/layout.hpp"

#include "base/number.hpp"

namespace nc::tier {
namespace {

constexpr std::size_t kFenceDigits = 20;  // as many as 2^64 has, so that names sort as numbers do
constexpr std::string_view kSeen = "seen";
constexpr std::string_view kZstd = ".zst";

bool allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

Error bad_name(std::string_view name) {
  return {Code::kInvalid,
          "'" + std::string(name.substr(0, 100)) + "' is not a name of an object in a tier",
          "use parts of a-z, 0-9, '.', '_' and '-' with single slashes between them"};
}

std::string spread(std::string_view root, const std::string& hex) {
  std::string name;
  name.reserve(root.size() + 3 + hex.size());
  return name.append(root).append(hex, 0, 2).append("/").append(hex);
}

// `ab/rest` -> rest, when it begins with ab.
std::optional<std::string_view> gather(std::string_view root, std::string_view name) {
  if (!name.starts_with(root)) return std::nullopt;
  name.remove_prefix(root.size());
  if (name.size() < 3 || name[2] != '/') return std::nullopt;
  const auto rest = name.substr(3);
  if (rest.substr(0, 2) != name.substr(0, 2)) return std::nullopt;
  return rest;
}

}  // namespace

Status check_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return bad_name(name);
  std::size_t start = 0;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && name[i] != '/') {
      if (!allowed(name[i])) return bad_name(name);
      continue;
    }
    const auto part = name.substr(start, i - start);
    if (part.empty() || part == "." || part == "..") return bad_name(name);
    start = i + 1;
  }
  return {};
}

Status check_prefix(std::string_view prefix) {
  if (prefix.empty()) return {};
  // Whatever comes next makes a good last part of it.
  return prefix.size() < kMaxNameBytes && check_name(std::string(prefix) + "x").ok()
             ? Status()
             : Status(bad_name(prefix));
}

std::string entry_name(const ActionKey& key, unsigned place) {
  auto name = spread(kEntries, key.hex());
  return place == 0 ? name : name.append(".").append(std::to_string(place));
}

std::string blob_name(const Digest& digest, bool compressed) {
  auto name = spread(kBlobs, digest.hex());
  return compressed ? name.append(kZstd) : name;
}

std::string mark_name(const Digest& digest) {
  return spread(kMarks, digest.hex());
}

std::string lease_dir(const ActionKey& key) {
  return spread(kLeases, key.hex()) + "/";
}

std::string lease_name(const ActionKey& key, std::uint64_t fence) {
  const auto digits = std::to_string(fence);
  return lease_dir(key) + std::string(kFenceDigits - digits.size(), '0') + digits;
}

std::string lease_seen_name(const ActionKey& key) {
  return lease_dir(key).append(kSeen);
}

std::string queue_name(std::string_view id) {
  return std::string(kQueue).append(id);
}

std::optional<EntryName> parse_entry(std::string_view name) {
  auto rest = gather(kEntries, name);
  if (!rest) return std::nullopt;
  EntryName entry;
  if (const auto dot = rest->find('.'); dot != std::string_view::npos) {
    const auto place = whole_number<unsigned>(rest->substr(dot + 1));
    if (!place || *place == 0 || *place >= kEntryPlaces || rest->size() != dot + 2) {
      return std::nullopt;
    }
    entry.place = *place;
    rest = rest->substr(0, dot);
  }
  const auto key = ActionKey::from_hex(*rest);
  if (!key) return std::nullopt;
  entry.key = *key;
  return entry;
}

std::optional<BlobName> parse_blob(std::string_view name) {
  auto rest = gather(kBlobs, name);
  if (!rest) return std::nullopt;
  const bool compressed = rest->ends_with(kZstd);
  if (compressed) rest->remove_suffix(kZstd.size());
  const auto digest = Digest::from_hex(*rest);
  if (!digest) return std::nullopt;
  return BlobName{*digest, compressed};
}

std::optional<Digest> parse_mark(std::string_view name) {
  const auto rest = gather(kMarks, name);
  return rest ? Digest::from_hex(*rest) : std::nullopt;
}

std::optional<LeaseName> parse_lease(std::string_view name) {
  const auto rest = gather(kLeases, name);
  if (!rest || rest->size() != 64 + 1 + kFenceDigits || (*rest)[64] != '/') return std::nullopt;
  const auto key = ActionKey::from_hex(rest->substr(0, 64));
  const auto fence = whole_number<std::uint64_t>(rest->substr(65));
  if (!key || !fence) return std::nullopt;
  return LeaseName{*key, *fence};
}

std::optional<ActionKey> parse_lease_seen(std::string_view name) {
  const auto rest = gather(kLeases, name);
  if (!rest || rest->size() <= 64 || (*rest)[64] != '/' || rest->substr(65) != kSeen)
    return std::nullopt;
  return ActionKey::from_hex(rest->substr(0, 64));
}

std::optional<std::string> parse_queue(std::string_view name) {
  if (!name.starts_with(kQueue) || !check_name(name).ok()) return std::nullopt;
  name.remove_prefix(kQueue.size());
  if (name.find('/') != std::string_view::npos) return std::nullopt;
  return std::string(name);
}

}  // namespace nc::tier

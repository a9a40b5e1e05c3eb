#include "client/cc/input/bytecode_file.hpp"

#include <algorithm>

#include "client/cc/input/canonical.hpp"
#include "client/cc/input/mlir_tables.hpp"

namespace nc::cc {
namespace {

enum SectionId : std::uint8_t {
  kStrings,
  kDialects,
  kEntries,
  kEntryOffsets,
  kIr,
  kResources,
  kResourceOffsets,
  kDialectVersions,
  kProperties,
};

constexpr std::string_view kMagic = "ML\xEFR";
constexpr std::uint64_t kOldest = 1;
constexpr std::uint64_t kNewest = 6;
// More than any program has; bounds the tables of a hostile file.
constexpr std::uint64_t kMost = 4'000'000;

}  // namespace

bool BytecodeFile::read(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return false;
  BytecodeCursor file(bytes);
  std::string_view magic;
  if (!file.take(kMagic.size(), magic) || !file.varint(version)) return false;
  if (version < kOldest || version > kNewest || !file.c_string(producer)) return false;
  if (!read_sections(file)) return false;
  const auto at = [&](SectionId id) { return sections_[id].at; };
  ir = at(kIr);
  return read_strings(at(kStrings)) && read_dialects(at(kDialects)) &&
         (!sections_[kProperties].present || read_properties(at(kProperties))) &&
         (!sections_[kResources].present || read_resources(at(kResourceOffsets), at(kResources))) &&
         read_entries(at(kEntryOffsets), at(kEntries)) && hash_entries();
}

bool BytecodeFile::read_sections(BytecodeCursor file) {
  while (!file.at_end()) {
    std::uint8_t id = 0;
    BytecodeCursor inner;
    if (!file.section(id, inner) || id >= kSections || sections_[id].present) return false;
    sections_[id] = {true, inner};
  }
  for (const SectionId needed : {kStrings, kDialects, kEntries, kEntryOffsets, kIr}) {
    if (!sections_[needed].present) return false;
  }
  constexpr std::uint64_t kNativeProperties = 5;
  return sections_[kResources].present == sections_[kResourceOffsets].present &&
         !sections_[kDialectVersions].present &&
         sections_[kProperties].present == (version >= kNativeProperties);
}

// Lengths from the last to the first, then the strings from the first to the last.
bool BytecodeFile::read_strings(BytecodeCursor at) {
  std::uint64_t count = 0;
  if (!at.count(count) || count > kMost) return false;
  std::vector<std::uint64_t> sizes(count);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    if (!at.varint(*size) || *size == 0) return false;
  }
  strings_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (!at.take(sizes[i], strings_[i]) || strings_[i].back() != '\0') return false;
    strings_[i].remove_suffix(1);
  }
  return at.at_end();
}

bool BytecodeFile::string_at(BytecodeCursor& at, std::string_view& out) const {
  std::uint64_t index = 0;
  if (!at.index(strings_.size(), index)) return false;
  out = strings_[index];
  return true;
}

bool BytecodeFile::read_dialects(BytecodeCursor at) {
  std::uint64_t count = 0;
  if (!at.count(count) || count > kMost) return false;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t name = 0;
    if (!at.varint(name) || (name >> 1) >= strings_.size()) return false;
    Dialect dialect{.name = strings_[name >> 1], .version = std::nullopt};
    if ((name & 1) != 0 && !read_version_of(dialect, at)) return false;
    dialects.push_back(dialect);
  }
  std::vector<std::string_view> names;
  for (const Dialect& dialect : dialects) names.push_back(dialect.name);
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) return false;

  constexpr std::uint64_t kCountsOperations = 4;
  constexpr std::uint64_t kFlagsRegistered = 5;
  std::uint64_t promised = 0;
  if (version >= kCountsOperations && !at.varint(promised)) return false;
  while (!at.at_end()) {
    std::uint64_t dialect = 0;
    std::uint64_t in_group = 0;
    if (!at.index(dialects.size(), dialect) || !at.count(in_group)) return false;
    for (std::uint64_t i = 0; i < in_group; ++i) {
      std::uint64_t name = 0;
      if (!at.varint(name)) return false;
      const bool flagged = version >= kFlagsRegistered;
      const std::uint64_t index = flagged ? name >> 1 : name;
      if (index >= strings_.size() || strings_[index].empty()) return false;
      if (operations.size() == kMost) return false;
      operations.push_back(
          {.name = std::string(dialects[dialect].name).append(".").append(strings_[index]),
           .registered = flagged && (name & 1) != 0});
    }
  }
  return version < kCountsOperations || promised == operations.size();
}

bool BytecodeFile::read_version_of(Dialect& dialect, BytecodeCursor& at) {
  std::uint8_t id = 0;
  BytecodeCursor inner;
  if (!at.section(id, inner) || id != kDialectVersions) return false;
  dialect.version = inner.rest();
  return true;
}

bool BytecodeFile::read_properties(BytecodeCursor at) {
  std::uint64_t count = 0;
  if (at.at_end()) return true;
  if (!at.count(count) || count > kMost) return false;
  properties.resize(count);
  for (std::string_view& one : properties) {
    std::uint64_t size = 0;
    if (!at.varint(size) || !at.take(size, one)) return false;
  }
  return at.at_end();
}

bool BytecodeFile::read_resources(BytecodeCursor offsets, BytecodeCursor data) {
  // Those of others than dialects are instructions to tools, such as a list of passes.
  std::uint64_t external = 0;
  if (!offsets.varint(external) || external != 0) return false;
  while (!offsets.at_end()) {
    std::uint64_t dialect = 0;
    std::uint64_t count = 0;
    if (!offsets.index(dialects.size(), dialect) || !offsets.count(count)) return false;
    if (count + resources_.size() > kMost) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!read_resource(offsets, data, dialect)) return false;
    }
  }
  if (!data.at_end()) return false;
  std::vector<std::pair<std::string, Digest>> all;
  for (const Resource& resource : resources_) {
    all.emplace_back(std::string(dialects[resource.dialect].name).append(".").append(resource.key),
                     resource.digest);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  CanonicalHash out("mlir-bytecode resources");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].first == all[i - 1].first) return false;
    out.bytes(all[i].first);
    out.raw(all[i].second.view());
  }
  resources_digest_ = out.finish();
  return true;
}

bool BytecodeFile::read_resource(BytecodeCursor& offsets, BytecodeCursor& data,
                                 std::uint64_t dialect) {
  enum Kind : std::uint8_t { kBlob, kBool, kString };
  Resource resource{.dialect = dialect, .key = {}, .digest = {}};
  std::uint64_t size = 0;
  std::uint8_t kind = 0;
  BytecodeCursor value;
  if (!string_at(offsets, resource.key) || !offsets.varint(size) || !offsets.byte(kind) ||
      !data.part(size, value)) {
    return false;
  }
  CanonicalHash out("mlir-bytecode resource");
  out.bytes(dialects[dialect].name);
  out.bytes(resource.key);
  out.byte(kind);
  out.byte(value.at_end() ? 0 : 1);  // 0: only declared
  if (!value.at_end()) {
    std::uint64_t alignment = 0;
    std::uint64_t bytes = 0;
    std::string_view content;
    switch (kind) {
      case kBlob:
        if (!value.varint(alignment) || !value.varint(bytes) || !value.align(alignment) ||
            !value.take(bytes, content)) {
          return false;
        }
        out.varint(alignment);
        break;
      case kBool:
        if (!value.take(1, content)) return false;
        break;
      case kString:
        if (!string_at(value, content)) return false;
        break;
      default:
        return false;
    }
    if (!value.at_end()) return false;
    out.bytes(content);
  }
  resource.digest = out.finish();
  resources_.push_back(resource);
  return true;
}

bool BytecodeFile::read_entries(BytecodeCursor offsets, BytecodeCursor data) {
  std::uint64_t types = 0;
  if (!offsets.varint(attribute_count_) || !offsets.varint(types)) return false;
  if (attribute_count_ > kMost || types > kMost) return false;
  const std::uint64_t total = attribute_count_ + types;
  if (total > offsets.left()) return false;
  entries_.reserve(total);
  while (!offsets.at_end()) {
    std::uint64_t dialect = 0;
    std::uint64_t count = 0;
    if (!offsets.index(dialects.size(), dialect) || !offsets.count(count)) return false;
    if (count > total - entries_.size()) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t size = 0;
      Entry entry;
      if (!offsets.varint(size) || !data.part(size >> 1, entry.body)) return false;
      entry.dialect = static_cast<std::uint32_t>(dialect);
      entry.custom = (size & 1) != 0;
      entries_.push_back(entry);
    }
  }
  return entries_.size() == total && data.at_end();
}

}  // namespace nc::cc

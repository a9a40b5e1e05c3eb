// Attributes and types of a bytecode file: what each holds, and its digest.
#include "client/cc/input/bytecode_file.hpp"
#include "client/cc/input/canonical.hpp"
#include "client/cc/input/mlir_tables.hpp"

namespace nc::cc {
namespace {

constexpr std::string_view kDumpPath = "torch.debug_dump_path";
constexpr std::size_t kMostReferences = 16'000'000;

}  // namespace

// Walks what an entry holds, letter for letter of its form.
template <class Visitor>
bool BytecodeFile::visit(const Entry& entry, std::string_view holds, Visitor& visitor) const {
  BytecodeCursor at = entry.body;
  const auto one = [&](char what) {
    std::uint64_t value = 0;
    std::string_view text;
    switch (what) {
      case 'A':
        return at.index(attributes(), value) && visitor.child(value);
      case 'T':
        return at.index(types(), value) && visitor.child(attribute_count_ + value);
      case 'S':
        return string_at(at, text) && visitor.text(text);
      case 'V':
        return at.varint(value) && visitor.number(value);
      case 'R':
        return at.index(resources_.size(), value) && visitor.resource(resources_[value].digest);
      case 'r':
        return visitor.text(at.rest());
      default:
        return false;
    }
  };
  for (const char what : holds) {
    if (what == 's') {
      while (!at.at_end()) {
        if (!visitor.number(1) || !one('S')) return false;
      }
      if (!visitor.number(0)) return false;
    } else if (what == 'a' || what == 't' || what == 'v' || what == 'p') {
      std::uint64_t count = 0;
      if (!at.count(count) || !visitor.number(count)) return false;
      const char each = what == 't' ? 'T' : what == 'v' ? 'V' : 'A';
      for (std::uint64_t i = 0; i < count; ++i) {
        if (!one(each) || (what == 'p' && !one(each))) return false;
      }
    } else if (!one(what)) {
      return false;
    }
  }
  return at.at_end();
}

bool BytecodeFile::read_entry(Entry& entry, bool is_type) {
  entry.children = entry.children_end = children_.size();
  if (!entry.custom) {
    std::string_view text;
    BytecodeCursor at = entry.body;
    return at.c_string(text) && at.at_end();
  }
  if (!entry.body.varint(entry.code)) return false;
  const std::string_view dialect = dialect_of(entry);
  const auto form = is_type ? type_form(dialect, entry.code) : attribute_form(dialect, entry.code);
  if (!form) return false;
  entry.location = form->location;
  struct Children {
    std::vector<std::uint32_t>& all;
    bool child(std::uint64_t index) {
      all.push_back(static_cast<std::uint32_t>(index));
      return all.size() <= kMostReferences;
    }
    bool text(std::string_view) { return true; }
    bool number(std::uint64_t) { return true; }
    bool resource(const Digest&) { return true; }
  } children{children_};
  if (!visit(entry, form->holds, children)) return false;
  entry.children_end = children_.size();
  return true;
}

// Locations are dropped, so they have to be sound: what MLIR would refuse is not understood.
bool BytecodeFile::check_location(const Entry& entry) const {
  enum Code : std::uint64_t { kFileLineCol = 11, kNamed = 14, kFileRange = 22 };
  const bool named = entry.code == kFileLineCol || entry.code == kNamed || entry.code == kFileRange;
  for (std::size_t i = entry.children; i < entry.children_end; ++i) {
    const Entry& child = entries_[children_[i]];
    const bool name = named && i == entry.children;
    if (name ? !is_builtin(child, kStringCode) : !child.location) return false;
  }
  return true;
}

// Children before parents. They can nest as deep as the table is long, so the way down is a list.
bool BytecodeFile::hash_entries() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!read_entry(entries_[i], i >= attribute_count_)) return false;
  }
  enum class State : std::uint8_t { kNew, kOpen, kDone };
  std::vector<State> states(entries_.size(), State::kNew);
  struct Step {
    std::size_t entry;
    std::size_t next;  // child
  };
  std::vector<Step> way;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (states[i] == State::kNew) way.push_back({i, entries_[i].children});
    while (!way.empty()) {
      Step& step = way.back();
      Entry& entry = entries_[step.entry];
      states[step.entry] = State::kOpen;
      if (step.next < entry.children_end) {
        const std::uint32_t child = children_[step.next++];
        if (states[child] == State::kOpen) return false;  // holds itself
        if (states[child] == State::kNew) way.push_back({child, entries_[child].children});
        continue;
      }
      if (!hash_entry(entry, step.entry >= attribute_count_)) return false;
      states[step.entry] = State::kDone;
      way.pop_back();
    }
  }
  return true;
}

bool BytecodeFile::hash_entry(Entry& entry, bool is_type) {
  if (entry.location) return check_location(entry);
  for (std::size_t i = entry.children; i < entry.children_end; ++i) {
    if (entries_[children_[i]].location) return false;  // a location that is somebody's value
  }
  CanonicalHash out(is_type ? "mlir-bytecode type" : "mlir-bytecode attribute");
  out.bytes(dialect_of(entry));
  out.byte(entry.custom ? 1 : 0);
  if (!entry.custom) {
    BytecodeCursor at = entry.body;
    out.bytes(at.rest());
    entry.digest = out.finish();
    return true;
  }
  out.varint(entry.code);
  struct Hash {
    const std::vector<Entry>& entries;
    CanonicalHash& out;
    bool child(std::uint64_t index) {
      out.raw(entries[index].digest.view());
      return true;
    }
    bool text(std::string_view text) {
      out.bytes(text);
      return true;
    }
    bool number(std::uint64_t value) {
      out.varint(value);
      return true;
    }
    bool resource(const Digest& digest) {
      out.raw(digest.view());
      return true;
    }
  } hash{entries_, out};
  const std::string_view dialect = dialect_of(entry);
  const auto form = is_type ? type_form(dialect, entry.code) : attribute_form(dialect, entry.code);
  if (!form || !visit(entry, form->holds, hash)) return false;
  entry.digest = out.finish();
  if (!is_type && is_builtin(entry, kDictionaryCode)) return hash_dictionary(entry);
  return true;
}

std::string_view BytecodeFile::string_of(const Entry& entry) const {
  BytecodeCursor at = entry.body;
  std::string_view out;
  return string_at(at, out) ? out : std::string_view();
}

bool BytecodeFile::hash_dictionary(const Entry& entry) {
  CanonicalHash out("mlir-bytecode dictionary");
  bool any = false;
  for (std::size_t i = entry.children; i < entry.children_end; i += 2) {
    const Entry& key = entries_[children_[i]];
    const Entry& value = entries_[children_[i + 1]];
    if (!is_builtin(key, kStringCode)) return false;
    if (string_of(key) == kDumpPath && is_builtin(value, kStringCode)) continue;
    any = true;
    out.raw(key.digest.view());
    out.raw(value.digest.view());
  }
  std::optional<Digest> digest;
  if (any) digest = out.finish();
  dictionaries_.emplace(static_cast<std::uint64_t>(&entry - entries_.data()), digest);
  return true;
}

}  // namespace nc::cc

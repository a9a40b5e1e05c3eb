// The tables of an MLIR bytecode file: strings, dialects, names of operations, attributes and
// types, resources, properties. Attributes and types get digests of what they are, so that their
// places in the tables, which depend on how often each is used (by locations too), play no part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.hpp"
#include "client/cc/input/bytecode_cursor.hpp"

namespace nc::cc {

class BytecodeFile {
 public:
  struct Dialect {
    std::string_view name;
    std::optional<std::string_view> version;
  };
  struct Operation {
    std::string name;  // "dialect.name"
    bool registered = false;
  };
  struct Entry {  // an attribute or a type
    std::uint32_t dialect = 0;
    bool custom = false;  // else it is text
    bool location = false;
    std::uint64_t code = 0;  // of custom ones
    BytecodeCursor body;     // behind the code
    std::size_t children = 0;
    std::size_t children_end = 0;
    Digest digest = {};
  };

  // All of the file, the operations excepted. False: not understood.
  bool read(std::string_view bytes);

  std::uint64_t version = 0;
  std::string_view producer;
  std::vector<Dialect> dialects;
  std::vector<Operation> operations;
  std::vector<std::string_view> properties;
  BytecodeCursor ir;

  std::uint64_t attributes() const { return attribute_count_; }
  std::uint64_t types() const { return entries_.size() - attribute_count_; }
  const Entry& attribute(std::uint64_t index) const { return entries_[index]; }
  const Entry& type(std::uint64_t index) const { return entries_[attribute_count_ + index]; }
  std::string_view dialect_of(const Entry& entry) const { return dialects[entry.dialect].name; }
  bool is_builtin(const Entry& attribute, std::uint64_t code) const {
    return attribute.custom && attribute.code == code && dialect_of(attribute) == "builtin";
  }

  // By the place of a dictionary: its digest as the attributes of an operation, without the path
  // that torch-mlir leaves there; nullopt: nothing is left.
  const std::unordered_map<std::uint64_t, std::optional<Digest>>& dictionaries() const {
    return dictionaries_;
  }
  // Of all resources, by name.
  Digest resources() const { return resources_digest_; }

 private:
  struct Section {
    bool present = false;
    BytecodeCursor at;
  };
  struct Resource {
    std::uint64_t dialect = 0;
    std::string_view key;
    Digest digest = {};
  };

  bool read_sections(BytecodeCursor file);
  bool read_strings(BytecodeCursor at);
  bool read_dialects(BytecodeCursor at);
  bool read_version_of(Dialect& dialect, BytecodeCursor& at);
  bool read_properties(BytecodeCursor at);
  bool read_resources(BytecodeCursor offsets, BytecodeCursor data);
  bool read_resource(BytecodeCursor& offsets, BytecodeCursor& data, std::uint64_t dialect);
  bool read_entries(BytecodeCursor offsets, BytecodeCursor data);
  bool read_entry(Entry& entry, bool is_type);
  bool check_location(const Entry& entry) const;
  bool hash_entries();
  bool hash_entry(Entry& entry, bool is_type);
  bool hash_dictionary(const Entry& entry);
  template <class Visitor>
  bool visit(const Entry& entry, std::string_view holds, Visitor& visitor) const;
  bool string_at(BytecodeCursor& at, std::string_view& out) const;
  std::string_view string_of(const Entry& entry) const;  // of the builtin kind

  static constexpr std::size_t kSections = 9;
  Section sections_[kSections];
  std::vector<std::string_view> strings_;
  std::vector<Entry> entries_;  // attributes, then types
  std::uint64_t attribute_count_ = 0;
  std::vector<std::uint32_t> children_;
  std::vector<Resource> resources_;
  Digest resources_digest_ = {};
  std::unordered_map<std::uint64_t, std::optional<Digest>> dictionaries_;
};

}  // namespace nc::cc

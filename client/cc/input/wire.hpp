// Reads the fields of one serialised protobuf message, strictly: what a writer would not have
// written (long varints, groups, field 0) is an error.
#pragma once

#include <cstdint>
#include <string_view>

namespace nc::cc {

struct WireField {
  enum Type : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  std::uint32_t number = 0;
  Type type = kVarint;
  std::uint64_t value = 0;  // kVarint
  std::string_view bytes;   // the others

  std::uint32_t tag() const { return number << 3 | type; }
};

class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // False at the end and at the first error.
  bool next(WireField& field);
  bool varint(std::uint64_t& value);  // for packed fields
  bool at_end() const { return rest_.empty() && !bad_; }
  bool bad() const { return bad_; }

 private:
  bool take(std::uint64_t size, std::string_view& out);
  bool fail() {
    bad_ = true;
    return false;
  }

  std::string_view rest_;
  bool bad_ = false;
};

}  // namespace nc::cc

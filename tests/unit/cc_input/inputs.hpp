// Inputs for the tests: serialised protobuf messages by hand, and the samples in
// tests/data/command.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace nc::cc {

// One message under construction.
class Message {
 public:
  Message& number(std::uint32_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  Message& text(std::uint32_t field, std::string_view bytes) {
    varint(field << 3 | 2);
    varint(bytes.size());
    bytes_.append(bytes);
    return *this;
  }
  Message& message(std::uint32_t field, const Message& inner) { return text(field, inner.bytes_); }
  Message& packed(std::uint32_t field, std::initializer_list<std::uint64_t> values) {
    Message inner;
    for (const std::uint64_t value : values) inner.varint(value);
    return text(field, inner.bytes_);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

inline std::string sample(std::string_view name) {
  std::ifstream in(std::string(NC_SOURCE_DIR "/tests/data/command/inputs/").append(name),
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace nc::cc

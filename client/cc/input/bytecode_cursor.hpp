// A place in an MLIR bytecode file. Every read is checked; what a writer would not have written
// (numbers longer than they have to be, other padding) is refused.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace nc::cc {

class BytecodeCursor {
 public:
  BytecodeCursor() = default;
  explicit BytecodeCursor(std::string_view file) : file_(file), end_(file.size()) {}

  bool at_end() const { return at_ == end_; }
  std::size_t left() const { return end_ - at_; }

  bool byte(std::uint8_t& out) {
    if (at_end()) return false;
    out = static_cast<std::uint8_t>(file_[at_++]);
    return true;
  }
  bool varint(std::uint64_t& out);
  // A number below `limit`: an index, or a count of things that take at least a byte each.
  bool index(std::uint64_t limit, std::uint64_t& out) { return varint(out) && out < limit; }
  bool count(std::uint64_t& out) { return varint(out) && out <= left(); }
  bool take(std::uint64_t size, std::string_view& out) {
    if (size > left()) return false;
    out = file_.substr(at_, size);
    at_ += size;
    return true;
  }
  std::string_view rest() {
    const std::string_view out = file_.substr(at_, left());
    at_ = end_;
    return out;
  }
  bool c_string(std::string_view& out);
  // Up to the next multiple of `alignment` from the start of the file.
  bool align(std::uint64_t alignment);
  // The section that begins here; `inner` walks its bytes.
  bool section(std::uint8_t& id, BytecodeCursor& inner);
  bool part(std::uint64_t size, BytecodeCursor& inner) {
    std::string_view bytes;
    inner = *this;
    if (!take(size, bytes)) return false;
    inner.end_ = at_;
    return true;
  }

 private:
  std::string_view file_;  // whole, so that places in it are known
  std::size_t at_ = 0;
  std::size_t end_ = 0;
};

}  // namespace nc::cc

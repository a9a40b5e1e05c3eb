#include "client/cc/input/bytecode_cursor.hpp"

#include <bit>

namespace nc::cc {

// The number of zero bits at the low end of the first byte says how many bytes follow.
bool BytecodeCursor::varint(std::uint64_t& out) {
  std::uint8_t first = 0;
  if (!byte(first)) return false;
  const unsigned more = first == 0 ? 8 : static_cast<unsigned>(std::countr_zero(first));
  if (more > left()) return false;
  std::uint64_t value = 0;
  for (unsigned i = 0; i < more; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(file_[at_ + i])) << (8 * i);
  }
  at_ += more;
  if (more == 8) {
    out = value;
    return value >> 56 != 0;
  }
  // What is left of the first byte are the low bits.
  out = value << (7 - more) | static_cast<std::uint64_t>(first) >> (more + 1);
  return more == 0 || out >> (7 * more) != 0;
}

bool BytecodeCursor::c_string(std::string_view& out) {
  const std::size_t zero = file_.substr(at_, left()).find('\0');
  if (zero == std::string_view::npos) return false;
  std::string_view with_zero;
  if (!take(zero + 1, with_zero)) return false;
  out = with_zero.substr(0, zero);
  return true;
}

bool BytecodeCursor::align(std::uint64_t alignment) {
  constexpr std::uint8_t kPadding = 0xCB;
  if (!std::has_single_bit(alignment) || alignment > (std::uint64_t{1} << 31)) return false;
  while ((at_ & (alignment - 1)) != 0) {
    std::uint8_t padding = 0;
    if (!byte(padding) || padding != kPadding) return false;
  }
  return true;
}

bool BytecodeCursor::section(std::uint8_t& id, BytecodeCursor& inner) {
  constexpr std::uint8_t kAligned = 0x80;
  std::uint64_t size = 0;
  if (!byte(id) || !varint(size)) return false;
  if ((id & kAligned) != 0) {
    id = static_cast<std::uint8_t>(id & ~kAligned);
    std::uint64_t alignment = 0;
    if (!varint(alignment) || !align(alignment)) return false;
  }
  return part(size, inner);
}

}  // namespace nc::cc

#include "client/cc/input/wire.hpp"

namespace nc::cc {

bool WireReader::next(WireField& field) {
  if (bad_ || rest_.empty()) return false;
  std::uint64_t tag = 0;
  if (!varint(tag)) return false;
  const std::uint64_t number = tag >> 3;
  if (number == 0 || number > 0x1FFFFFFF) return fail();
  field = {.number = static_cast<std::uint32_t>(number), .type = {}, .value = 0, .bytes = {}};
  switch (tag & 7) {
    case WireField::kVarint:
      field.type = WireField::kVarint;
      return varint(field.value);
    case WireField::kFixed64:
      field.type = WireField::kFixed64;
      return take(8, field.bytes);
    case WireField::kBytes: {
      field.type = WireField::kBytes;
      std::uint64_t size = 0;
      return varint(size) && take(size, field.bytes);
    }
    case WireField::kFixed32:
      field.type = WireField::kFixed32;
      return take(4, field.bytes);
    default:
      return fail();
  }
}

bool WireReader::varint(std::uint64_t& value) {
  value = 0;
  for (unsigned i = 0; i < 10; ++i) {
    if (i >= rest_.size()) return fail();
    const auto byte = static_cast<std::uint8_t>(rest_[i]);
    if (i == 9 && byte > 1) return fail();  // over 64 bits
    value |= static_cast<std::uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      if (byte == 0 && i > 0) return fail();  // longer than it has to be
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return fail();
}

bool WireReader::take(std::uint64_t size, std::string_view& out) {
  if (size > rest_.size()) return fail();
  out = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

}  // namespace nc::cc

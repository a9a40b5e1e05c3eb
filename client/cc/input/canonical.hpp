// Collects what counts of an input and hashes it: the domain first, then tokens that end where they
// say (lengths before contents), so that no two different lists of tokens give the same bytes.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/hash.hpp"

namespace nc::cc {

class CanonicalHash {
 public:
  explicit CanonicalHash(std::string_view form) {
    raw("neuroncache input 1 ");
    raw(form);
    raw("\n");
  }

  void byte(std::uint8_t value) {
    if (used_ == sizeof(buffer_)) flush();
    buffer_[used_++] = static_cast<std::byte>(value);
  }
  void varint(std::uint64_t value) {
    while (value >= 0x80) {
      byte(static_cast<std::uint8_t>(value | 0x80));
      value >>= 7;
    }
    byte(static_cast<std::uint8_t>(value));
  }
  void bytes(std::string_view text) {
    varint(text.size());
    raw(text);
  }
  // Without a length: for what has a fixed size, or comes last.
  void raw(std::string_view text) {
    if (text.size() > sizeof(buffer_) - used_) {
      flush();
      if (text.size() > sizeof(buffer_)) {
        hasher_.update(as_bytes(text));
        return;
      }
    }
    if (!text.empty()) std::memcpy(buffer_ + used_, text.data(), text.size());
    used_ += text.size();
  }

  Digest finish() {  // once
    flush();
    return hasher_.finish();
  }

 private:
  void flush() {
    hasher_.update(Bytes(buffer_, used_));
    used_ = 0;
  }

  Sha256Hasher hasher_;
  std::size_t used_ = 0;
  std::byte buffer_[16384];
};

}  // namespace nc::cc

// Redis's protocol (RESP2) from the client's side. Everything that is read is bounded; a bulk
// string can be streamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "cache/tier/engine.hpp"

namespace nc::tier {

struct RespReply {
  enum class Kind { kText, kError, kInteger, kBulk, kNull, kArray };
  Kind kind = Kind::kNull;
  std::string text = {};  // kText, kError, kBulk
  std::int64_t integer = 0;
  std::vector<RespReply> items = {};
};

// *3\r\n$3\r\nSET\r\n..
std::string resp_command(const std::vector<std::string_view>& words);
// The same of a command whose last word has `size` bytes, which follow it, and then \r\n.
std::string resp_head(const std::vector<std::string_view>& words, std::uint64_t size);

class RespReader {
 public:
  using Fill = std::function<Result<std::size_t>(std::span<std::byte>)>;  // at least one byte
  static constexpr std::size_t kMaxLine = 16 << 10;
  static constexpr std::uint64_t kMaxItems = 1 << 16;
  static constexpr int kMaxDepth = 4;

  explicit RespReader(Fill fill) : fill_(std::move(fill)) {}

  // One reply; kTooLarge when its strings have more than `limit` bytes in all, kCorrupt for what is
  // no RESP.
  Result<RespReply> reply(std::uint64_t limit);
  // The first line of a reply: an array without its items (their number is in `integer`), a bulk
  // string without its bytes (likewise), anything else whole.
  Result<RespReply> head();
  // The bytes of a bulk string of that size.
  Status stream(std::uint64_t size, const Sink& sink);
  // Is nothing left over that was read ahead?
  bool empty() const { return at_ == buffer_.size(); }

 private:
  Result<RespReply> item(std::uint64_t& room, std::uint64_t& items, int depth);
  Status more();

  const Fill fill_;
  std::string buffer_;
  std::size_t at_ = 0;
};

}  // namespace nc::tier

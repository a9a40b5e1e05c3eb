#include "cache/tier/resp.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace nc::tier {
namespace {

constexpr std::size_t kPiece = 64 << 10;

Error no_resp(const char* what) {
  return {Code::kCorrupt, fmt::format("the answer is not Redis's: {}", what),
          "check that the address is that of a Redis server (rediss:// where it wants TLS)"};
}

std::string head_of(const std::vector<std::string_view>& words, std::size_t count) {
  std::string out = fmt::format("*{}\r\n", count);
  for (const auto word : words) {
    out += fmt::format("${}\r\n", word.size());
    out += word;
    out += "\r\n";
  }
  return out;
}

}  // namespace

std::string resp_command(const std::vector<std::string_view>& words) {
  return head_of(words, words.size());
}

std::string resp_head(const std::vector<std::string_view>& words, std::uint64_t size) {
  return head_of(words, words.size() + 1) + fmt::format("${}\r\n", size);
}

Status RespReader::more() {
  if (at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
  }
  const auto before = buffer_.size();
  buffer_.resize(before + kPiece);
  auto got = fill_(std::as_writable_bytes(std::span(buffer_)).subspan(before));
  buffer_.resize(before + (got.ok() ? *got : 0));
  return got.ok() ? Status() : Status(std::move(got).error());
}

Result<RespReply> RespReader::head() {
  std::size_t end = 0;
  while ((end = buffer_.find("\r\n", at_)) == std::string::npos) {
    if (buffer_.size() - at_ > kMaxLine) return no_resp("a line without an end");
    NC_TRY(more());
  }
  if (end - at_ > kMaxLine || end == at_) return no_resp("a line that is empty or too long");
  const std::string line = buffer_.substr(at_, end - at_);
  at_ = end + 2;
  const auto rest = std::string_view(line).substr(1);
  RespReply reply;
  using Kind = RespReply::Kind;
  switch (line.front()) {
    case '+':
      reply.kind = Kind::kText;
      reply.text = rest;
      return reply;
    case '-':
      reply.kind = Kind::kError;
      reply.text = rest;
      return reply;
    case ':':
      reply.kind = Kind::kInteger;
      break;
    case '$':
      reply.kind = Kind::kBulk;
      break;
    case '*':
      reply.kind = Kind::kArray;
      break;
    default:
      return no_resp("an unknown type");
  }
  const auto [at, error] = std::from_chars(rest.data(), rest.data() + rest.size(), reply.integer);
  if (error != std::errc() || at != rest.data() + rest.size()) return no_resp("not a number");
  if (reply.kind != Kind::kInteger && reply.integer < 0) {
    if (reply.integer != -1) return no_resp("a negative length");
    reply.kind = Kind::kNull;
  }
  return reply;
}

Status RespReader::stream(std::uint64_t size, const Sink& sink) {
  while (size > 0) {
    if (at_ == buffer_.size()) NC_TRY(more());
    const auto piece =
        std::string_view(buffer_).substr(at_, std::min<std::uint64_t>(size, buffer_.size() - at_));
    NC_TRY(sink(as_bytes(piece)));
    at_ += piece.size();
    size -= piece.size();
  }
  while (buffer_.size() - at_ < 2) NC_TRY(more());
  if (buffer_.compare(at_, 2, "\r\n") != 0) return no_resp("a string without an end");
  at_ += 2;
  return {};
}

Result<RespReply> RespReader::reply(std::uint64_t limit) {
  std::uint64_t items = 0;
  return item(limit, items, 0);
}

Result<RespReply> RespReader::item(std::uint64_t& room, std::uint64_t& items, int depth) {
  NC_ASSIGN(auto reply, head());
  if (reply.kind == RespReply::Kind::kBulk) {
    const auto size = static_cast<std::uint64_t>(reply.integer);
    if (size > room) return Error{Code::kTooLarge, "the answer is larger than expected", ""};
    room -= size;
    NC_TRY(stream(size, [&](Bytes piece) {
      reply.text += as_text(piece);
      return Status();
    }));
  } else if (reply.kind == RespReply::Kind::kArray) {
    if (depth >= kMaxDepth) return no_resp("nested too deeply");
    for (std::int64_t i = 0; i < reply.integer; ++i) {
      if (++items > kMaxItems) return no_resp("too many items");
      NC_ASSIGN(auto next, item(room, items, depth + 1));
      reply.items.push_back(std::move(next));
    }
  }
  return reply;
}

}  // namespace nc::tier

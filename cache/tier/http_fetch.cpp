#include "cache/tier/http_fetch.hpp"

#include <fmt/format.h>

#include "base/number.hpp"
#include "cache/tier/retry.hpp"

namespace nc::tier {
namespace {

class Fetch {
 public:
  Fetch(const std::string& name, std::uint64_t offset, std::uint64_t limit, const Sink& sink)
      : name_(name), limit_(limit), sink_(sink), at_(offset) {}

  Result<std::uint64_t> run(const EngineDeps& deps, const FetchOnce& once) {
    Retry retry(deps);
    while (true) {
      const auto before = at_;
      auto size = attempt(once);
      if (size.ok() || sink_failed_) return size;
      const bool moved = at_ > before;
      if (moved) retry.progressed();
      // A connection that stalls after it has brought something is worth a new one.
      Error judged = size.error();
      if (moved && judged.code == Code::kTimeout) judged.code = Code::kUnavailable;
      if (wrong_ || !retry.again(judged)) return size;
    }
  }

 private:
  Result<std::uint64_t> attempt(const FetchOnce& once) {
    FetchParts parts;
    if (at_ > 0) {
      parts.headers.push_back({"range", fmt::format("bytes={}-", at_ - back_)});
      if (!etag_.empty()) parts.headers.push_back({"if-match", etag_});
    }
    skip_ = 0;
    parts.on_head = [this](const HttpHead& head) { return begin(head); };
    parts.sink = [this](Bytes piece) { return take(piece); };
    NC_ASSIGN(const auto response, once(parts));
    if (response.head.status == 412) return wrong("was replaced while it was read");
    if (response.head.status == 416) {
      const auto range = parse_content_range(response.head.header("content-range"));
      if (range && !range->first && range->total == at_) return at_;  // nothing is left
      if (!range && back_ == 0) {  // it does not say how much there is: ask for one byte too many
        back_ = 1;
        return attempt(once);
      }
      return wrong("is shorter than it was");
    }
    if (skip_ > 0 || (total_ && at_ != *total_)) {
      return Error{Code::kCorrupt, fmt::format("{} ended early, at byte {}", name_, at_), ""};
    }
    return at_;
  }

  // An answer that another attempt would not make better.
  Error wrong(std::string_view what) {
    wrong_ = true;
    return {Code::kCorrupt, fmt::format("{} {}", name_, what), ""};
  }

  Status begin(const HttpHead& head) {
    if (!head.success()) return {};
    std::optional<std::uint64_t> total;
    if (head.status == 206) {
      const auto range = parse_content_range(head.header("content-range"));
      if (!range || !range->first || *range->first != at_ - back_ ||
          range->last + 1 != range->total) {
        return wrong("came with another range than was asked for");
      }
      total = range->total;
      skip_ = back_;
      const auto length = head.content_length();
      if (length && *length != range->total - *range->first)
        return wrong("came with a wrong length");
    } else {
      total = head.content_length();  // absent: whatever comes
      skip_ = at_;                    // the server does not know ranges
      if (total && *total < at_) return wrong("is shorter than it was");
    }
    const auto etag = head.header("etag");
    if (total_ && total != total_) return wrong("changed its size while it was read");
    if (!etag_.empty() && etag != etag_) return wrong("was replaced while it was read");
    if (total) {
      if (*total > limit_) return too_large(*total);
      total_ = total;
    }
    if (!etag.starts_with("W/")) etag_ = etag;  // a weak one does not promise the same bytes
    return {};
  }

  Status take(Bytes piece) {
    if (skip_ > 0) {
      const auto n = std::min<std::uint64_t>(skip_, piece.size());
      skip_ -= n;
      piece = piece.subspan(n);
      if (piece.empty()) return {};
    }
    if (piece.size() > limit_ - std::min(limit_, at_)) return too_large(at_ + piece.size());
    if (total_ && piece.size() > *total_ - at_) return wrong("is longer than was announced");
    auto status = sink_(piece);
    if (!status.ok()) {
      sink_failed_ = true;
      return status;
    }
    at_ += piece.size();
    return {};
  }

  Error too_large(std::uint64_t size) const {
    return {Code::kTooLarge,
            fmt::format("{} has {} bytes or more, over the limit of {}", name_, size, limit_), ""};
  }

  const std::string& name_;
  const std::uint64_t limit_;
  const Sink& sink_;
  std::uint64_t at_;  // next byte for the sink
  std::uint64_t skip_ = 0;
  std::uint64_t back_ = 0;  // asked for from that much before at_
  std::optional<std::uint64_t> total_;
  std::string etag_;
  bool sink_failed_ = false;
  bool wrong_ = false;
};

}  // namespace

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto total = whole_number<std::uint64_t>(text.substr(slash + 1));
  if (!total) return std::nullopt;
  ContentRange range;
  range.total = *total;
  const auto span = text.substr(0, slash);
  if (span == "*") return range;
  const auto dash = span.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto first = whole_number<std::uint64_t>(span.substr(0, dash));
  const auto last = whole_number<std::uint64_t>(span.substr(dash + 1));
  if (!first || !last || *first > *last || *last >= *total) return std::nullopt;
  range.first = first;
  range.last = *last;
  return range;
}

Result<std::uint64_t> fetch_object(const EngineDeps& deps, const std::string& name,
                                   std::uint64_t offset, std::uint64_t limit, const Sink& sink,
                                   const FetchOnce& once) {
  return Fetch(name, offset, limit, sink).run(deps, once);
}

}  // namespace nc::tier

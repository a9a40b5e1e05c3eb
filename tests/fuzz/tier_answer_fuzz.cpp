// What a tier answers over HTTP: the head line by line, ranges, lists, failures, and a fetch from
// it. Whatever comes, no byte beyond the limit and none before the offset reaches the reader.
#include "cache/tier/dates.hpp"
#include "cache/tier/http_fetch.hpp"
#include "cache/tier/s3_answers.hpp"
#include "cache/tier/xml.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using nc::tier::HttpHead;

bool is_printable(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) return false;
  }
  return true;
}

void read_bodies(const HttpHead& head, std::string_view body) {
  const auto failure = nc::tier::parse_s3_failure(head, body);
  const auto error = nc::tier::s3_error(head, failure, "call");
  FUZZ_REQUIRE(!error.message.empty() && error.message.size() < 500);
  FUZZ_REQUIRE(is_printable(error.text()));
  const auto list = nc::tier::parse_s3_list(body);
  if (list.ok()) {
    for (const auto& object : list->objects) FUZZ_REQUIRE(!object.name.empty());
  }
  const auto id = nc::tier::parse_upload_id(body);
  if (id.ok()) FUZZ_REQUIRE(!id->empty());
  static_cast<void>(nc::tier::check_completion(head, body, "call").ok());
  const auto root = nc::tier::parse_xml(body);
  if (!root.ok()) FUZZ_REQUIRE(root.is(nc::Code::kCorrupt));
}

void fetch(const HttpHead& head, std::string_view body, std::uint64_t offset, std::uint64_t limit) {
  nc::FakeRandom random;
  nc::tier::EngineDeps deps;
  deps.random = &random;
  deps.sleep = [](nc::Millis) {};
  std::uint64_t got = 0;
  const nc::tier::Sink sink = [&](nc::Bytes piece) {
    got += piece.size();
    return nc::Status();
  };
  int attempts = 0;
  const auto once = [&](const nc::tier::FetchParts& parts) -> nc::Result<nc::tier::HttpResponse> {
    FUZZ_REQUIRE(++attempts < 1000);
    NC_TRY(parts.on_head(head));
    if (!head.success()) {
      if (head.status == 412 || head.status == 416) return nc::tier::HttpResponse{head, ""};
      return nc::Error{nc::Code::kUnavailable, "", ""};
    }
    for (std::size_t at = 0; at < body.size(); at += 7) {
      NC_TRY(parts.sink(nc::as_bytes(body.substr(at, 7))));
    }
    return nc::tier::HttpResponse{head, ""};
  };
  const auto size = nc::tier::fetch_object(deps, "x", offset, limit, sink, once);
  FUZZ_REQUIRE(got == 0 || offset + got <= limit);
  if (size.ok()) FUZZ_REQUIRE(*size == offset + got);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto text = nc::as_text(nc::fuzz_bytes(data, size));
  static_cast<void>(nc::tier::parse_http_date(text));
  static_cast<void>(nc::tier::parse_iso_date(text));
  const auto range = nc::tier::parse_content_range(text);
  if (range && range->first)
    FUZZ_REQUIRE(*range->first <= range->last && range->last < range->total);
  nc::tier::HttpHeadReader reader;
  while (!reader.complete()) {
    if (text.empty()) return 0;
    const auto end = std::min(text.find('\n'), text.size() - 1);
    const auto last = reader.line(text.substr(0, end + 1));
    if (!last.ok()) {
      FUZZ_REQUIRE(last.is(nc::Code::kCorrupt) || last.is(nc::Code::kTooLarge));
      return 0;
    }
    text.remove_prefix(end + 1);
  }
  FUZZ_REQUIRE(reader.head().status >= 200);
  read_bodies(reader.head(), text);
  for (const std::uint64_t offset : {0, 5}) {
    for (const std::uint64_t limit : {3, 1000}) fetch(reader.head(), text, offset, limit);
  }
  return 0;
}

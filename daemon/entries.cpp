// The whole store at once: list, show, prune, verify, pin.
#include <charconv>

#include "cache/json_fields.hpp"
#include "daemon/answers.hpp"
#include "daemon/paging.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::size_t kPage = 1000;  // entries in one answer
constexpr std::size_t kVerifyPage = 1000;

Error bad_value(std::string_view name, std::string_view want) {
  return {Code::kInvalid, std::string(name) + " is not " + std::string(want),
          "see docs/protocol.md"};
}

Result<double> number_from(std::string_view name, std::string_view text) {
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end != text.data() + text.size() || !(number >= 0)) {
    return bad_value(name, "a number of at least 0");
  }
  return number;
}

Result<EntryFilter> filter_from_query(const HttpRequest& request) {
  EntryFilter filter;
  const auto text = [&request](const std::string& name, std::optional<std::string>& out) {
    if (auto value = request.query(name); !value.empty()) out = value;
  };
  text("namespace", filter.name_space);
  text("compiler", filter.compiler);
  text("model", filter.model);
  text("kind", filter.kind);
  if (auto value = request.query("older_than_s"); !value.empty()) {
    NC_ASSIGN(filter.older_than_s, number_from("older_than_s", value));
  }
  if (auto value = request.query("unused_since_s"); !value.empty()) {
    NC_ASSIGN(filter.unused_since_s, number_from("unused_since_s", value));
  }
  if (auto value = request.query("failed"); !value.empty()) {
    if (value != "0" && value != "1") return bad_value("failed", "0 or 1");
    filter.failed = value == "1";
  }
  return filter;
}

// Optional fields of a body: absent and null are the same.
class Optional {
 public:
  explicit Optional(const js::object& object) : object_(object) {}

  Optional& text(std::string_view name, std::optional<std::string>& out) {
    if (const js::value* v = find(name)) {
      if (v->is_string())
        out = std::string(v->get_string());
      else
        wrong(name, "a text");
    }
    return *this;
  }
  Optional& boolean(std::string_view name, std::optional<bool>& out) {
    if (const js::value* v = find(name)) {
      if (v->is_bool())
        out = v->get_bool();
      else
        wrong(name, "true or false");
    }
    return *this;
  }
  Optional& seconds(std::string_view name, std::optional<double>& out) {
    if (const js::value* v = find(name)) {
      boost::system::error_code ec;
      const double number = v->is_number() ? v->to_number<double>(ec) : -1;
      if (ec || !(number >= 0))
        wrong(name, "a number of seconds of at least 0");
      else
        out = number;
    }
    return *this;
  }
  Optional& natural(std::string_view name, std::optional<std::uint64_t>& out) {
    if (const js::value* v = find(name)) {
      boost::system::error_code ec;
      const auto number = v->is_number() ? v->to_number<std::uint64_t>(ec) : 0;
      if (!v->is_number() || ec)
        wrong(name, "a whole number of at least 0");
      else
        out = number;
    }
    return *this;
  }
  Status done() const { return error_ ? Status(*error_) : Status(); }

 private:
  const js::value* find(std::string_view name) const {
    const js::value* value = object_.if_contains(js::string_view(name.data(), name.size()));
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  void wrong(std::string_view name, std::string_view want) {
    if (!error_) error_ = bad_value(name, want);
  }

  const js::object& object_;
  std::optional<Error> error_;
};

Result<js::object> body_of(const HttpRequest& request) {
  return parse_json_object(request.body, request.body.size(), "the body");
}

js::array entries_json(const std::vector<EntryInfo>& entries) {
  js::array out;
  out.reserve(entries.size());
  for (const EntryInfo& entry : entries) out.push_back(entry_json(entry));
  return out;
}

js::value cursor_json(const std::optional<std::string>& cursor) {
  return cursor ? js::value(*cursor) : js::value(nullptr);
}

}  // namespace

HttpResponse list_entries(Service& service, const HttpRequest& request) {
  auto filter = filter_from_query(request);
  if (!filter.ok()) return HttpResponse::error(filter.error());
  const auto limit = page_limit(request, kPage);
  if (!limit.ok()) return HttpResponse::error(limit.error());
  auto page = service.store.entries(*filter, std::string(request.query("after")), *limit);
  if (!page.ok()) return HttpResponse::error(page.error());
  std::optional<std::string> next;
  if (page->size() == *limit) next = page->back().key.hex();
  return answer({{"entries", entries_json(*page)}, {"next", cursor_json(next)}});
}

HttpResponse get_entry(Service& service, const HttpRequest& request) {
  if (request.arg.size() > 64 ||
      request.arg.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return HttpResponse::error({Code::kInvalid,
                                "an entry is named by its key or the beginning of it",
                                "send up to 64 lower-case hex digits"});
  }
  auto entry = service.store.entry(request.arg);
  if (!entry.ok()) return HttpResponse::error(entry.error());
  js::object object = entry_json(*entry);
  std::string detail;
  if (entry->failed) {
    auto failure = service.store.failure(entry->key);
    if (!failure.ok()) return HttpResponse::error(failure.error());
    if (*failure) {
      js::object shown = failure_json(**failure);
      shown["parts"] = parts_to_json((*failure)->parts);
      object["failure"] = std::move(shown);
    }
    return answer(object);
  }
  auto manifest = service.store.peek(entry->key);
  if (!manifest.ok()) return HttpResponse::error(manifest.error());
  if (*manifest) object["manifest"] = js::parse((*manifest)->to_json());
  return answer(object);
}

HttpResponse prune(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  PruneRequest wanted;
  EntryFilter& filter = wanted.filter;
  std::optional<bool> dry_run;
  Status ok = Optional(*object)
                  .text("namespace", filter.name_space)
                  .text("compiler", filter.compiler)
                  .text("model", filter.model)
                  .text("kind", filter.kind)
                  .seconds("older_than_s", filter.older_than_s)
                  .seconds("unused_since_s", filter.unused_since_s)
                  .boolean("failed", filter.failed)
                  .natural("max_bytes", wanted.max_bytes)
                  .natural("max_entries", wanted.max_entries)
                  .boolean("dry_run", dry_run)
                  .done();
  if (!ok.ok()) return HttpResponse::error(ok.error());
  wanted.dry_run = dry_run.value_or(false);
  auto result = service.store.prune(wanted);
  if (!result.ok()) return HttpResponse::error(result.error());
  js::array kept;
  for (const auto& one : result->kept) {
    kept.push_back(js::object{{"key", one.key.hex()}, {"why", one.why}});
  }
  return answer({{"entries", entries_json(result->removed)},
                 {"count", result->removed.size()},
                 {"bytes", result->bytes},
                 {"swept_bytes", result->swept_bytes},
                 {"rebuild_seconds", result->rebuild_seconds},
                 {"kept", std::move(kept)}});
}

HttpResponse verify(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  std::optional<std::string> after;
  std::optional<std::uint64_t> limit;
  std::optional<bool> repair;
  Status ok = Optional(*object)
                  .text("after", after)
                  .natural("limit", limit)
                  .boolean("repair", repair)
                  .done();
  if (!ok.ok()) return HttpResponse::error(ok.error());
  auto page = service.store.verify(
      after.value_or(""), std::clamp<std::uint64_t>(limit.value_or(kVerifyPage), 1, kVerifyPage),
      repair.value_or(false));
  if (!page.ok()) return HttpResponse::error(page.error());
  js::array bad;
  for (const auto& one : page->bad) {
    // A key names an entry, anything else is a blob.
    const bool is_key = one.what.size() == 64 &&
                        service.store.peek(*ActionKey::from_hex(one.what)).ok() &&
                        service.store.entry(one.what).ok();
    bad.push_back(js::object{
        {is_key ? "key" : "digest", one.what}, {"problem", one.problem}, {"action", one.action}});
  }
  return answer({{"checked", page->checked},
                 {"bytes", page->bytes},
                 {"bad", std::move(bad)},
                 {"orphans", page->orphans},
                 {"next", cursor_json(page->next)}});
}

HttpResponse pin(Service& service, const HttpRequest& request) {
  auto object = body_of(request);
  if (!object.ok()) return HttpResponse::error(object.error());
  ActionKey key;
  JsonFields fields(*object, "the body");
  fields.require("key").require("pinned");
  fields.digest("key", key);
  std::optional<bool> pinned;
  if (Status ok = fields.done(); !ok.ok()) return HttpResponse::error(ok.error());
  if (Status ok = Optional(*object).boolean("pinned", pinned).done(); !ok.ok()) {
    return HttpResponse::error(ok.error());
  }
  if (Status done = service.store.pin(key, pinned.value_or(true)); !done.ok()) {
    return HttpResponse::error(done.error());
  }
  return answer({{"key", key.hex()}, {"pinned", pinned.value_or(true)}});
}

}  // namespace nc::daemon

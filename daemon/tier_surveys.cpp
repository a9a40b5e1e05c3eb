// POST /v1/tiers/...: entries sent to and brought from a tier by hand, and looking after one. They
// may take their time, so they run on the threads that ask tiers, one page a call.
#include <algorithm>
#include <utility>

#include "cache/json_fields.hpp"
#include "cache/tier/survey.hpp"
#include "daemon/answers.hpp"
#include "daemon/service.hpp"

namespace nc::daemon {
namespace {

namespace js = boost::json;

constexpr std::int64_t kMaxPage = 1000;
constexpr std::int64_t kMaxSeconds = 400LL * 366 * 86'400;
constexpr Millis kDefaultGraceMs = 24 * 3'600'000;
constexpr Millis kLeastGraceMs = 2 * 3'600'000;  // covers clocks that are an hour off

struct Asked {
  std::string tier;
  tier::TierFilter filter;
  std::string after;
  std::size_t limit = 100;
  bool dry_run = false, deep = false, repair = false, untrusted = false;
  Millis grace_ms = kDefaultGraceMs;
};

void flag(JsonFields& fields, std::string_view name, bool& out) {
  const auto* value = fields.member(name);
  if (value == nullptr || value->is_null()) return;
  if (!value->is_bool()) return fields.fail(Code::kInvalid, name, "is not true or false");
  out = value->get_bool();
}

void seconds(JsonFields& fields, std::string_view name, std::optional<double>& out) {
  std::int64_t value = -1;
  fields.integer(name, value, 0, kMaxSeconds);
  if (value >= 0) out = static_cast<double>(value);
}

Result<Asked> parse(const HttpRequest& request) {
  NC_ASSIGN(const auto object, parse_json_object(request.body, request.body.size(), "the body"));
  Asked asked;
  JsonFields fields(object, "the body");
  fields.text("tier", asked.tier)
      .text("namespace", asked.filter.name_space, 64)
      .text("model", asked.filter.model)
      .text("compiler", asked.filter.compiler)
      .text("after", asked.after)
      .integer("limit", asked.limit, 1, kMaxPage);
  seconds(fields, "older_than_s", asked.filter.older_than_s);
  seconds(fields, "newer_than_s", asked.filter.newer_than_s);
  flag(fields, "dry_run", asked.dry_run);
  flag(fields, "deep", asked.deep);
  flag(fields, "repair", asked.repair);
  flag(fields, "untrusted", asked.untrusted);
  std::int64_t grace_s = kDefaultGraceMs / 1000;
  fields.integer("grace_s", grace_s, kLeastGraceMs / 1000, kMaxSeconds);
  asked.grace_ms = grace_s * 1000;
  NC_TRY(fields.done());
  return asked;
}

// Runs `work(asked, survey)` where it may block.
template <class Work>
void on_tier(Service& service, Call call, bool changes, Work work) {
  auto asked = parse(call.request);
  if (!asked.ok()) return call.reply(HttpResponse::error(asked.error()));
  auto link = service.tiers.any() ? service.tiers.chain().link(asked->tier)
                                  : Result<tier::Link*>(Error{Code::kNotFound, "there are no tiers",
                                                              "name some in the setting `tiers`"});
  if (!link.ok()) return call.reply(HttpResponse::error(link.error()));
  if (changes && !(*link)->writable()) {
    return call.reply(HttpResponse::error(
        {Code::kReadOnly, "the tier " + (*link)->name() + " is set read_only", ""}));
  }
  const Reply reply = call.reply;
  const bool posted =
      service.tiers.post([&service, link = *link, asked = *std::move(asked), work, reply] {
        tier::Survey survey({*link, service.tiers.chain().transfer(), service.store, service.clock,
                             system_random()});
        reply(work(asked, survey, *link));
      });
  if (!posted) {
    reply(HttpResponse::error({Code::kBusy, "too much is asked of the tiers", "try again later"}));
  }
}

js::object row_json(const tier::Survey::Row& row) {
  return {{"key", row.key.hex()},         {"namespace", row.name_space}, {"label", row.label},
          {"model", row.model},           {"compiler", row.compiler},    {"bytes", row.bytes},
          {"created_ms", row.created_ms}, {"state", row.state},          {"problem", row.problem}};
}

js::value cursor(const std::string& next) {
  return next.empty() ? js::value(nullptr) : js::value(next);
}

HttpResponse page_answer(const Result<tier::Survey::Page>& page) {
  if (!page.ok()) return HttpResponse::error(page.error());
  js::array entries;
  for (const auto& row : page->rows) entries.push_back(row_json(row));
  return answer({{"entries", std::move(entries)}, {"next", cursor(page->next)}});
}

js::array bad_json(const std::vector<tier::Survey::Check::Bad>& list) {
  js::array out;
  for (const auto& one : list) {
    out.push_back(js::object{{"what", one.what}, {"problem", one.problem}, {"action", one.action}});
  }
  return out;
}

HttpResponse push(Service& service, const Asked& asked, tier::Link& link) {
  EntryFilter filter;
  if (!asked.filter.name_space.empty()) filter.name_space = asked.filter.name_space;
  if (!asked.filter.model.empty()) filter.model = asked.filter.model;
  if (!asked.filter.compiler.empty()) filter.compiler = asked.filter.compiler;
  filter.older_than_s = asked.filter.older_than_s;
  filter.failed = false;  // what failed here is nobody else's business
  auto page = service.store.entries(filter, asked.after, asked.limit);
  if (!page.ok()) return HttpResponse::error(page.error());
  js::array entries;
  for (const EntryInfo& entry : *page) {
    const double age_s = static_cast<double>(service.clock.wall_ms() - entry.created_ms) / 1000;
    if (asked.filter.newer_than_s && age_s >= *asked.filter.newer_than_s) continue;
    tier::Survey::Row row{entry.key,   entry.name_space, entry.label, entry.model, entry.compiler,
                          entry.bytes, entry.created_ms, "found",     ""};
    if (!asked.dry_run) {
      Status queued = service.tiers.chain().queue(entry.key, link.name());
      row.state = queued.ok() ? "queued" : "failed";
      if (!queued.ok()) row.problem = queued.error().text();
    }
    entries.push_back(row_json(row));
  }
  const auto next = page->size() < asked.limit ? std::string() : page->back().key.hex();
  return answer({{"entries", std::move(entries)}, {"next", cursor(next)}});
}

}  // namespace

void push_entries(Service& service, Call call) {
  on_tier(service, std::move(call), true,
          [&service](const Asked& asked, tier::Survey&, tier::Link& link) {
            return push(service, asked, link);
          });
}

void pull_entries(Service& service, Call call) {
  if (service.read_only) {
    return call.reply(HttpResponse::error(
        {Code::kReadOnly, "the store is read-only", "start the daemon without read_only"}));
  }
  on_tier(service, std::move(call), false, [](const Asked& asked, tier::Survey& survey, auto&) {
    return page_answer(survey.pull(asked.filter, asked.after, asked.limit, asked.dry_run));
  });
}

void prune_tier(Service& service, Call call) {
  on_tier(service, std::move(call), true, [](const Asked& asked, tier::Survey& survey, auto&) {
    return page_answer(survey.prune(asked.filter, asked.after, asked.limit, asked.dry_run));
  });
}

void verify_tier(Service& service, Call call) {
  const auto work = [](const Asked& asked, tier::Survey& survey, tier::Link& link) {
    if (asked.repair && !link.writable()) {
      return HttpResponse::error(
          {Code::kReadOnly, "the tier " + link.name() + " is set read_only", ""});
    }
    using Repair = tier::Survey::Repair;
    const Repair repair = !asked.repair     ? Repair::kNo
                          : asked.untrusted ? Repair::kUntrusted
                                            : Repair::kDamaged;
    auto check = survey.verify(asked.after, asked.limit, asked.deep, repair);
    if (!check.ok()) return HttpResponse::error(check.error());
    return answer({{"checked", check->checked},
                   {"bytes", check->bytes},
                   {"bad", bad_json(check->bad)},
                   {"untrusted", bad_json(check->untrusted)},
                   {"next", cursor(check->next)}});
  };
  on_tier(service, std::move(call), false, work);
}

void collect_tier(Service& service, Call call) {
  const auto work = [](const Asked& asked, tier::Survey& survey, auto&) {
    auto got = survey.collect(asked.grace_ms, asked.dry_run);
    if (!got.ok()) return HttpResponse::error(got.error());
    return answer({{"entries", got->entries},
                   {"blobs", got->blobs},
                   {"bytes", got->bytes},
                   {"damaged", got->damaged},
                   {"unused", got->unused},
                   {"marked", got->marked},
                   {"removed", got->removed},
                   {"removed_bytes", got->removed_bytes},
                   {"leases", got->leases},
                   {"leases_removed", got->leases_removed}});
  };
  on_tier(service, std::move(call), true, work);
}

}  // namespace nc::daemon

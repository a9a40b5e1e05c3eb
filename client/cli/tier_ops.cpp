#include "client/cli/tier_ops.hpp"

#include <cmath>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/render.hpp"
#include "client/json.hpp"

namespace nc::cli {
namespace {

std::string text_of(const bj::object& row, const char* name) {
  return client::json::text(row, name);
}

std::uint64_t count_of(const bj::object& row, const char* name) {
  return client::json::natural(row, name);
}

Status put_duration(const Context& context, const char* option, const char* field,
                    bj::object& body) {
  NC_ASSIGN(const auto seconds, context.duration_option(option));
  if (seconds) body[field] = static_cast<std::int64_t>(std::llround(*seconds));
  return {};
}

}  // namespace

Result<bj::object> tier_request(const Context& context, bool dry_run) {
  bj::object body{{"dry_run", dry_run}};
  for (const char* name : {"tier", "namespace", "model", "compiler"}) {
    if (const auto value = context.option(name)) body[name] = *value;
  }
  NC_TRY(put_duration(context, "older-than", "older_than_s", body));
  NC_TRY(put_duration(context, "newer-than", "newer_than_s", body));
  return body;
}

Result<TierRows> tier_pages(client::Client& client, const std::string& call, bj::object body,
                            const std::string& progress) {
  Progress shown(progress);
  TierRows all;
  for (;;) {
    NC_ASSIGN(const std::string text, client.tier_call(call, client::json::serialize(body)));
    NC_ASSIGN(bj::object page, client::json::parse_object(text, "the daemon's answer"));
    const auto* rows = page.if_contains("entries");
    if (rows != nullptr && rows->is_array()) {
      for (auto& item : rows->get_array()) {
        if (!item.is_object()) continue;
        const bj::object& row = item.get_object();
        const std::string state = text_of(row, "state");
        all.failed += state == "failed" ? 1 : 0;
        if (state != "failed" && state != "here" && state != "refused") {
          all.bytes += count_of(row, "bytes");
        }
        all.rows.push_back(row);
      }
    }
    shown.update(all.rows.size(), 0, format_size(all.bytes));
    const std::string next = text_of(page, "next");
    if (next.empty()) return all;
    body["after"] = next;
  }
}

Result<int> print_tier_rows(Context& context, const TierRows& got, const std::string& done,
                            bool dry_run, bj::object more) {
  Table table({{"KEY", "key"},
               {"STATE", "state"},
               {"SIZE", "bytes", Table::Align::kRight},
               {"LABEL", "label", Table::Align::kLeft, true},
               {"COMPILER", "compiler"},
               {"PROBLEM", "problem", Table::Align::kLeft, true}});
  std::map<std::string, std::size_t> states;
  for (const auto& item : got.rows) {
    const bj::object& row = item.get_object();
    ++states[text_of(row, "state")];
    const std::uint64_t bytes = count_of(row, "bytes");
    table.add({key_cell(text_of(row, "key")), text_of(row, "state"),
               Cell(format_size(bytes), std::to_string(bytes)), printable(text_of(row, "label")),
               printable(text_of(row, "compiler")), printable(text_of(row, "problem"))});
  }
  const int status = got.failed > 0 ? kFailed : kOk;
  if (context.format() == Format::kJson) {
    more["dry_run"] = dry_run;
    more["bytes"] = got.bytes;
    more["entries"] = got.rows;
    print_json(more);
    return status;
  }
  if (context.format() == Format::kTab) {
    print(table.tab());
    return status;
  }
  if (dry_run || got.failed > 0) {
    if (!table.empty()) print(table.text(terminal_width()) + "\n");
  }
  const auto here = states["here"];
  const auto refused = states["refused"];
  const auto count = got.rows.size() - here - refused - got.failed;
  print(fmt::format("{} {}, {}.\n", done, counted(static_cast<double>(count), "entry", "entries"),
                    format_size(got.bytes)));
  if (here > 0) print(fmt::format("{} more were here already.\n", here));
  if (refused > 0) print(fmt::format("{} are not trusted here.\n", refused));
  if (got.failed > 0) print(fmt::format("{} failed.\n", got.failed));
  return status;
}

Result<int> prune_tier(Context& context) {
  const bool dry_run = context.flag("dry-run");
  for (const char* name : {"unused-since", "max-size", "max-entries", "kind", "failed"}) {
    if (context.flag(name)) {
      return Error{Code::kInvalid, fmt::format("--{} is not for --tier", name),
                   "a tier does not know who uses what: choose by age, namespace, model, compiler"};
    }
  }
  NC_ASSIGN(bj::object body, tier_request(context, dry_run));
  const bool bounded = body.size() > 2;  // more than dry_run and tier
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  TierRows got;
  if (bounded || context.flag("all")) {
    NC_ASSIGN(got, tier_pages(session.client(), "prune", body, "removing"));
  }
  auto progress = std::make_unique<Progress>("looking for blobs that no entry names");
  bj::object collect{{"dry_run", dry_run}};
  if (const auto tier = context.option("tier")) collect["tier"] = *tier;
  NC_ASSIGN(const std::string text,
            session.client().tier_call("collect", client::json::serialize(collect)));
  NC_ASSIGN(bj::object swept, client::json::parse_object(text, "the daemon's answer"));
  progress.reset();
  if (context.format() == Format::kText) {
    const auto removed = count_of(swept, "removed");
    const auto waiting = count_of(swept, "unused") - std::min(removed, count_of(swept, "unused"));
    print(
        fmt::format("{} {} that no entry names, {}; {} more go a day after they were first seen "
                    "so.\n",
                    dry_run ? "Would remove" : "Removed",
                    counted(static_cast<double>(removed), "blob", "blobs"),
                    format_size(count_of(swept, "removed_bytes")), waiting));
    if (const auto leases = count_of(swept, "leases_removed"); leases > 0) {
      print(fmt::format("{} {} of hosts that are gone.\n", dry_run ? "Would remove" : "Removed",
                        counted(static_cast<double>(leases), "lease", "leases")));
    }
  }
  return print_tier_rows(context, got, dry_run ? "Would remove" : "Removed", dry_run,
                         bj::object{{"collected", std::move(swept)}});
}

Result<int> verify_tier(Context& context) {
  const bool repair = context.flag("repair") && !context.flag("dry-run");
  const bool all = context.flag("untrusted") && repair;
  if (context.flag("untrusted") && !context.flag("repair")) {
    return Error{Code::kInvalid, "--untrusted is for --repair",
                 "without it, what is not trusted is shown and left alone"};
  }
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  bj::object body{{"repair", repair}, {"untrusted", all}, {"deep", true}, {"limit", 16}};
  if (const auto tier = context.option("tier")) body["tier"] = *tier;
  auto progress = std::make_unique<Progress>(repair ? "checking and repairing" : "checking");
  std::uint64_t checked = 0;
  std::uint64_t bytes = 0;
  bj::array bad;
  bj::array untrusted;
  Table table({{"WHAT", "what"},
               {"PROBLEM", "problem", Table::Align::kLeft, true},
               {repair ? "DONE" : "TO DO", "action"}});
  for (;;) {
    NC_ASSIGN(const std::string text,
              session.client().tier_call("verify", client::json::serialize(body)));
    NC_ASSIGN(bj::object page, client::json::parse_object(text, "the daemon's answer"));
    checked += count_of(page, "checked");
    bytes += count_of(page, "bytes");
    progress->update(checked, 0, format_size(bytes));
    for (const auto& [kind, list] : {std::pair("bad", &bad), std::pair("untrusted", &untrusted)}) {
      const auto* rows = page.if_contains(kind);
      if (rows == nullptr || !rows->is_array()) continue;
      for (const auto& item : rows->get_array()) {
        if (!item.is_object()) continue;
        const bj::object& one = item.get_object();
        table.add({key_cell(text_of(one, "what")), printable(text_of(one, "problem")),
                   printable(text_of(one, "action"))});
        list->push_back(one);
      }
    }
    const std::string next = text_of(page, "next");
    if (next.empty()) break;
    body["after"] = next;
  }
  progress.reset();
  const bool good = bad.empty();
  switch (context.format()) {
    case Format::kTab:
      print(table.tab());
      break;
    case Format::kJson:
      print_json(bj::object{{"source", std::string(session.source_name())},
                            {"repair", repair},
                            {"checked", checked},
                            {"bytes", bytes},
                            {"orphans", 0},
                            {"bad", std::move(bad)},
                            {"untrusted", std::move(untrusted)}});
      break;
    case Format::kText:
      if (!table.empty()) print(table.text(terminal_width()) + "\n");
      print(fmt::format("Checked {} entries and blobs, {}: {}.\n", checked, format_size(bytes),
                        good && untrusted.empty() ? "all good"
                        : good                    ? "no damage"
                                                  : "see above"));
      if (!untrusted.empty()) {
        print(fmt::format("{} of them {} not trusted here{}.\n", untrusted.size(),
                          untrusted.size() == 1 ? "is" : "are",
                          all ? " and went" : ", and left to those who trust them"));
      }
  }
  return good || repair ? kOk : kFailed;
}

}  // namespace nc::cli

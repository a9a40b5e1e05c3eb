#include "client/cli/render.hpp"

#include <fmt/format.h>

namespace nc::cli {

using client::EntryManifest;
using client::EntrySummary;

bj::object entry_json(const EntrySummary& e) {
  return {{"key", e.key},         {"kind", e.kind},         {"namespace", e.name_space},
          {"label", e.label},     {"model", e.model},       {"compiler", e.compiler},
          {"bytes", e.bytes},     {"build_ms", e.build_ms}, {"created_ms", e.created_ms},
          {"used_ms", e.used_ms}, {"uses", e.uses},         {"pinned", e.pinned},
          {"in_use", e.in_use},   {"failed", e.failed}};
}

bj::array entries_json(const std::vector<EntrySummary>& entries) {
  bj::array out;
  out.reserve(entries.size());
  for (const EntrySummary& entry : entries) out.push_back(entry_json(entry));
  return out;
}

bj::array parts_json(const KeyParts& parts) {
  bj::array out;
  for (const auto& [name, value] : parts) out.push_back(bj::array{name, value});
  return out;
}

bj::object manifest_json(const EntryManifest& m) {
  bj::array outputs;
  for (const client::OutputInfo& o : m.outputs) {
    outputs.push_back(bj::object{
        {"name", o.name}, {"digest", o.digest.hex()}, {"size", o.size}, {"mode", o.mode}});
  }
  bj::object meta;
  for (const auto& [name, value] : m.meta) meta[name] = value;
  return {{"peak_rss_bytes", m.peak_rss_bytes},
          {"producer",
           {{"host", m.producer.host},
            {"pid", m.producer.pid},
            {"program", m.producer.program},
            {"version", m.producer.version}}},
          {"parts", parts_json(m.parts)},
          {"outputs", std::move(outputs)},
          {"meta", std::move(meta)}};
}

bj::object failure_json(const client::FailureInfo& f) {
  return {{"class", f.failure_class}, {"message", f.message},       {"log", f.log},
          {"exit_code", f.exit_code}, {"created_ms", f.created_ms}, {"expires_ms", f.expires_ms}};
}

bj::object miss_json(const client::MissReason& reason) {
  bj::object out{{"cause", reason.cause}, {"nearest", nullptr}};
  if (reason.nearest) {
    bj::array differs;
    for (const client::Difference& d : reason.nearest->differs) {
      differs.push_back(bj::object{{"name", d.name}, {"wanted", d.wanted}, {"have", d.have}});
    }
    out["nearest"] = bj::object{{"key", reason.nearest->key},
                                {"created_ms", reason.nearest->created_ms},
                                {"host", reason.nearest->host},
                                {"differs", std::move(differs)}};
  }
  return out;
}

std::string state_words(const EntrySummary& entry) {
  std::string out;
  const auto add = [&](bool is, const char* word) {
    if (is) out += (out.empty() ? "" : ", ") + std::string(word);
  };
  add(entry.failed, "failed");
  add(entry.pinned, "pinned");
  add(entry.in_use, "in use");
  return out;
}

Table entry_table(const std::vector<EntrySummary>& entries, Millis now) {
  using Align = Table::Align;
  Table table({{"KEY", "key"},
               {"KIND", "kind"},
               {"NAMESPACE", "namespace", Align::kLeft, true},
               {"LABEL", "label", Align::kLeft, true},
               {"COMPILER", "compiler", Align::kLeft, true},
               {"SIZE", "bytes", Align::kRight},
               {"BUILD", "build_s", Align::kRight},
               {"USES", "uses", Align::kRight},
               {"LAST USE", "used_ms", Align::kRight},
               {"STATE", "state"}});
  for (const EntrySummary& e : entries) {
    const std::string label = e.model.empty() || e.label.find(e.model) != std::string::npos
                                  ? e.label
                              : e.label.empty() ? e.model
                                                : e.model + " " + e.label;
    table.add({key_cell(e.key),
               printable(e.kind),
               printable(e.name_space),
               {printable(label), e.label},
               printable(e.compiler),
               size_cell(e.bytes),
               seconds_cell(static_cast<double>(e.build_ms) / 1000),
               count_cell(static_cast<double>(e.uses)),
               e.uses == 0 ? Cell("-", fmt::format("{}", e.used_ms)) : time_cell(e.used_ms, now),
               state_words(e)});
  }
  return table;
}

Result<std::vector<EntrySummary>> all_entries(client::Client& client,
                                              const client::EntryFilter& filter,
                                              Progress* progress) {
  constexpr std::size_t kPage = 1000;
  std::vector<EntrySummary> out;
  std::string after;
  for (;;) {
    NC_ASSIGN(client::EntryPage page, client.entries(filter, after, kPage));
    out.insert(out.end(), std::make_move_iterator(page.entries.begin()),
               std::make_move_iterator(page.entries.end()));
    if (progress != nullptr) progress->update(out.size(), 0);
    if (!page.next || *page.next == after) return out;
    after = *page.next;
  }
}

}  // namespace nc::cli

// How entries and their records look, shared by several verbs.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "client/cli/output.hpp"
#include "client/client.hpp"

namespace nc::cli {

bj::object entry_json(const client::EntrySummary& entry);
bj::array entries_json(const std::vector<client::EntrySummary>& entries);
bj::array parts_json(const KeyParts& parts);
bj::object manifest_json(const client::EntryManifest& manifest);
bj::object failure_json(const client::FailureInfo& failure);
bj::object miss_json(const client::MissReason& reason);

// Key, kind, label, compiler, size, build time, uses, last use, state.
Table entry_table(const std::vector<client::EntrySummary>& entries, Millis now);
std::string state_words(const client::EntrySummary& entry);  // "pinned, in use"

// The options of EntryFilter, for the tables of ls, prune and export.
inline constexpr OptionSpec kNamespaceOption{"namespace", "NAME",
                                             "Only what this namespace stored.", ""};
inline constexpr OptionSpec kCompilerOption{
    "compiler", "TEXT", "Only what a compiler whose name and version contain this text built.", ""};
inline constexpr OptionSpec kModelOption{
    "model", "TEXT", "Only entries of models whose name contains this text.", ""};
inline constexpr OptionSpec kKindOption{"kind", "KIND",
                                        "Only this kind of entry (graph, aot, neff, ...).", ""};
inline constexpr OptionSpec kOlderOption{"older-than", "DURATION",
                                         "Only what was built longer ago than this, e.g. 7d.", ""};
inline constexpr OptionSpec kUnusedOption{"unused-since", "DURATION",
                                          "Only what nobody has used for this long, e.g. 30d.", ""};
inline constexpr OptionSpec kFailedOption{"failed", "", "Only remembered failures.", ""};

// Every entry that fits, page by page; `progress` may be null.
Result<std::vector<client::EntrySummary>> all_entries(client::Client& client,
                                                      const client::EntryFilter& filter,
                                                      Progress* progress);

}  // namespace nc::cli

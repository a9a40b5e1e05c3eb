#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/bundle.hpp"
#include "base/bytes.hpp"
#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

using client::Client;
using client::EntrySummary;

std::string host_name() {
  const auto name = real_filesystem().read_all("/proc/sys/kernel/hostname", 256);
  return name.ok() ? name->substr(0, name->find('\n')) : "";
}

// What to write: what passes the filters, or the keys that were named. Failures stay at home.
Result<std::vector<EntrySummary>> chosen(const Context& context, Client& client) {
  NC_ASSIGN(const client::EntryFilter filter, context.filter());
  const std::vector<std::string> keys = context.all("KEY");
  std::vector<EntrySummary> out;
  if (keys.empty()) {
    Progress progress("reading entries");
    NC_ASSIGN(out, all_entries(client, filter, &progress));
    std::erase_if(out, [](const EntrySummary& e) { return e.failed; });
    return out;
  }
  std::set<std::string> seen;
  for (const std::string& key : keys) {
    NC_ASSIGN(client::EntryDetails details, client.show(key));
    if (details.summary.failed) {
      return Error{Code::kInvalid,
                   fmt::format("{} is a remembered failure; these are not exported",
                               short_key(details.summary.key)),
                   "leave it out"};
    }
    if (seen.insert(details.summary.key).second) out.push_back(std::move(details.summary));
  }
  return out;
}

struct Outcome {
  BundleTotals totals;
  std::uint64_t file_bytes = 0;
  std::uint64_t vanished = 0;  // removed from the store while we were at it
  bool resumed = false;
};

Status add_entry(Client& client, BundleWriter& writer, const EntrySummary& entry,
                 std::uint64_t& vanished, const std::function<void(std::uint64_t)>& moved) {
  const auto key = ActionKey::from_hex(entry.key);
  if (!key)
    return Error{Code::kInternal, "the daemon named an entry by no key",
                 "see `neuroncache doctor`"};
  if (writer.has(*key)) return {};
  auto manifest_json = client.manifest_json(*key);
  if (manifest_json.is(Code::kNotFound)) {
    ++vanished;
    return {};
  }
  if (!manifest_json.ok()) return std::move(manifest_json).error();
  NC_ASSIGN(const client::EntryManifest manifest, client.manifest(*key));
  std::vector<BundleBlob> blobs;
  for (const client::OutputInfo& output : manifest.outputs) {
    const BundleBlob blob{output.digest, output.size};
    if (std::find(blobs.begin(), blobs.end(), blob) == blobs.end()) blobs.push_back(blob);
  }
  Status added = writer.add(*key, *manifest_json, blobs,
                            [&](const BundleBlob& blob, const BundleWriter::Sink& sink) -> Status {
                              auto got = client.download_to(blob.digest, [&](Bytes bytes) {
                                moved(bytes.size());
                                return sink(bytes);
                              });
                              if (!got.ok()) return std::move(got).error();
                              return {};
                            });
  if (added.is(Code::kNotFound)) {
    ++vanished;
    return {};
  }
  return added;
}

Result<Outcome> write_bundle(Client& client, const std::vector<EntrySummary>& entries,
                             const std::string& path, BundleWriter::Options options) {
  BundleHeader header;
  header.creator = fmt::format("neuroncache {}", NC_VERSION);
  header.host = host_name();
  header.created_ms = system_clock().wall_ms();
  header.entries_guess = entries.size();
  for (const EntrySummary& e : entries) header.bytes_guess += e.bytes;
  NC_ASSIGN(BundleWriter writer, BundleWriter::open(real_filesystem(), path, header, options));
  Outcome outcome;
  outcome.resumed = writer.resumed();
  if (outcome.resumed) {
    note(fmt::format("going on with {} ({} entries are in it)", writer.partial_path(),
                     writer.totals().entries));
  }
  Progress progress("exporting");
  std::uint64_t before = 0;  // bytes of the entries that are done
  for (const EntrySummary& entry : entries) {
    std::uint64_t within = 0;
    const Status added = add_entry(client, writer, entry, outcome.vanished, [&](std::uint64_t n) {
      within += n;
      progress.update(before + within, header.bytes_guess, format_size(writer.file_bytes()));
    });
    if (!added.ok()) {
      Error error = added.error();
      error.message = fmt::format("export of {}: {}", short_key(entry.key), error.message);
      error.action =
          fmt::format("{}{}then run the same command again: it goes on from {}", error.action,
                      error.action.empty() ? "" : "; ", writer.partial_path());
      return error;
    }
    before += entry.bytes;
    progress.update(before, header.bytes_guess, format_size(writer.file_bytes()));
  }
  NC_ASSIGN(outcome.totals, writer.finish());
  outcome.file_bytes = writer.file_bytes();
  return outcome;
}

Result<int> run(Context& context) {
  for (const std::string& key : context.all("KEY")) NC_TRY(check_key(key));
  std::error_code ec;
  const std::string path =
      std::filesystem::absolute(context.option("FILE").value_or(""), ec).lexically_normal();
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  if (session.source() == Session::Source::kNone) {
    return Error{Code::kNotFound, "there is nothing to export: nothing was cached yet",
                 "check --dir"};
  }
  NC_ASSIGN(const std::vector<EntrySummary> entries, chosen(context, session.client()));
  if (entries.empty())
    return Error{Code::kNotFound, "no entry fits", "see `neuroncache ls` with the same filters"};
  BundleWriter::Options options;
  options.replace = context.flag("force");
  options.restart = context.flag("restart");
  NC_ASSIGN(const Outcome outcome, write_bundle(session.client(), entries, path, options));
  switch (context.format()) {
    case Format::kText:
      print(fmt::format("Exported {} ({}, {}) to {} ({}).\n",
                        counted(static_cast<double>(outcome.totals.entries), "entry", "entries"),
                        counted(static_cast<double>(outcome.totals.blobs), "blob", "blobs"),
                        format_size(outcome.totals.bytes), path, format_size(outcome.file_bytes)));
      if (outcome.vanished > 0)
        print(fmt::format(
            "{} removed from the store meanwhile.\n",
            counted(static_cast<double>(outcome.vanished), "entry was", "entries were")));
      break;
    case Format::kJson:
      print_json(bj::object{{"file", path},
                            {"entries", outcome.totals.entries},
                            {"blobs", outcome.totals.blobs},
                            {"bytes", outcome.totals.bytes},
                            {"file_bytes", outcome.file_bytes},
                            {"vanished", outcome.vanished},
                            {"resumed", outcome.resumed}});
      break;
    case Format::kTab:
      print(
          fmt::format("file\tentries\tblobs\tbytes\tfile_bytes\tvanished\tresumed\n{}\t{}\t{}\t{}"
                      "\t{}\t{}\t{}\n",
                      path, outcome.totals.entries, outcome.totals.blobs, outcome.totals.bytes,
                      outcome.file_bytes, outcome.vanished, outcome.resumed ? 1 : 0));
      break;
  }
  return kOk;
}

constexpr ArgumentSpec kArguments[] = {
    {"FILE", "Where to; FILE.partial while it is being written.", true, false, ""},
    {"KEY", "Which entries (keys or beginnings of them); none: all that pass the filters.", false,
     true, ""},
};
constexpr OptionSpec kOptions[] = {
    kNamespaceOption,
    kCompilerOption,
    kModelOption,
    kKindOption,
    kOlderOption,
    kUnusedOption,
    {"force", "", "Replace FILE when it exists.", ""},
    {"restart", "", "Begin anew instead of going on with FILE.partial.", ""},
};

}  // namespace

extern constinit const Verb kExportVerb{
    .name = "export",
    .summary = "Write entries into one portable file.",
    .details =
        "Every byte is checked on the way out and again on the way in. An export that was "
        "interrupted is gone on with when\n"
        "the same command is run again. Remembered failures are not exported.",
    .arguments = kArguments,
    .options = kOptions,
    .examples = "neuroncache export llama.ncb --model llama # for another cluster",
    .run = run};

}  // namespace nc::cli

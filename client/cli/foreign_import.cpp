#include "client/cli/foreign_import.hpp"

#include <unistd.h>

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/autostart.hpp"
#include "client/cli/build_site.hpp"
#include "client/cli/command_run.hpp"
#include "client/cli/foreign_key.hpp"
#include "client/cli/foreign_layout.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"
#include "client/codec.hpp"

namespace nc::cli {
namespace {

struct Totals {
  std::uint64_t imported = 0;
  std::uint64_t keyed = 0;  // the wrapper finds them
  std::uint64_t present = 0;
  std::uint64_t blobs = 0;
  std::uint64_t bytes = 0;
};

std::string host_name() {
  const auto name = real_filesystem().read_all("/proc/sys/kernel/hostname", 256);
  return name.ok() ? name->substr(0, name->find('\n')) : "";
}

// "neuronxcc-2.20" -> "neuronx-cc 2.20", as entries that the wrapper builds have it.
std::string compiler_text(const ForeignPlace& place) {
  if (place.layout == Layout::kNeffCache) return "neuronx-cc (version not recorded)";
  return "neuronx-cc " + place.compiler.substr(place.compiler.find('-') + 1);
}

client::EntryManifest manifest_of(const ForeignEntry& entry, KeyParts parts, const ActionKey& key) {
  client::EntryManifest manifest;
  manifest.key = key;
  manifest.kind = "neff";
  manifest.label = entry.place.name;
  manifest.compiler = compiler_text(entry.place);
  manifest.created_ms = system_clock().wall_ms();
  manifest.producer = {host_name(), ::getpid(), "neuroncache import", NC_VERSION};
  manifest.parts = std::move(parts);
  manifest.meta = {
      {"layout", std::string(layout_name(entry.place.layout))},
      {"place", entry.place.path()},
      {"not_known", entry.place.layout == Layout::kNeffCache
                        ? "graph, flags, compiler and environment: the layout keeps only the key"
                        : "the compiler's package and the environment of the compile"},
  };
  return manifest;
}

class ForeignImporter {
 public:
  explicit ForeignImporter(client::Client& client) : client_(client) {}

  // An error is the daemon's or ours; what is wrong with the files goes into `skipped`.
  Status take(const ForeignEntry& entry, std::vector<ForeignSkip>& skipped) {
    NC_ASSIGN(const ActionKey key, action_key(entry.place.parts()));
    auto there = client_.manifest(key);
    if (there.ok()) {
      ++totals_.present;
      return {};
    }
    if (!there.is(Code::kNotFound)) return std::move(there).error();
    client::EntryManifest manifest = manifest_of(entry, entry.place.parts(), key);
    for (const auto& [name, path] : entry.files) {
      auto output = upload(name, path);
      // Somebody else writes to it, or takes it away.
      if (output.is(Code::kNotFound) || output.is(Code::kDenied) ||
          output.is(Code::kDigestMismatch) || output.is(Code::kConflict)) {
        skipped.push_back({entry.place.path(), output.error().message});
        return {};
      }
      if (!output.ok()) return std::move(output).error();
      manifest.outputs.push_back(std::move(*output));
    }
    NC_ASSIGN(const bool published,
              client_.commit_import(key, client::codec::manifest_text(manifest)));
    ++(published ? totals_.imported : totals_.present);
    return {};
  }

  // Under the wrapper's key as well, with what a compiler that succeeds leaves.
  Status take_for_wrapper(const ForeignEntry& entry, const WrapperKeys& keys,
                          std::vector<ForeignSkip>& not_keyed) {
    auto parts = keys.parts_of(entry);
    if (!parts.ok()) {
      not_keyed.push_back({entry.place.path(), parts.error().message});
      return {};
    }
    NC_ASSIGN(const ActionKey key, action_key(*parts));
    client::EntryManifest manifest = manifest_of(entry, *std::move(parts), key);
    manifest.meta["not_known"] = "the environment of the compile: taken to be that of the import";
    auto neff = upload(std::string(kNeffOutput), entry.files.at(std::string(kNeffOutput)));
    if (!neff.ok()) return std::move(neff).error();
    manifest.outputs.push_back(std::move(*neff));
    constexpr std::string_view kPass = "Compiler status PASS\n";
    const Digest digest = Digest::of(as_bytes(kPass));
    NC_TRY(client_.upload(digest, as_bytes(kPass), {}));
    for (const char* name : {"stdout", "log"})
      manifest.outputs.push_back({name, digest, kPass.size(), 0644});
    NC_TRY(client_.commit_import(key, client::codec::manifest_text(manifest)));
    ++totals_.keyed;
    return {};
  }

  const Totals& totals() const { return totals_; }

 private:
  Result<client::OutputInfo> upload(const std::string& name, const std::string& path) {
    NC_ASSIGN(const FileInfo before, real_filesystem().stat(path));
    client::Client::UploadOptions options;
    options.may_compress = name != kNeffOutput;  // a NEFF is served by its path
    NC_ASSIGN(const client::Client::Uploaded uploaded, client_.upload_file(path, options));
    NC_ASSIGN(const FileInfo after, real_filesystem().stat(path));
    if (before.size != uploaded.size || after.size != before.size || after.inode != before.inode ||
        after.mtime_ms != before.mtime_ms) {
      return Error{Code::kConflict, path + " changed while it was read", "import it again"};
    }
    if (!uploaded.existed) {
      ++totals_.blobs;
      totals_.bytes += uploaded.size;
    }
    return client::OutputInfo{name, uploaded.digest, uploaded.size, 0644};
  }

  client::Client& client_;
  Totals totals_;
};

// Engines are the daemon's, so its program does the copying.
Status fetch_bucket(const Context& context, const std::string& where, const std::string& root) {
  CommandSpec spec;
  spec.env = process_environment();
  NC_ASSIGN(std::string daemon, client::find_daemon(context.settings().text("daemon_path"),
                                                    variable_of(spec.env, "PATH")));
  spec.argv = {std::move(daemon), "--copy-bucket", where, "--into", root};
  spec.output_to_stderr = true;
  constexpr Millis kTickMs = 1'000;
  NC_ASSIGN(const CommandEnd end, run_command(spec, kTickMs, [] {}));
  if (end.status() == 0) return {};
  return Error{Code::kUnavailable, "the bucket could not be copied",
               "see above; credentials and endpoint are those of docs/tiers.md"};
}

void report(const Context& context, std::string_view layout, const std::string& root,
            std::size_t entries, const Totals& t, const std::vector<ForeignSkip>& skipped,
            const std::vector<ForeignSkip>& not_keyed) {
  const auto list = [](const std::vector<ForeignSkip>& skips) {
    bj::array out;
    for (const ForeignSkip& skip : skips)
      out.push_back(bj::object{{"path", skip.path}, {"reason", skip.reason}});
    return out;
  };
  switch (context.format()) {
    case Format::kText:
      print(fmt::format("Imported {} ({}, {}); {} there already.\n",
                        counted(static_cast<double>(t.imported), "entry", "entries"),
                        counted(static_cast<double>(t.blobs), "blob", "blobs"),
                        format_size(t.bytes),
                        counted(static_cast<double>(t.present), "was", "were")));
      for (const ForeignSkip& skip : skipped)
        print(fmt::format("Left out: {} {}\n", printable(skip.path), printable(skip.reason)));
      if (t.keyed > 0) {
        print(fmt::format("The wrapper finds {} of them.\n", t.keyed));
      }
      for (const ForeignSkip& skip : not_keyed)
        print(fmt::format("Not for the wrapper: {} {}\n", printable(skip.path),
                          printable(skip.reason)));
      break;
    case Format::kJson:
      print_json(bj::object{{"layout", layout},
                            {"directory", root},
                            {"entries", entries},
                            {"imported", t.imported},
                            {"present", t.present},
                            {"blobs", t.blobs},
                            {"bytes", t.bytes},
                            {"keyed", t.keyed},
                            {"skipped", list(skipped)},
                            {"not_keyed", list(not_keyed)}});
      break;
    case Format::kTab:
      print(fmt::format(
          "directory\tlayout\tentries\timported\tpresent\tblobs\tbytes\tkeyed\tskipped\n{}\t{}\t{}"
          "\t{}\t{}\t{}\t{}\t{}\t{}\n",
          printable(root), layout, entries, t.imported, t.present, t.blobs, t.bytes, t.keyed,
          skipped.size()));
      break;
  }
}

}  // namespace

Result<int> import_foreign(Context& context, const std::string& layout, const std::string& where) {
  NC_ASSIGN(const Layout from, parse_layout(layout));
  std::error_code ec;
  std::string root = std::filesystem::absolute(where, ec).lexically_normal();
  std::optional<ScratchDir> bucket;
  if (where.starts_with("s3://")) {
    auto made = ScratchDir::make();
    if (!made.ok()) return std::move(made).error();
    bucket.emplace(*std::move(made));
    root = bucket->work();
    NC_TRY(fetch_bucket(context, where, root));
  }
  // Before a daemon is started: what is no such cache is refused at once.
  NC_ASSIGN(ForeignScan scan, scan_layout(from, root));
  std::optional<WrapperKeys> keys;
  if (const auto compiler = context.option("compiler")) {
    if (from != Layout::kNeuronCache) {
      return Error{Code::kInvalid, "a neff-cache does not keep what the wrapper's key is made of",
                   "leave --compiler out, or import a neuron-cache"};
    }
    NC_ASSIGN(keys, WrapperKeys::open(*compiler, context.store_dir()));
  }
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  std::vector<ForeignSkip> not_keyed;
  ForeignImporter importer(session.client());
  {
    Progress progress("importing");
    std::uint64_t done = 0;
    for (const ForeignEntry& entry : scan.entries) {
      Status taken = importer.take(entry, scan.skipped);
      if (taken.ok() && keys) taken = importer.take_for_wrapper(entry, *keys, not_keyed);
      if (!taken.ok()) {
        Error error = std::move(taken).error().context(entry.place.path());
        error.action += error.action.empty() ? "run the same command again: it skips what is there"
                                             : "; then run the same command again";
        return error;
      }
      progress.update(++done, scan.entries.size(), entry.place.name);
    }
  }
  const Totals& totals = importer.totals();
  report(context, layout, bucket ? where : root, scan.entries.size(), totals, scan.skipped,
         not_keyed);
  return totals.imported + totals.present > 0 ? kOk : kFailed;
}

}  // namespace nc::cli

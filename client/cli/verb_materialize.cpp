#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "base/unique_fd.hpp"
#include "client/cli/foreign_layout.hpp"
#include "client/cli/output.hpp"
#include "client/cli/render.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

struct Totals {
  std::uint64_t written = 0;
  std::uint64_t present = 0;
  std::uint64_t bytes = 0;
};

// Files come to be by a rename, as the owners of the layouts do it, so that a program that reads
// the directory at the same time sees whole files only.
class Writer {
 public:
  Writer(client::Client& client, std::string root) : client_(client), root_(std::move(root)) {}

  Status write(const ForeignPlace& place, const client::EntryManifest& manifest,
               std::vector<ForeignSkip>& skipped) {
    const client::OutputInfo* neff = output(manifest, kNeffOutput);
    if (neff == nullptr || neff->size == 0) {
      skipped.push_back({place.path(), "has no NEFF in the store"});
      return {};
    }
    return place.layout == Layout::kNeffCache ? write_neff(place, *neff, skipped)
                                              : write_module(place, manifest, *neff, skipped);
  }

  const Totals& totals() const { return totals_; }

 private:
  static const client::OutputInfo* output(const client::EntryManifest& manifest,
                                          std::string_view name) {
    for (const client::OutputInfo& one : manifest.outputs) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  Status write_neff(const ForeignPlace& place, const client::OutputInfo& neff,
                    std::vector<ForeignSkip>& skipped) {
    const std::string path = root_ + "/" + place.path();
    NC_TRY(real_filesystem().make_dirs(parent_dir(path), 0755));
    if (exists(path)) return keep(place, path, neff, skipped);
    NC_TRY(fetch(neff, path));
    ++totals_.written;
    return {};
  }

  // model.done comes last: it is what says that the rest is whole.
  Status write_module(const ForeignPlace& place, const client::EntryManifest& manifest,
                      const client::OutputInfo& neff, std::vector<ForeignSkip>& skipped) {
    const std::string dir = root_ + "/" + place.path();
    NC_TRY(real_filesystem().make_dirs(dir, 0755));
    NC_ASSIGN(const std::vector<std::string> names, real_filesystem().list(dir));
    for (const std::string& name : names) {
      if (name.ends_with(".lock")) {
        skipped.push_back({place.path(), "is locked by " + name});
        return {};
      }
    }
    const std::string path = dir + "/model.neff";
    if (exists(path) && exists(dir + "/model.done")) return keep(place, path, neff, skipped);
    for (const client::OutputInfo& one : manifest.outputs) {
      if (is_module_file(one.name) && !exists(dir + "/" + one.name))
        NC_TRY(fetch(one, dir + "/" + one.name));
    }
    NC_TRY(fetch(neff, path));
    Status unlogged = real_filesystem().remove(dir + "/model.log");  // of a failure before
    if (!unlogged.ok() && !unlogged.is(Code::kNotFound)) return unlogged;
    NC_TRY(real_filesystem().write_atomically(dir + "/model.done", {}, 0644));
    ++totals_.written;
    return {};
  }

  // Something is there. It stays; that it is another thing is told.
  Status keep(const ForeignPlace& place, const std::string& path, const client::OutputInfo& neff,
              std::vector<ForeignSkip>& skipped) {
    NC_ASSIGN(const std::unique_ptr<Mapping> mapping, real_filesystem().map(path));
    if (Sha256::of(mapping->bytes()) == neff.digest) {
      ++totals_.present;
    } else {
      skipped.push_back({place.path(), "is there with other contents, which stay"});
    }
    return {};
  }

  Status fetch(const client::OutputInfo& output, const std::string& path) {
    std::string aside = parent_dir(path) + "/.tmp.XXXXXX";
    const UniqueFd fd(::mkostemp(aside.data(), O_CLOEXEC));
    if (!fd.valid()) return errno_error(errno, "cannot write in", parent_dir(path));
    Status done = fill(fd.get(), output, aside);
    if (done.ok() && ::fchmod(fd.get(), 0644) != 0)
      done = errno_error(errno, "cannot set the mode of", aside);
    if (done.ok()) done = real_filesystem().rename(aside, path);
    if (!done.ok()) {
      ignore_error(real_filesystem().remove(aside), "the first error is told");
      return done;
    }
    totals_.bytes += output.size;
    return {};
  }

  Status fill(int fd, const client::OutputInfo& output, const std::string& aside) {
    Sha256Hasher hasher;
    auto fetched = client_.download_to(output.digest, [&](Bytes bytes) -> Status {
      hasher.update(bytes);
      std::string_view left = as_text(bytes);
      while (!left.empty()) {
        const ssize_t n = ::write(fd, left.data(), left.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno_error(errno, "cannot write", aside);
        left.remove_prefix(static_cast<std::size_t>(n));
      }
      return {};
    });
    if (!fetched.ok()) return std::move(fetched).error();
    if (hasher.finish() != output.digest) {
      return Error{Code::kDigestMismatch, "what the store gave for an output is damaged",
                   "run `neuroncache verify --repair`"};
    }
    return {};
  }

  static bool exists(const std::string& path) {
    std::error_code ignored;
    return std::filesystem::exists(path, ignored);
  }

  client::Client& client_;
  std::string root_;
  Totals totals_;
};

void report(const Context& context, Layout layout, const std::string& root, const Totals& t,
            const std::vector<ForeignSkip>& skipped) {
  switch (context.format()) {
    case Format::kText:
      print(fmt::format("Wrote {} ({}) to {}; {} there already.\n",
                        counted(static_cast<double>(t.written), "entry", "entries"),
                        format_size(t.bytes), printable(root),
                        counted(static_cast<double>(t.present), "was", "were")));
      for (const ForeignSkip& skip : skipped)
        print(fmt::format("Left out: {} {}\n", printable(skip.path), printable(skip.reason)));
      break;
    case Format::kJson: {
      bj::array left_out;
      for (const ForeignSkip& skip : skipped)
        left_out.push_back(bj::object{{"path", skip.path}, {"reason", skip.reason}});
      print_json(bj::object{{"layout", layout_name(layout)},
                            {"directory", root},
                            {"written", t.written},
                            {"present", t.present},
                            {"bytes", t.bytes},
                            {"skipped", std::move(left_out)}});
      break;
    }
    case Format::kTab:
      print(fmt::format(
          "directory\tlayout\twritten\tpresent\tbytes\tskipped\n{}\t{}\t{}\t{}\t{}\t{}\n",
          printable(root), layout_name(layout), t.written, t.present, t.bytes, skipped.size()));
      break;
  }
}

struct Candidate {
  ForeignPlace place;
  client::EntryManifest manifest;
  bool imported = false;  // else built by the wrapper
  bool ambiguous = false;
};
using Candidates = std::map<std::string, Candidate>;  // by path

Digest neff_of(const client::EntryManifest& manifest) {
  for (const client::OutputInfo& output : manifest.outputs) {
    if (output.name == kNeffOutput) return output.digest;
  }
  return {};
}

// The entries that have a place in the layout. What was imported into a place has precedence over
// what the wrapper built for it; of different things that the wrapper built, none can be told to be
// the one.
Result<Candidates> placed(client::Client& client, Layout layout,
                          const std::vector<client::EntrySummary>& entries) {
  Candidates out;
  Progress progress("reading entries");
  std::uint64_t seen = 0;
  for (const client::EntrySummary& entry : entries) {
    progress.update(++seen, entries.size(), entry.label);
    const auto key = ActionKey::from_hex(entry.key);
    if (!key || entry.failed) continue;
    auto manifest = client.manifest(*key);
    if (manifest.is(Code::kNotFound)) continue;  // removed meanwhile
    if (!manifest.ok()) return std::move(manifest).error();
    auto place = ForeignPlace::from(manifest->parts);
    const bool imported = place.has_value();
    if (!imported) place = ForeignPlace::from_command(manifest->label, manifest->compiler);
    if (!place || place->layout != layout) continue;
    const std::string path = place->path();
    const auto [at, fresh] = out.try_emplace(path, Candidate{*place, *manifest, imported, false});
    Candidate& first = at->second;
    if (fresh || (first.imported && !imported)) continue;
    if (imported) {
      first = Candidate{*place, *std::move(manifest), true, false};
    } else if (neff_of(first.manifest) != neff_of(*manifest)) {
      first.ambiguous = true;
    }
  }
  return out;
}

Result<int> run(Context& context) {
  const auto name = context.option("layout");
  if (!name)
    return Error{Code::kInvalid, "--layout is missing", "say --layout neff-cache or neuron-cache"};
  NC_ASSIGN(const Layout layout, parse_layout(*name));
  NC_ASSIGN(client::EntryFilter filter, context.filter());
  filter.kind = "neff";
  std::error_code ec;
  const std::string root =
      std::filesystem::absolute(context.option("DIR").value_or(""), ec).lexically_normal();
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kRead));
  if (session.source() == Session::Source::kNone) {
    return Error{Code::kNotFound, "there is nothing to lay out: nothing was cached yet",
                 "check --dir"};
  }
  client::Client& client = session.client();
  NC_ASSIGN(const std::vector<client::EntrySummary> entries, all_entries(client, filter, nullptr));
  NC_ASSIGN(const Candidates candidates, placed(client, layout, entries));
  if (candidates.empty()) {
    return Error{Code::kNotFound,
                 fmt::format("no entry fits that has a place in the layout {}", *name),
                 fmt::format("entries get one by `neuroncache import --from {}`", *name)};
  }
  Writer writer(client, root);
  std::vector<ForeignSkip> skipped;
  {
    Progress progress("writing");
    std::uint64_t done = 0;
    for (const auto& [path, candidate] : candidates) {
      if (candidate.ambiguous) {
        skipped.push_back({path, "was built several times, with different results"});
      } else {
        NC_TRY(writer.write(candidate.place, candidate.manifest, skipped));
      }
      progress.update(++done, candidates.size(), path);
    }
  }
  report(context, layout, root, writer.totals(), skipped);
  return writer.totals().written + writer.totals().present > 0 ? kOk : kFailed;
}

constexpr ArgumentSpec kArguments[] = {
    {"DIR", "Where to; it is made when it is not there.", true, false, ""}};
constexpr OptionSpec kOptions[] = {
    {"layout", "LAYOUT", "The shape of the directory (needed).", kLayoutNames},
    kNamespaceOption,
    kCompilerOption,
};

}  // namespace

extern constinit const Verb kMaterializeVerb{
    .name = "materialize",
    .summary = "Lay out stored NEFFs as another tool's cache.",
    .details =
        "For tools that read their own directory and ask nobody: the cache of native TorchNeuron\n"
        "(neff-cache) or the persistent cache of libneuronxla (neuron-cache). Entries that were\n"
        "imported from such a cache know their place in it, and so does what the neuronx-cc "
        "wrapper\n"
        "built for libneuronxla (without graph and flags). Others are not laid out, because the "
        "names\n"
        "are hashes that only the owner of the layout can make.\n\n"
        "What is in DIR stays; a directory that is locked is left alone. Files are copies.",
    .arguments = kArguments,
    .options = kOptions,
    .examples = "neuroncache materialize --layout neuron-cache /var/tmp/neuron-compile-cache",
    .run = run};

}  // namespace nc::cli

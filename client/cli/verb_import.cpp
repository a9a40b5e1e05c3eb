#include <filesystem>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/cli/foreign_import.hpp"
#include "client/cli/foreign_layout.hpp"
#include "client/cli/importer.hpp"
#include "client/cli/output.hpp"
#include "client/cli/session.hpp"

namespace nc::cli {
namespace {

Result<int> run(Context& context) {
  if (const auto layout = context.option("from"))
    return import_foreign(context, *layout, context.option("FILE").value_or(""));
  std::error_code ec;
  const std::string path =
      std::filesystem::absolute(context.option("FILE").value_or(""), ec).lexically_normal();
  NC_ASSIGN(std::unique_ptr<File> file, real_filesystem().open(path, FileSystem::Open::kRead));
  NC_ASSIGN(const std::uint64_t file_bytes, file->size());
  BundleReader reader(file_source(std::move(file)));
  // Before the daemon is asked: what is no export file is refused at once.
  auto header = reader.header();
  if (!header.ok()) return std::move(header).error().context(path);

  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  Progress progress("importing");
  Importer importer(session.client(), reader, [&](std::uint64_t position) {
    progress.update(position, file_bytes, format_size(position));
  });
  const Status done = importer.run();
  const ImportTotals& t = importer.totals();
  if (!done.ok()) {
    Error error = done.error();
    error.message = fmt::format(
        "{}: {} ({} imported, {} there already)", path, error.message,
        counted(static_cast<double>(t.imported), "entry was", "entries were"), t.present);
    if (error.code != Code::kCorrupt) {
      error.action +=
          error.action.empty() ? "run the same command again" : "; then run the same command again";
      error.action += ": it skips what is there";
    }
    // A damaged file is no mistake of the command line.
    if (error.code == Code::kInvalid) error.code = Code::kCorrupt;
    return error;
  }
  switch (context.format()) {
    case Format::kText:
      print(fmt::format("Imported {} ({}, {}); {} there already.\n",
                        counted(static_cast<double>(t.imported), "entry", "entries"),
                        counted(static_cast<double>(t.blobs), "blob", "blobs"),
                        format_size(t.bytes),
                        counted(static_cast<double>(t.present), "was", "were")));
      break;
    case Format::kJson:
      print_json(bj::object{{"file", path},
                            {"creator", header->creator},
                            {"host", header->host},
                            {"created_ms", header->created_ms},
                            {"entries", t.entries},
                            {"imported", t.imported},
                            {"present", t.present},
                            {"blobs", t.blobs},
                            {"bytes", t.bytes}});
      break;
    case Format::kTab:
      print(fmt::format("file\tentries\timported\tpresent\tblobs\tbytes\n{}\t{}\t{}\t{}\t{}\t{}\n",
                        path, t.entries, t.imported, t.present, t.blobs, t.bytes));
      break;
  }
  return kOk;
}

constexpr ArgumentSpec kArguments[] = {
    {"FILE",
     "A file that `neuroncache export` wrote; with --from, a directory or an s3:// address.", true,
     false, ""}};
constexpr OptionSpec kOptions[] = {
    {"from", "LAYOUT", "Take over the cache of another tool.", kLayoutNames},
    {"compiler", "PATH",
     "The neuronx-cc that built a neuron-cache: then its entries are for the wrapper, too.", ""}};

}  // namespace

extern constinit const Verb kImportVerb{
    .name = "import",
    .summary = "Take in the entries of an exported file, or of another cache.",
    .details =
        "What is in the store already is skipped, so an import that was interrupted is gone on "
        "with by running it again. A\n"
        "damaged file is refused at the first wrong byte; whole entries before it are kept.\n\n"
        "With --from, FILE is the directory of another tool's cache: of native TorchNeuron\n"
        "(neff-cache) or of libneuronxla (neuron-cache); or s3://BUCKET/PREFIX, with options as\n"
        "for tiers, which is copied into a directory under $TMPDIR first. Failed, locked and "
        "unfinished compiles "
        "are\n"
        "left out and named. These caches do not say all that went into a compile, so the entries\n"
        "are kept under the names they have there and are laid out again by `materialize`. With\n"
        "--compiler, entries of a neuron-cache that hold graph and flags, and that a compiler of "
        "just\n"
        "this version built, are kept under the key of the neuronx-cc wrapper as well. The\n"
        "environment is part of that key: run the import in that of the programs.\n\n"
        "What an entry holds is loaded and run by the programs that use it: import only files from "
        "people you trust.",
    .arguments = kArguments,
    .options = kOptions,
    .examples =
        "neuroncache import llama.ncb\n"
        "neuroncache import --from neuron-cache /var/tmp/neuron-compile-cache\n"
        "neuroncache import --from neuron-cache 's3://team/neuron-cache?region=us-west-2'",
    .run = run};

}  // namespace nc::cli

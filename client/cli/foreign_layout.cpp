#include "client/cli/foreign_layout.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"

namespace nc::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNeffDoor = "neff-cache 1";
constexpr std::string_view kNeuronDoor = "neuron-cache 1";
constexpr std::string_view kCompilerPrefix = "neuronxcc-";
constexpr std::string_view kModulePrefix = "MODULE_";
constexpr std::size_t kNeffKeyDigits = 32;

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_compiler_dir(std::string_view name) {
  constexpr std::size_t kMax = 128;
  return name.starts_with(kCompilerPrefix) && name.size() <= kMax &&
         all_of(name.substr(kCompilerPrefix.size()),
                "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+_-");
}

// The graph's hash is decimal, or 20 hex digits that the caller gave; that of the flags has 8.
bool is_module_name(std::string_view name) {
  if (!name.starts_with(kModulePrefix)) return false;
  name.remove_prefix(kModulePrefix.size());
  const std::size_t plus = name.find('+');
  if (plus == std::string_view::npos || !is_hex(name.substr(plus + 1), 8)) return false;
  const std::string_view graph = name.substr(0, plus);
  return is_hex(graph, 20) || (graph.size() <= 20 && all_of(graph, "0123456789"));
}

std::string text_of(const KeyParts& parts, std::string_view name) {
  const auto at = std::find_if(parts.begin(), parts.end(),
                               [&](const auto& part) { return part.first == name; });
  return at == parts.end() ? "" : at->second;
}

// Names in order, so that two runs say the same.
Result<std::vector<std::string>> names_in(const std::string& dir) {
  NC_ASSIGN(std::vector<std::string> names, real_filesystem().list(dir));
  std::sort(names.begin(), names.end());
  return names;
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// What is wrong with a file that should be there; empty: nothing.
std::string trouble_with(const std::string& path) {
  std::error_code ec;
  // What somebody with leave to write the cache points at may be any file that we can read.
  if (fs::is_symlink(fs::symlink_status(path, ec))) return "is a symbolic link";
  if (!fs::is_regular_file(path, ec)) return "is no file";
  if (fs::file_size(path, ec) == 0) return "is empty";
  return ec ? "cannot be read" : "";
}

class Scanner {
 public:
  explicit Scanner(std::string root) : root_(std::move(root)) {}

  Result<ForeignScan> neff_cache() {
    NC_ASSIGN(const std::vector<std::string> names, names_in(root_));
    for (const std::string& first : names) {
      if (!is_hex(first, 2) || !is_directory(root_ + "/" + first)) continue;
      NC_ASSIGN(const std::vector<std::string> seconds, names_in(root_ + "/" + first));
      for (const std::string& second : seconds) {
        const std::string dir = first + "/" + second;
        if (!is_hex(second, 2) || !is_directory(root_ + "/" + dir)) continue;
        NC_ASSIGN(const std::vector<std::string> files, names_in(root_ + "/" + dir));
        for (const std::string& file : files) add_neff(dir, file);
      }
    }
    return std::move(scan_);
  }

  Result<ForeignScan> neuron_cache() {
    NC_ASSIGN(const std::vector<std::string> names, names_in(root_));
    for (const std::string& compiler : names) {
      if (!is_compiler_dir(compiler) || !is_directory(root_ + "/" + compiler)) continue;
      NC_ASSIGN(const std::vector<std::string> modules, names_in(root_ + "/" + compiler));
      for (const std::string& module : modules) {
        if (!module.starts_with(kModulePrefix)) continue;
        NC_TRY(add_module(compiler, module));
      }
    }
    return std::move(scan_);
  }

 private:
  void add_neff(const std::string& dir, const std::string& file) {
    const std::string path = dir + "/" + file;
    const std::string key = file.substr(0, file.find('.'));
    if (file.starts_with(".tmp.")) return skip(path, "was being written");
    if (file != key + ".neff" || !is_hex(key, kNeffKeyDigits)) {
      return skip(path, "is not named after a key");
    }
    ForeignEntry entry{.place = {Layout::kNeffCache, "", key}, .files = {}};
    if (entry.place.path() != path) return skip(path, "is not in the place of its key");
    if (const std::string trouble = trouble_with(root_ + "/" + path); !trouble.empty()) {
      return skip(path, trouble);
    }
    entry.files.emplace(kNeffOutput, root_ + "/" + path);
    scan_.entries.push_back(std::move(entry));
  }

  Status add_module(const std::string& compiler, const std::string& module) {
    ForeignEntry entry{.place = {Layout::kNeuronCache, compiler, module}, .files = {}};
    const std::string path = entry.place.path();
    if (!is_module_name(module)) {
      skip(path, "is not named MODULE_GRAPH+FLAGS");
      return {};
    }
    if (!is_directory(root_ + "/" + path)) {
      skip(path, "is no directory");
      return {};
    }
    NC_ASSIGN(const std::vector<std::string> files, names_in(root_ + "/" + path));
    bool done = false;
    bool failed = false;
    bool neff = false;
    for (const std::string& file : files) {
      const std::string full = root_ + "/" + path + "/" + file;
      if (file.ends_with(".lock")) {
        skip(path, "is locked: a compile is under way, or one was killed and left " + file);
        return {};
      }
      done = done || file == "model.done";
      failed = failed || file == "model.log";
      if (file == "model.neff") {
        neff = true;
        entry.files.emplace(kNeffOutput, full);
      } else if (is_module_file(file) && trouble_with(full).empty()) {
        entry.files.emplace(file, full);
      }
    }
    if (!neff) {
      skip(path, failed ? "holds a compile that failed (model.log)" : "was not compiled yet");
      return {};
    }
    if (const std::string trouble = trouble_with(entry.files[std::string(kNeffOutput)]);
        !trouble.empty()) {
      skip(path, "has a model.neff that " + trouble);
    } else if (!done) {
      skip(path, "was not finished: there is no model.done");
    } else {
      scan_.entries.push_back(std::move(entry));
    }
    return {};
  }

  void skip(std::string path, std::string reason) {
    scan_.skipped.push_back({std::move(path), std::move(reason)});
  }

  std::string root_;
  ForeignScan scan_;
};

}  // namespace

std::string_view layout_name(Layout layout) {
  return layout == Layout::kNeffCache ? "neff-cache" : "neuron-cache";
}

Result<Layout> parse_layout(std::string_view name) {
  for (const Layout layout : {Layout::kNeffCache, Layout::kNeuronCache}) {
    if (name == layout_name(layout)) return layout;
  }
  return Error{Code::kInvalid, fmt::format("there is no layout \"{}\"", name),
               "use neff-cache or neuron-cache"};
}

bool is_module_file(std::string_view name) {
  return name == "model.hlo_module.pb" || name == "model.hlo.pb" ||
         name == "model.hlo_module.pb.gz" || name == "compile_flags.json" ||
         name == "compile_flags.txt";
}

KeyParts ForeignPlace::parts() const {
  if (layout == Layout::kNeffCache) return {{"door", std::string(kNeffDoor)}, {"key", name}};
  return {{"door", std::string(kNeuronDoor)}, {"compiler", compiler}, {"module", name}};
}

std::optional<ForeignPlace> ForeignPlace::from(const KeyParts& parts) {
  const std::string door = text_of(parts, "door");
  ForeignPlace place;
  if (door == kNeffDoor) {
    place.name = text_of(parts, "key");
    if (!is_hex(place.name, kNeffKeyDigits)) return std::nullopt;
    return place;
  }
  if (door != kNeuronDoor) return std::nullopt;
  place.layout = Layout::kNeuronCache;
  place.compiler = text_of(parts, "compiler");
  place.name = text_of(parts, "module");
  if (!is_compiler_dir(place.compiler) || !is_module_name(place.name)) return std::nullopt;
  return place;
}

std::optional<ForeignPlace> ForeignPlace::from_command(std::string_view input,
                                                       std::string_view compiler) {
  constexpr std::string_view kProgram = "neuronx-cc ";
  constexpr std::string_view kInput = "model.";
  if (!compiler.starts_with(kProgram) || !input.starts_with(kInput)) return std::nullopt;
  input.remove_prefix(kInput.size());
  for (const std::string_view suffix : {".hlo_module.pb", ".hlo.pb"}) {
    if (!input.ends_with(suffix)) continue;
    ForeignPlace place{Layout::kNeuronCache,
                       std::string(kCompilerPrefix).append(compiler.substr(kProgram.size())),
                       std::string(input.substr(0, input.size() - suffix.size()))};
    if (is_compiler_dir(place.compiler) && is_module_name(place.name)) return place;
  }
  return std::nullopt;
}

std::string ForeignPlace::path() const {
  if (layout == Layout::kNeffCache) {
    return fmt::format("{}/{}/{}.neff", name.substr(0, 2), name.substr(2, 2), name);
  }
  return compiler + "/" + name;
}

Result<ForeignScan> scan_layout(Layout layout, const std::string& root) {
  Scanner scanner(root);
  auto scan = layout == Layout::kNeffCache ? scanner.neff_cache() : scanner.neuron_cache();
  if (scan.ok() && scan->entries.empty() && scan->skipped.empty()) {
    return Error{Code::kInvalid,
                 fmt::format("{} holds nothing of the layout {}", root, layout_name(layout)),
                 layout == Layout::kNeffCache
                     ? "name the directory with ab/cd/KEY.neff in it"
                     : "name the directory with neuronxcc-VERSION/MODULE_... in it"};
  }
  return scan;
}

}  // namespace nc::cli

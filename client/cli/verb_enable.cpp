// enable | disable: the directory of the `neuronx-cc` wrapper on PATH.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "client/cli/output.hpp"
#include "client/cli/wrapper_place.hpp"

namespace nc::cli {
namespace {

constexpr std::string_view kBegin = "# >>> neuroncache: neuronx-cc wrapper >>>";
constexpr std::string_view kEnd = "# <<< neuroncache: neuronx-cc wrapper <<<";

Result<std::string> shell_of(const Context& context) {
  if (const auto named = context.option("shell")) return *named;
  constexpr std::array<std::string_view, 5> kLikeBash = {"", "bash", "sh", "dash", "ksh"};
  const char* login = std::getenv("SHELL");
  const std::string path = login != nullptr ? login : "";
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name == "fish" || name == "zsh") return name;
  if (std::ranges::find(kLikeBash, name) != kLikeBash.end()) return std::string("bash");
  return Error{Code::kUnsupported, "how " + name + " sets PATH is not known here",
               "put what `neuroncache enable --shell bash --print-dir` prints first on PATH"};
}

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string enable_line(const std::string& shell, const std::string& directory) {
  if (shell == "fish") return fmt::format("set -gx PATH {} $PATH", quoted(directory));
  return fmt::format("export PATH={}\":$PATH\"", quoted(directory));
}

std::string disable_line(const std::string& shell, const std::string& directory) {
  if (shell == "fish")
    return fmt::format("set -gx PATH (string match -v -- {} $PATH)", quoted(directory));
  return fmt::format(
      "PATH=\"$(printf %s \"$PATH\" | tr : '\\n' | grep -vxF -- {} | paste -sd : -)\"",
      quoted(directory));
}

Result<std::string> start_file(const std::string& shell) {
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/')
    return Error{Code::kInvalid, "HOME is not set", "put the line into your shell's file by hand"};
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (shell == "fish")
    return join(config != nullptr && config[0] == '/' ? config : join(home, ".config"),
                "fish/config.fish");
  return join(home, shell == "zsh" ? ".zshrc" : ".bashrc");
}

// The text without our lines.
std::string without_ours(const std::string& text) {
  const std::size_t begin = text.find(kBegin);
  const std::size_t end = begin == std::string::npos ? begin : text.find(kEnd, begin);
  if (end == std::string::npos) return text;
  std::size_t after = end + kEnd.size();
  if (after < text.size() && text[after] == '\n') ++after;
  return text.substr(0, begin) + text.substr(after);
}

Result<bool> rewrite(const std::string& path, const std::string& line) {
  constexpr std::uint64_t kLimit = 16 << 20;
  std::string old;
  std::uint32_t mode = 0644;
  auto text = real_filesystem().read_all(path, kLimit);
  if (text.ok()) {
    old = *std::move(text);
    NC_ASSIGN(const FileInfo info, real_filesystem().stat(path));
    mode = info.mode;
  } else if (!text.is(Code::kNotFound)) {
    return std::move(text).error();
  }
  std::string made = without_ours(old);
  if (!line.empty()) {
    if (!made.empty() && !made.ends_with('\n')) made += '\n';
    made += fmt::format("{}\n{}\n{}\n", kBegin, line, kEnd);
  }
  if (made == old) return false;
  const std::string target = led_to(path);
  NC_TRY(real_filesystem().make_dirs(parent_dir(target)));
  NC_TRY(real_filesystem().write_atomically(target, as_bytes(made), mode));
  return true;
}

Result<int> run(Context& context, bool enable) {
  NC_ASSIGN(const std::string directory, wrapper_directory());
  NC_ASSIGN(const std::string shell, shell_of(context));
  const std::string line = enable ? enable_line(shell, directory) : disable_line(shell, directory);
  std::string file;
  bool changed = false;
  if (context.flag("write")) {
    NC_ASSIGN(file, start_file(shell));
    NC_ASSIGN(changed, rewrite(file, enable ? line : ""));
  }
  switch (context.format()) {
    case Format::kText:
      if (enable && context.flag("print-dir")) {
        print(directory + "\n");
      } else if (file.empty()) {
        print(line + "\n");
      } else {
        print(fmt::format("{} {}; it counts for new shells\n",
                          changed ? "Changed" : "Nothing to change in", file));
      }
      break;
    case Format::kJson:
      print_json(bj::object{{"directory", directory},
                            {"shell", shell},
                            {"line", line},
                            {"file", file.empty() ? bj::value(nullptr) : bj::value(file)},
                            {"changed", changed}});
      break;
    case Format::kTab:
      print(fmt::format("directory\tshell\tline\tfile\tchanged\n{}\t{}\t{}\t{}\t{}\n", directory,
                        shell, line, file, changed ? 1 : 0));
      break;
  }
  return kOk;
}

Result<int> run_enable(Context& context) {
  return run(context, true);
}

Result<int> run_disable(Context& context) {
  return run(context, false);
}

constexpr OptionSpec kEnableOptions[] = {
    {"write", "", "Write the line into the start file of the shell.", ""},
    {"shell", "SHELL", "Which shell; default: yours ($SHELL).", "bash|zsh|fish"},
    {"print-dir", "", "Print only the directory to put first on PATH.", ""},
};
constexpr OptionSpec kDisableOptions[] = {
    {"write", "", "Remove from the start file of the shell what `enable --write` put there.", ""},
    {"shell", "SHELL", "Which shell; default: yours ($SHELL).", "bash|zsh|fish"},
};

}  // namespace

extern constinit const Verb kEnableVerb{
    .name = "enable",
    .summary = "Put the neuronx-cc wrapper first on PATH.",
    .details =
        "Prints the line for a shell, to be evaluated. The wrapper serves what was compiled "
        "before and runs the real compiler, the next neuronx-cc on PATH, for what was not; "
        "docs/command.md describes it.",
    .arguments = {},
    .options = kEnableOptions,
    .examples =
        "eval \"$(neuroncache enable)\" # in this shell\n"
        "neuroncache enable --write # in every new one",
    .needs_settings = false,
    .run = run_enable};

extern constinit const Verb kDisableVerb{.name = "disable",
                                         .summary = "Take the neuronx-cc wrapper off PATH.",
                                         .details = "",
                                         .arguments = {},
                                         .options = kDisableOptions,
                                         .examples =
                                             "eval \"$(neuroncache disable)\" # in this shell\n"
                                             "neuroncache disable --write # in every new one",
                                         .needs_settings = false,
                                         .run = run_disable};

}  // namespace nc::cli

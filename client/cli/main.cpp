// The life of a `neuroncache` process: words -> verb -> settings -> run -> exit status.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/credentials.hpp"
#include "base/process.hpp"
#include "client/cli/context.hpp"
#include "client/cli/help.hpp"
#include "client/cli/output.hpp"
#include "client/cli/parse.hpp"

namespace nc::cli {
namespace {

int exit_of(const Error& error) {
  switch (error.code) {
    case Code::kInvalid:
      return kUsage;
    case Code::kUnavailable:
    case Code::kTimeout:
    case Code::kUnsupported:
    case Code::kDraining:
      return kUnreachable;
    default:
      return kFailed;
  }
}

// The daemon that gets these words runs elsewhere.
std::string absolute(const std::string& path) {
  std::error_code ec;
  const auto full = std::filesystem::absolute(path, ec);
  return ec || path.empty() ? path : full.lexically_normal().string();
}

Result<Settings> load_settings(const Parsed& parsed) {
  if (!parsed.verb->needs_settings) return Settings{};
  std::map<std::string, std::string> flags;
  for (const char* name : {"socket", "dir", "config"}) {
    const auto it = parsed.values.find(name);
    if (it != parsed.values.end()) flags[name] = absolute(it->second.back());
  }
  return Settings::load(real_filesystem(), process_environment(), flags);
}

Result<int> run(Parsed parsed) {
  if (parsed.help) {
    print(verb_help(*parsed.verb));
    return kOk;
  }
  const Format format = format_of(parsed);
  NC_ASSIGN(Settings settings, load_settings(parsed));
  Context context(std::move(parsed), format, std::move(settings));
  return context.verb().run(context);
}

int main_of(const std::vector<std::string>& words) {
  auto parsed = parse(words);
  const Format format = parsed.ok() ? format_of(*parsed) : guess_format(words);
  Result<int> status =
      parsed.ok() ? run(std::move(*parsed)) : Result<int>(std::move(parsed).error());
  if (status.ok()) {
    if (Status flushed = flush_output(); !flushed.ok()) status = std::move(flushed).error();
  }
  if (status.ok()) return *status;
  print_error(status.error(), format);
  return exit_of(status.error());
}

}  // namespace
}  // namespace nc::cli

int main(int argc, char** argv) {
  nc::hide_memory();
  const std::vector<std::string> words(argv + 1, argv + argc);
  nc::hide_credentials({argv, static_cast<std::size_t>(argc)});
  return nc::cli::main_of(words);
}

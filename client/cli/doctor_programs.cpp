#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"
#include "client/cli/doctor.hpp"

namespace nc::cli {
namespace {

using Level = Finding::Level;

std::string environment(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

std::string on_path(const std::vector<std::string>& env, std::string_view program) {
  if (program.find('/') != std::string_view::npos) {
    return ::access(std::string(program).c_str(), X_OK) == 0 ? std::string(program) : "";
  }
  const std::string path = environment(env, "PATH");
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find(':', start), path.size());
    std::string candidate = join(path.substr(start, end - start), program);
    if (end > start && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    start = end + 1;
  }
  return {};
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& argv, Millis limit_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int failed = ::posix_spawn(&pid, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return std::nullopt;
  write_end.reset();
  const Millis deadline = system_clock().monotonic_ms() + limit_ms;
  std::string text;
  bool ended = false;
  while (!ended) {
    const Millis left = deadline - system_clock().monotonic_ms();
    pollfd p{read_end.get(), POLLIN, 0};
    if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) break;
    char buffer[4096];
    const ssize_t n = ::read(read_end.get(), buffer, sizeof(buffer));
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
    ended = n <= 0 || text.size() > (64 << 10);
  }
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return text;
}

namespace {

constexpr Millis kPatienceMs = 10'000;

// Reads installed packages' metadata only: importing torch would take seconds.
constexpr const char* kAsk = R"(
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return ""
hooks = [e.name for e in metadata.entry_points(group="torch.backends") if e.value.split(":")[0].split(".")[0] == "neuroncache"]
print(version("torch")); print(version("neuroncache")); print(",".join(hooks))
)";

void check_python(const std::vector<std::string>& env, Findings& out) {
  const std::string venv = environment(env, "VIRTUAL_ENV");
  std::string python = venv.empty() ? "" : on_path(env, join(venv, "bin/python"));
  // Installed by pip, this program lies beside the interpreter that it belongs to.
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof(self));
  if (python.empty() && n > 0) {
    python = on_path(env, join(parent_dir({self, static_cast<std::size_t>(n)}), "python"));
  }
  if (python.empty()) python = on_path(env, "python3");
  if (python.empty()) {
    out.push_back({Level::kWarning, "python", "there is no python3 on PATH",
                   "needed only for torch.compile programs"});
    return;
  }
  const auto text = output_of({python, "-I", "-c", kAsk}, kPatienceMs);
  if (!text) {
    out.push_back({Level::kWarning, "python",
                   fmt::format("{} does not tell which packages it has", python),
                   "try it by hand"});
    return;
  }
  std::vector<std::string> lines;
  for (std::size_t start = 0; start < text->size();) {
    const std::size_t end = std::min(text->find('\n', start), text->size());
    lines.push_back(text->substr(start, end - start));
    start = end + 1;
  }
  lines.resize(3);
  const auto& [torch, shim, hooks] = std::tie(lines[0], lines[1], lines[2]);
  if (torch.empty()) {
    out.push_back({Level::kWarning, "torch", fmt::format("{} has no torch", python),
                   "activate the environment that your programs use"});
    return;
  }
  out.push_back({Level::kOk, "torch", fmt::format("{} in {}", torch, python), ""});
  if (shim.empty()) {
    out.push_back(
        {Level::kWarning, "shim",
         fmt::format("{} has no neuroncache package: torch.compile goes uncached", python),
         fmt::format("{} -m pip install neuroncache", python)});
  } else if (shim != NC_VERSION) {
    out.push_back(
        {Level::kWarning, "shim",
         fmt::format("the Python package is version {}, this program {}", shim, NC_VERSION),
         fmt::format("{} -m pip install --upgrade neuroncache", python)});
  } else if (hooks.empty()) {
    out.push_back({Level::kWarning, "shim", "installed, but it does not declare itself to torch",
                   "install it with pip; a bare copy on PYTHONPATH needs `import neuroncache` in "
                   "the program"});
  } else {
    out.push_back({Level::kOk, "shim",
                   fmt::format("neuroncache {}, active in every program that imports torch", shim),
                   ""});
  }
}

}  // namespace

void check_programs(const std::vector<std::string>& env, Findings& out) {
  check_python(env, out);
  if (const std::string autoload = environment(env, "TORCH_DEVICE_BACKEND_AUTOLOAD");
      autoload == "0") {
    out.push_back(
        {Level::kWarning, "autoload",
         "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch from loading what is installed for it",
         "unset it, or say `import neuroncache` in the program"});
  }
  const std::string wanted = environment(env, "CXX");
  std::string compiler = wanted.empty() ? "" : on_path(env, wanted);
  for (const char* name : {"g++", "c++", "clang++"}) {
    if (compiler.empty() && wanted.empty()) compiler = on_path(env, name);
  }
  if (!compiler.empty()) {
    out.push_back({Level::kOk, "compiler", compiler, ""});
  } else {
    out.push_back(
        {Level::kWarning, "compiler",
         wanted.empty() ? "there is no C++ compiler on PATH"
                        : fmt::format("CXX={} is no program", wanted),
         "what is cached loads without one; building something new needs it (apt install g++)"});
  }
}

}  // namespace nc::cli

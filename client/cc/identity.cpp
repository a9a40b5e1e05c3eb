#include "client/cc/identity.hpp"

#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/hash.hpp"
#include "base/unique_fd.hpp"
#include "client/cc/child.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr std::uint64_t kMaxRecord = 64 << 20;
constexpr std::string_view kFormat = "neuroncache-compiler-1";
// They may lead a program to other code.
constexpr std::string_view kPathVariables[] = {"PYTHONPATH",   "PYTHONHOME",      "VIRTUAL_ENV",
                                               "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD"};

std::string stamp(const std::string& path) {
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return "absent";
  return fmt::format("{}.{}.{}.{}.{}", s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec,
                     s.st_mtim.tv_nsec);
}

std::string_view variable(std::span<const std::string> env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return std::string_view(entry).substr(name.size() + 1);
  }
  return {};
}

// What the kept answer depends on, but for the package's record.
std::string question(const RealCompiler& compiler, std::span<const std::string> env) {
  std::vector<std::string> words{compiler.path, compiler.resolved, stamp(compiler.resolved)};
  for (const std::string_view name : kPathVariables) words.emplace_back(variable(env, name));
  return quote_words(words);
}

void add_matches(const std::string& pattern, std::vector<std::string>& out) {
  glob_t found{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      const std::string path = found.gl_pathv[i];
      if (std::ranges::find(out, path) == out.end()) out.push_back(path);
    }
  }
  ::globfree(&found);
}

std::string escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// "#!/opt/venv/bin/python3.10" -> "/opt/venv/bin/python3.10".
std::string interpreter(const std::string& script) {
  const UniqueFd fd(::open(script.c_str(), O_RDONLY | O_CLOEXEC));
  std::string head(512, '\0');
  const ssize_t n = fd.valid() ? ::read(fd.get(), head.data(), head.size()) : 0;
  head.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  if (!head.starts_with("#!")) return {};
  const auto words = split_words(std::string_view(head).substr(2, head.find('\n') - 2));
  return words.empty() || !words[0].starts_with('/') ? std::string() : words[0];
}

Result<std::string> package_digest(const RealCompiler& compiler, const std::string& record) {
  if (!record.empty()) {
    NC_ASSIGN(const std::string text, real_filesystem().read_all(record, kMaxRecord));
    return "package " + record_digest(text);
  }
  constexpr std::uint64_t kMaxProgram = 4ULL << 30;
  if (compiler.size > kMaxProgram)
    return Error{Code::kTooLarge, compiler.resolved + " is too large for a program", ""};
  NC_ASSIGN(const auto mapping, real_filesystem().map(compiler.resolved));
  return "program sha256:" + Digest::of(mapping->bytes()).hex();
}

struct Kept {
  CompilerIdentity identity;
  std::string record;  // path of the package's RECORD, or ""
};

// Lines "name word": quoted, so that texts with several lines fit.
std::string kept_text(const std::string& asked, const Kept& kept) {
  const std::vector<std::string> words{
      std::string(kFormat),  asked,       kept.identity.version_text,
      kept.identity.package, kept.record, kept.record.empty() ? "" : stamp(kept.record)};
  return quote_words(words);
}

std::optional<CompilerIdentity> read_kept(const std::string& path, const std::string& asked) {
  constexpr std::uint64_t kLimit = 1 << 20;
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0 || s.st_uid != ::geteuid()) return std::nullopt;
  const auto text = real_filesystem().read_all(path, kLimit);
  if (!text.ok()) return std::nullopt;
  const std::vector<std::string> words = split_words(*text);
  constexpr std::size_t kWords = 6;
  if (words.size() != kWords || words[0] != kFormat || words[1] != asked) return std::nullopt;
  if (!words[4].empty() && stamp(words[4]) != words[5]) return std::nullopt;
  return CompilerIdentity{words[2], words[3]};
}

Result<Kept> ask(const RealCompiler& compiler, std::span<const std::string> env) {
  NC_ASSIGN(const std::string text, ask_version(compiler, env));
  Kept kept;
  kept.identity.version_text = text;
  const auto records = package_records(compiler, variable(env, "PYTHONPATH"));
  // Of several, the one that has the version in its name.
  for (const std::string& record : records) {
    if (records.size() == 1 || record.find(kept.identity.version()) != std::string::npos)
      kept.record = record;
  }
  NC_ASSIGN(kept.identity.package, package_digest(compiler, kept.record));
  return kept;
}

// Of many wrappers at once only one asks; the others wait for its answer, but not for long.
UniqueFd lock(const std::string& path) {
  constexpr Millis kPatience = 30'000;
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return fd;
  const Millis deadline = system_clock().monotonic_ms() + kPatience;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && system_clock().monotonic_ms() < deadline)
    ::usleep(10'000);
  return fd;
}

}  // namespace

std::string CompilerIdentity::version() const {
  constexpr std::string_view kMark = "version ";
  const std::string line = version_text.substr(0, version_text.find('\n'));
  const std::size_t at = line.find(kMark);
  if (at == std::string::npos) return line;
  const std::size_t begin = at + kMark.size();
  return line.substr(begin, line.find(' ', begin) - begin);
}

std::string record_digest(std::string_view record) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < record.size();) {
    const std::size_t end = std::min(record.find('\n', begin), record.size());
    std::string_view line = record.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view name = line.substr(0, line.find(','));
    const bool of_installer = name.find(".dist-info/") != std::string_view::npos &&
                              !name.ends_with("/METADATA") && !name.ends_with("/WHEEL");
    if (line.empty() || name.starts_with("..") || name.ends_with(".pyc") || of_installer) continue;
    lines.push_back(line);
  }
  std::ranges::sort(lines);
  Sha256Hasher hasher;
  for (const std::string_view line : lines) {
    hasher.update(as_bytes(line));
    hasher.update(as_bytes("\n"));
  }
  return "sha256:" + hasher.finish().hex();
}

std::vector<std::string> package_records(const RealCompiler& compiler,
                                         std::string_view python_path) {
  std::vector<std::string> out;
  const auto site = [&](const std::string& directory) {
    add_matches(escaped(directory) + "/neuronx_cc-*.dist-info/RECORD", out);
  };
  for (std::size_t begin = 0; begin < python_path.size();) {
    const std::size_t end = std::min(python_path.find(':', begin), python_path.size());
    if (end > begin) site(std::string(python_path.substr(begin, end - begin)));
    begin = end + 1;
  }
  for (const std::string& program : {compiler.resolved, interpreter(compiler.resolved)}) {
    if (program.empty()) continue;
    const std::string prefix = escaped(parent_dir(parent_dir(program)));
    for (const char* lib : {"/lib/python3*/site-packages", "/lib/python3*/dist-packages",
                            "/lib/python3/dist-packages", "/lib64/python3*/site-packages"})
      add_matches(prefix + lib + "/neuronx_cc-*.dist-info/RECORD", out);
  }
  return out;
}

Result<CompilerIdentity> identify(const RealCompiler& compiler, std::span<const std::string> env,
                                  const std::string& cache_dir) {
  const std::string asked = question(compiler, env);
  const std::string name = Digest::of(as_bytes(asked)).hex().substr(0, 32);
  const std::string path = join(cache_dir, name);
  if (auto kept = read_kept(path, asked)) return *std::move(kept);

  const Status made = real_filesystem().make_dirs(cache_dir);
  const UniqueFd held = made.ok() ? lock(path + ".lock") : UniqueFd();
  if (auto kept = read_kept(path, asked)) return *std::move(kept);
  NC_ASSIGN(Kept answer, ask(compiler, env));
  if (made.ok())
    ignore_error(real_filesystem().write_atomically(path, as_bytes(kept_text(asked, answer))),
                 "then it is asked again next time");
  return std::move(answer.identity);
}

}  // namespace nc::cc

#include "client/cli/build_site.hpp"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "client/cli/wrapper_place.hpp"

namespace nc::cli {
namespace {

constexpr std::string_view kScratch = "neuroncache-build-";
constexpr const char* kLock = "lock";

std::string temporary_directory() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && named[0] == '/' ? named : "/tmp";
}

void remove_tree(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// Whoever is killed leaves its directory.
void sweep(const std::string& directory) {
  const auto names = real_filesystem().list(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.starts_with(kScratch)) continue;
    pid_t pid = 0;
    std::from_chars(name.data() + kScratch.size(), name.data() + name.size(), pid);
    if (pid <= 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    const std::string path = join(directory, name);
    const auto info = real_filesystem().stat(path);
    if (!info.ok() || info->uid != ::geteuid()) continue;
    // A process of another container has a number of its own, but not the lock of one that lives.
    if (const auto lock = real_filesystem().lock(join(path, kLock)); lock.ok()) remove_tree(path);
  }
}

}  // namespace

Result<ScratchDir> ScratchDir::make() {
  const std::string directory = temporary_directory();
  sweep(directory);
  std::string path = join(directory, fmt::format("{}{}-XXXXXX", kScratch, ::getpid()));
  if (::mkdtemp(path.data()) == nullptr)
    return errno_error(errno, "cannot make a directory in", directory);
  auto lock = real_filesystem().lock(join(path, kLock));
  Status made = lock.ok() ? Status() : Status(std::move(lock).error());
  if (made.ok()) made = real_filesystem().make_dirs(join(path, "work"));
  if (!made.ok()) {
    remove_tree(path);
    return std::move(made).error();
  }
  return ScratchDir(std::move(path), *std::move(lock));
}

ScratchDir::ScratchDir(ScratchDir&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::move(other.lock_)) {
  other.path_.clear();
}

std::string ScratchDir::work() const {
  return join(path_, "work");
}

ScratchDir::~ScratchDir() {
  if (!path_.empty()) remove_tree(path_);
}

cc::Workshop workshop_of(const Context& context) {
  cc::Workshop shop;
  if (auto wrapper = wrapper_directory(); wrapper.ok())
    shop.search.self = join(*wrapper, "neuronx-cc");
  shop.search.env = process_environment();
  shop.search.setting = context.settings().text("real_cc");
  shop.search.cache_dir = join(context.store_dir(), "compilers");
  shop.settings = context.settings();
  shop.client_options = client::ClientOptions::from(context.settings());
  shop.client_options.socket_path = context.socket_path();
  shop.client_options.autostart = false;
  return shop;
}

Result<std::size_t> jobs_option(const Context& context) {
  constexpr std::uint64_t kMost = 1024;
  NC_ASSIGN(const auto jobs, context.count_option("jobs"));
  if (!jobs) return std::size_t{std::max(std::thread::hardware_concurrency(), 1U)};
  if (*jobs >= 1 && *jobs <= kMost) return static_cast<std::size_t>(*jobs);
  return Error{Code::kInvalid, fmt::format("--jobs: {} is too few or too many", *jobs),
               fmt::format("give a number from 1 to {}", kMost)};
}

std::string report_text(const cc::BuildReport& report) {
  return fmt::format("{} {} {} {}", static_cast<int>(report.end), report.wall_ms,
                     report.failure_class.empty() ? "-" : report.failure_class, report.message);
}

cc::BuildReport report_of(const ChildPool::End& end) {
  using End = cc::BuildReport::End;
  cc::BuildReport report;
  if (end.text.empty()) {
    const bool asked = end.signal == SIGTERM || end.signal == SIGINT || end.signal == SIGHUP;
    report.end = asked ? End::kGivenBack : End::kFailed;
    report.failure_class = asked ? "" : "killed";
    report.message =
        asked ? "" : fmt::format("the process that built it ended by signal {}", end.signal);
    return report;
  }
  std::string_view text = end.text;
  const auto word = [&] {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view out = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    return out;
  };
  const std::string_view kind = word();
  report.end = kind == "0" ? End::kBuilt : kind == "2" ? End::kGivenBack : End::kFailed;
  const std::string_view wall = word();
  std::from_chars(wall.data(), wall.data() + wall.size(), report.wall_ms);
  report.failure_class = word();
  if (report.failure_class == "-") report.failure_class.clear();
  report.message = text;
  return report;
}

}  // namespace nc::cli

#include "client/cli/warm_run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"
#include "client/cc/wrapper.hpp"
#include "client/cli/command_run.hpp"
#include "client/cli/live_line.hpp"
#include "client/cli/wrapper_place.hpp"

namespace nc::cli {
namespace {

using client::ActionOutcome;

constexpr std::uint32_t kReportMode = 0644;
constexpr Millis kLookMs = 1'000;

// Counts while the command runs.
class Watching {
 public:
  Watching(client::Client& client, std::string run, std::size_t before)
      : client_(client), run_(std::move(run)), before_(before) {}

  void look() {
    if (!line_.due()) return;
    auto outcomes = all_outcomes(client_, run_);
    if (!outcomes.ok()) return;  // told at the end, if it lasts
    WarmReport report;
    report.outcomes = *std::move(outcomes);
    line_.show(text(report.counts()));
  }

 private:
  std::string text(const WarmCounts& counts) const {
    std::string out = counts_text(counts);
    if (counts.unfinished > 0) {
      // While it runs, nothing is left undone yet.
      const std::size_t at = out.rfind(", ");
      out = fmt::format("{}, {} being built", out.substr(0, at), counts.unfinished);
    }
    const std::size_t done = counts.needed - counts.unfinished;
    if (before_ > done && done > 0) {
      const double left_s =
          line_.elapsed_s() * static_cast<double>(before_ - done) / static_cast<double>(done);
      out += fmt::format("; {} last time, about {} left", before_, format_duration(left_s));
    }
    return out;
  }

  client::Client& client_;
  const std::string run_;
  const std::size_t before_;  // how many there were the last time
  LiveLine line_;
};

// Where the wrapper notes what it could not tell a daemon. Without it (no place for files) such
// commands are not seen.
class UncachedFile {
 public:
  UncachedFile() {
    const char* named = std::getenv("TMPDIR");
    path_ =
        join(named != nullptr && named[0] == '/' ? named : "/tmp", "neuroncache-uncached-XXXXXX");
    const UniqueFd fd(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd.valid()) path_.clear();
  }
  ~UncachedFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  UncachedFile(const UncachedFile&) = delete;
  UncachedFile& operator=(const UncachedFile&) = delete;

  const std::string& path() const { return path_; }
  std::string text() const {
    constexpr std::uint64_t kLimit = 64 << 20;
    if (path_.empty()) return {};
    auto text = real_filesystem().read_all(path_, kLimit);
    return text.ok() ? *std::move(text) : std::string();
  }

 private:
  std::string path_;
};

std::vector<std::string> environment(const Context& context, const WarmPlan& plan,
                                     const std::string& run) {
  std::vector<std::string> env = process_environment();
  set_variable(env, "NEURONCACHE", "1");
  set_variable(env, "NEURONCACHE_RECORD", run);
  if (!plan.keep_inputs) set_variable(env, "NEURONCACHE_RECORD_INPUTS", "0");
  // The command must meet the daemon that we ask.
  set_variable(env, "NEURONCACHE_SOCKET", context.socket_path());
  set_variable(env, "NEURONCACHE_DIR", context.store_dir());
  if (const auto config = context.option("config")) {
    std::error_code ignored;
    const auto full = std::filesystem::absolute(*config, ignored);
    set_variable(env, "NEURONCACHE_CONFIG", full.string());
  }
  auto wrapper = wrapper_directory();
  if (wrapper.ok()) {
    const std::string path = variable_of(env, "PATH");
    set_variable(env, "PATH", path.empty() ? *wrapper : *wrapper + ":" + path);
  } else {
    note(fmt::format("neuronx-cc commands are not recorded: {}", wrapper.error().text()));
  }
  return env;
}

}  // namespace

Status check_recording_name(const std::string& name) {
  const bool fits = !name.empty() && name.size() <= 64 && name != "." && name != ".." &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
                    });
  if (fits) return {};
  return Error{Code::kInvalid, fmt::format("'{}' cannot name a recording", name),
               "use up to 64 letters, digits and . _ -"};
}

Result<std::vector<ActionOutcome>> all_outcomes(client::Client& client,
                                                const std::string& recording) {
  constexpr std::size_t kPage = 1000;
  std::vector<ActionOutcome> out;
  std::string after;
  for (;;) {
    NC_ASSIGN(client::OutcomePage page, client.outcomes(recording, after, kPage));
    std::move(page.outcomes.begin(), page.outcomes.end(), std::back_inserter(out));
    if (!page.next) return out;
    after = *page.next;
  }
}

std::string run_name(const std::string& recording) {
  return fmt::format("{}~{}-{}", recording, ::getpid(), system_clock().wall_ms());
}

Result<std::vector<ActionOutcome>> end_run(const Context& context, const std::string& run,
                                           const std::string& recording) {
  // The daemon may have been replaced meanwhile; what it wrote down is known to the next one.
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  NC_ASSIGN(auto outcomes, all_outcomes(session.client(), run));
  NC_TRY(recording.empty() ? session.client().forget_outcomes(run)
                           : session.client().move_outcomes(run, recording));
  std::sort(outcomes.begin(), outcomes.end(), [](const ActionOutcome& a, const ActionOutcome& b) {
    return std::tie(a.first_ms, a.key) < std::tie(b.first_ms, b.key);
  });
  return outcomes;
}

Result<WarmReport> run_recorded(const Context& context, const WarmPlan& plan) {
  NC_TRY(check_recording_name(plan.recording));
  NC_ASSIGN(Session session, Session::open(context, Session::Need::kChange));
  NC_ASSIGN(const auto before, all_outcomes(session.client(), plan.recording));
  const std::string run = run_name(plan.recording);

  CommandSpec spec;
  spec.argv = plan.command;
  spec.env = environment(context, plan, run);
  spec.output_to_stderr = context.format() != Format::kText;
  WarmReport report;
  report.verb = plan.verb;
  report.recording = plan.recording;
  report.command = plan.command;
  const Millis started = system_clock().monotonic_ms();
  const UncachedFile uncached;
  set_variable(spec.env, cc::kUncachedVariable, uncached.path());
  {
    Watching watching(session.client(), run, before.size());
    NC_ASSIGN(const CommandEnd end, run_command(spec, kLookMs, [&] { watching.look(); }));
    report.status = end.status();
  }
  report.seconds = static_cast<double>(system_clock().monotonic_ms() - started) / 1000;
  report.uncached = uncached_of(uncached.text());
  NC_ASSIGN(report.outcomes,
            end_run(context, run, plan.keep_inputs ? plan.recording : std::string()));
  return report;
}

Status check_report_file(const Context& context) {
  const auto file = context.option("junit");
  if (!file) return {};
  auto opened = real_filesystem().open(*file, FileSystem::Open::kAppend, kReportMode);
  if (!opened.ok()) return std::move(opened).error().context("the report of --junit");
  return {};
}

Status print_report(const Context& context, const WarmReport& report) {
  if (const auto file = context.option("junit")) {
    const std::string text = warm_junit(report);
    NC_TRY(real_filesystem().write_atomically(*file, as_bytes(text), kReportMode));
  }
  switch (context.format()) {
    case Format::kJson:
      print_json(warm_json(report));
      break;
    case Format::kTab:
      print(warm_tab(report));
      break;
    case Format::kText:
      print(warm_text(report, terminal_width()));
      break;
  }
  return {};
}

}  // namespace nc::cli

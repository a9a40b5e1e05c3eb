#include <algorithm>

#include <fmt/format.h>

#include "client/cli/doctor.hpp"
#include "client/cli/output.hpp"

namespace nc::cli {

Settings check_settings(const std::vector<std::string>& env,
                        const std::map<std::string, std::string>& flags, Findings& out) {
  using Level = Finding::Level;
  constexpr std::string_view kPrefix = "NEURONCACHE_";
  std::vector<std::string> good;
  for (const std::string& entry : env) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix)) {
      good.push_back(entry);
      continue;
    }
    // One at a time, so that each wrong one is named.
    const std::vector<std::string> alone{entry};
    const auto checked = name == "NEURONCACHE_CONFIG"
                             ? Result<Settings>(Settings{})
                             : Settings::load(real_filesystem(), alone, {{"config", "/dev/null"}});
    if (checked.ok()) {
      good.push_back(entry);
    } else {
      out.push_back(
          {Level::kProblem, "environment", checked.error().message, checked.error().action});
    }
  }
  if (const auto on = switched_on(env); !on.ok()) {
    out.push_back({Level::kProblem, "environment", on.error().message, on.error().action});
  } else if (!*on) {
    out.push_back({Level::kWarning, "environment", "NEURONCACHE=0 switches the cache off",
                   "unset it to use the cache"});
  }
  auto settings = Settings::load(real_filesystem(), good, flags);
  if (settings.ok()) {
    if (out.empty()) {
      out.push_back({Level::kOk, "settings",
                     fmt::format("read without trouble; file {}", settings->config_path()), ""});
    }
    return std::move(*settings);
  }
  out.push_back({Level::kProblem, "settings", settings.error().message, settings.error().action});
  // The rest of the checks goes on with what the environment says.
  auto without_file = Settings::load(real_filesystem(), good, {{"config", "/dev/null"}});
  return without_file.ok() ? std::move(*without_file) : Settings{};
}

namespace {

std::string_view level_name(Finding::Level level) {
  switch (level) {
    case Finding::Level::kOk:
      return "ok";
    case Finding::Level::kWarning:
      return "warning";
    case Finding::Level::kProblem:
      break;
  }
  return "problem";
}

Result<int> run(Context& context) {
  Findings findings;
  const auto env = process_environment();
  std::map<std::string, std::string> flags;
  for (const char* name : {"socket", "dir", "config"}) {
    if (const auto value = context.option(name)) flags[name] = *value;
  }
  {
    Progress progress("looking");
    const Settings settings = check_settings(env, flags, findings);
    std::string socket = settings.text("socket");
    if (socket.empty()) socket = default_socket_path(env);
    std::string store = settings.text("dir");
    if (store.empty()) store = default_store_dir(env);
    check_socket_dir(socket, findings);
    check_daemon(settings, socket, store, findings);
    check_store(settings, store, system_clock().wall_ms(), findings);
    progress.update(0, 0, "asking the shared tiers");
    check_cluster(settings, flags, findings);
    progress.update(0, 0, "asking Python");
    check_programs(env, findings);
  }
  const auto count = [&](Finding::Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& f) { return f.level == level; });
  };
  const auto problems = count(Finding::Level::kProblem);
  const auto warnings = count(Finding::Level::kWarning);
  switch (context.format()) {
    case Format::kJson: {
      bj::array out;
      for (const Finding& f : findings) {
        out.push_back(bj::object{{"level", std::string(level_name(f.level))},
                                 {"check", f.check},
                                 {"detail", f.detail},
                                 {"fix", f.fix}});
      }
      print_json(bj::object{{"ok", problems == 0},
                            {"problems", problems},
                            {"warnings", warnings},
                            {"findings", std::move(out)}});
      break;
    }
    case Format::kTab: {
      Table table({{"", "level"}, {"", "check"}, {"", "detail"}, {"", "fix"}});
      for (const Finding& f : findings)
        table.add({std::string(level_name(f.level)), f.check, f.detail, f.fix});
      print(table.tab());
      break;
    }
    case Format::kText: {
      for (const Finding& f : findings) {
        print(fmt::format("{:<8} {:<12} {}\n", level_name(f.level), f.check, printable(f.detail)));
        if (!f.fix.empty())
          print(fmt::format("{:<8} {:<12} to do: {}\n", "", "", printable(f.fix)));
      }
      const auto plural = [](auto n, const char* word) {
        return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
      };
      print(problems == 0 && warnings == 0 ? "\nAll good.\n"
                                           : fmt::format("\n{}, {}.\n", plural(problems, "problem"),
                                                         plural(warnings, "warning")));
      break;
    }
  }
  return problems == 0 ? kOk : kFailed;
}

}  // namespace

extern constinit const Verb kDoctorVerb{
    .name = "doctor",
    .summary = "Look for what is wrong, and say what to do; exit status 1 for a problem.",
    .details =
        "Looks at the environment and settings, the daemon and its version, permissions of socket "
        "and store, free space, the\n"
        "clock, keys, tokens and certificates, the shared tiers (can each be read and written as "
        "it is set? a mark is\n"
        "written there and removed again), the Python package and the C++ compiler. It changes "
        "nothing else and starts no\n"
        "daemon. Warnings alone give exit status 0.",
    .arguments = {},
    .options = {},
    .examples = "",
    .needs_settings = false,
    .run = run};

}  // namespace nc::cli

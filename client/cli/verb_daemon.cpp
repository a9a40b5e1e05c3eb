// daemon start | stop | restart | status
#include <poll.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/process.hpp"
#include "client/autostart.hpp"
#include "client/cli/output.hpp"
#include "client/client.hpp"

namespace nc::cli {
namespace {

using client::Client;
using client::ClientOptions;
using client::Hello;

ClientOptions options_of(const Context& context) {
  ClientOptions options = ClientOptions::from(context.settings());
  options.autostart = false;
  options.daemon_arguments = context.daemon_arguments();
  return options;
}

struct State {
  bool running = false;
  bool changed = false;  // by this call
  Hello hello;
  std::vector<client::LeaseInfo> builds;  // under way
};

bj::array builds_json(const std::vector<client::LeaseInfo>& builds) {
  bj::array out;
  for (const client::LeaseInfo& b : builds) {
    out.push_back(bj::object{{"key", b.key},
                             {"kind", b.kind},
                             {"label", b.label},
                             {"host", b.builder.host},
                             {"pid", b.builder.pid},
                             {"program", b.builder.program},
                             {"elapsed_s", b.elapsed_s},
                             {"usual_s", b.usual_s ? bj::value(*b.usual_s) : bj::value(nullptr)},
                             {"waiters", b.waiters},
                             {"progress", b.progress}});
  }
  return out;
}

std::string builds_text(const std::vector<client::LeaseInfo>& builds) {
  if (builds.empty()) return "";
  using Align = Table::Align;
  Table table({{"BUILDING", "key"},
               {"LABEL", "label", Align::kLeft, true},
               {"BY", "by"},
               {"FOR", "elapsed", Align::kRight},
               {"USUALLY", "usual", Align::kRight},
               {"WAITING", "waiters", Align::kRight},
               {"PROGRESS", "progress", Align::kLeft, true}});
  for (const client::LeaseInfo& b : builds) {
    table.add({key_cell(b.key), printable(b.label),
               printable(fmt::format("{} ({})", b.builder.program, b.builder.pid)),
               format_duration(b.elapsed_s),
               b.usual_s ? format_duration(*b.usual_s) : std::string("-"),
               count_cell(static_cast<double>(b.waiters)), printable(b.progress)});
  }
  return "\n" + table.text(terminal_width());
}

void report(const Context& context, const State& state, std::string_view what) {
  const std::string& socket = context.socket_path();
  const Hello& h = state.hello;
  switch (context.format()) {
    case Format::kText: {
      print(fmt::format("{}\n", what));
      if (!state.running) break;
      const double up_s = static_cast<double>(system_clock().wall_ms() - h.started_ms) / 1000;
      print(fmt::format(
          "  pid      {}\n  version  {}\n  socket   {}\n  store    {}{}\n  up for   {}\n", h.pid,
          h.version, socket, h.store_path, h.read_only ? " (read-only)" : "",
          format_duration(std::max(0.0, up_s))));
      print(builds_text(state.builds));
      break;
    }
    case Format::kJson: {
      bj::object out{{"running", state.running}, {"changed", state.changed}, {"socket", socket}};
      if (state.running) {
        out["pid"] = h.pid;
        out["version"] = h.version;
        out["started_ms"] = h.started_ms;
        out["store"] =
            bj::object{{"id", h.store_id}, {"path", h.store_path}, {"read_only", h.read_only}};
        out["builds"] = builds_json(state.builds);
      }
      print_json(out);
      break;
    }
    case Format::kTab:
      print(fmt::format(
          "running\tchanged\tpid\tversion\tstarted_ms\tsocket\tstore\n{}\t{}\t{}\t{}\t{}\t{}\t{}\n",
          state.running ? 1 : 0, state.changed ? 1 : 0, h.pid, h.version, h.started_ms, socket,
          h.store_path));
      break;
  }
}

Result<State> look(const Context& context) {
  State state;
  const ClientOptions options = options_of(context);
  NC_ASSIGN(state.running, client::listening(options.socket_path, options.connect_timeout_ms));
  if (state.running) {
    NC_ASSIGN(state.hello, Client(options).hello());
  }
  return state;
}

Result<State> start(const Context& context) {
  NC_ASSIGN(State state, look(context));
  if (state.running) return state;
  const ClientOptions options = options_of(context);
  Progress progress("starting the daemon");
  NC_TRY(client::ensure_daemon({options.socket_path, options.daemon_path, options.daemon_arguments,
                                options.connect_timeout_ms}));
  NC_ASSIGN(state, look(context));
  state.changed = true;
  return state;
}

// Returns when the process is gone. The state is the one before.
Result<State> stop(const Context& context) {
  NC_ASSIGN(State state, look(context));
  if (!state.running) return state;
  NC_ASSIGN(const auto drain_option, context.duration_option("drain"));
  const double drain_s = drain_option.value_or(context.settings().seconds("drain"));
  const auto drain_ms = static_cast<Millis>(drain_s * 1000);
  const auto process = system_processes().identify(static_cast<pid_t>(state.hello.pid));
  NC_TRY(Client(options_of(context)).shutdown(drain_ms));
  constexpr Millis kExtraMs = 10'000;
  const Millis started = system_clock().monotonic_ms();
  Progress progress("waiting for running requests");
  const ClientOptions options = options_of(context);
  for (;;) {
    progress.update(0, 0);
    // Seen through a container boundary its pid may mean nothing here; then the silent socket has
    // to do.
    bool gone;
    if (process.ok()) {
      gone = !system_processes().alive(*process);
    } else {
      NC_ASSIGN(const bool up, client::listening(options.socket_path, 1'000));
      gone = !up;
    }
    if (gone) break;
    if (system_clock().monotonic_ms() - started > drain_ms + kExtraMs) {
      return Error{
          Code::kTimeout,
          fmt::format("the daemon (pid {}) was asked to stop and still runs", state.hello.pid),
          fmt::format("see its log; `kill {}` is safe, the store survives it", state.hello.pid)};
    }
    ::poll(nullptr, 0, 20);
  }
  state.running = false;
  state.changed = true;
  return state;
}

Result<int> run_start(Context& context) {
  NC_ASSIGN(const State state, start(context));
  report(context, state,
         state.changed ? "The daemon was started." : "The daemon is running already.");
  return kOk;
}

Result<int> run_stop(Context& context) {
  NC_ASSIGN(const State state, stop(context));
  report(context, state,
         state.changed ? fmt::format("The daemon (pid {}) was stopped.", state.hello.pid)
                       : std::string("The daemon is not running."));
  return kOk;
}

Result<int> run_restart(Context& context) {
  NC_ASSIGN(const State before, stop(context));
  NC_ASSIGN(const State after, start(context));
  report(
      context, after,
      before.changed ? "The daemon was restarted." : "The daemon was not running; it was started.");
  return kOk;
}

Result<int> run_status(Context& context) {
  NC_ASSIGN(State state, look(context));
  if (state.running) {
    NC_ASSIGN(state.builds, Client(options_of(context)).leases());
  }
  report(context, state,
         state.running ? std::string("The daemon is running.")
                       : fmt::format("The daemon is not running (nobody listens at {}).",
                                     context.socket_path()));
  return state.running ? kOk : kFailed;
}

constexpr OptionSpec kStopOptions[] = {
    {"drain", "DURATION", "How long running requests may take (setting drain).", ""},
};

}  // namespace

extern constinit const Verb kDaemonStartVerb{
    .name = "daemon start",
    .summary = "Start the daemon; fine when it runs already.",
    .details =
        "The daemon also starts by itself when a program needs it, and leaves when nobody has used "
        "it for a while\n"
        "(settings autostart and idle_exit). Its program is the setting daemon_path, else "
        "neuroncached beside this\n"
        "program, else on PATH.",
    .arguments = {},
    .options = {},
    .examples = "",
    .run = run_start};

extern constinit const Verb kDaemonStopVerb{
    .name = "daemon stop",
    .summary = "Stop the daemon; fine when it does not run.",
    .details =
        "It grants no new builds, lets running uploads end, and exits. Programs go on: they start "
        "it again when they need\n"
        "it, or do without.",
    .arguments = {},
    .options = kStopOptions,
    .examples = "",
    .run = run_stop};

extern constinit const Verb kDaemonRestartVerb{.name = "daemon restart",
                                               .summary = "Stop the daemon and start it again.",
                                               .details = "Builds under way keep their leases.",
                                               .arguments = {},
                                               .options = kStopOptions,
                                               .examples = "",
                                               .run = run_restart};

extern constinit const Verb kDaemonStatusVerb{
    .name = "daemon status",
    .summary = "Tell whether the daemon runs; exit status 1 when not.",
    .details = "",
    .arguments = {},
    .options = {},
    .examples = "",
    .run = run_status};

}  // namespace nc::cli

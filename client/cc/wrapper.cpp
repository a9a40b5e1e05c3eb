#include "client/cc/wrapper.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "base/filesystem.hpp"
#include "base/unique_fd.hpp"
#include "client/cc/delivery.hpp"
#include "client/cc/recording.hpp"
#include "client/cc/session.hpp"
#include "client/cc/waiting.hpp"
#include "client/cc/words.hpp"

namespace nc::cc {
namespace {

constexpr int kNotFoundStatus = 127;  // as a shell has it for a command that is not there
constexpr int kCannotRunStatus = 126;
constexpr Millis kAnswerMs = 10'000;  // a daemon that needs longer to answer is done without
constexpr Millis kWaitStepMs = 2'000;

std::string own_path() {
  std::array<char, PATH_MAX> buffer;
  const ssize_t n = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : std::string();
}

std::string variable(const std::vector<std::string>& env, std::string_view name) {
  for (const std::string& entry : env) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  }
  return {};
}

// The three standard streams exist in every program that was started properly; a file of ours must
// not become one of them.
void keep_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

// The daemon of the same installation.
void choose_daemon(Session& session) {
  if (!session.client_options.daemon_path.empty()) return;
  const std::string near = join(parent_dir(parent_dir(session.self)), "bin/neuroncached");
  if (::access(near.c_str(), X_OK) == 0) session.client_options.daemon_path = near;
}

Status find_compiler(Session& session, const std::string& setting) {
  const Chain chain = Chain::parse(variable(session.env, kChainVariable));
  NC_ASSIGN(session.compiler,
            find_real_compiler(setting, variable(session.env, "PATH"), session.self, chain));
  session.chain =
      fmt::format("{}={}", kChainVariable, extend(chain, session.self, session.compiler).format());
  return {};
}

int fail(const Error& error) {
  say(error.text());
  return error.code == Code::kNotFound ? kNotFoundStatus : kCannotRunStatus;
}

class Run {
 public:
  Run(Session& session, const std::vector<std::string>& argv) : session_(session), argv_(argv) {}

  int run() {
    const bool nested = !variable(session_.env, kChainVariable).empty();
    const auto on = switched_on(session_.env);
    auto settings = Settings::load(real_filesystem(), session_.env, {});
    std::string trouble;
    std::string real_cc = variable(session_.env, "NEURONCACHE_REAL_CC");
    if (settings.ok()) {
      session_.settings = *std::move(settings);
      real_cc = session_.settings.text("real_cc");
    } else {
      trouble = settings.error().text();  // only the compiler's place counts then
    }
    if (Status found = find_compiler(session_, real_cc); !found.ok()) return fail(found.error());
    session_.command.compiler_arguments.assign(argv_.begin() + (argv_.empty() ? 0 : 1),
                                               argv_.end());
    if (nested) return become_compiler(session_);
    if (on.ok() && !*on) {
      if (!variable(session_.env, kUncachedVariable).empty()) {
        parse();
        if (session_.command.kind == Command::Kind::kCompile) note_uncached("off");
      }
      return become_compiler(session_);
    }
    parse();
    if (session_.command.kind == Command::Kind::kPassThrough) return become_compiler(session_);
    if (!trouble.empty()) return without_cache(trouble);
    if (session_.settings.boolean("retry_failed")) session_.command.retry_failed = true;
    session_.client_options = client::ClientOptions::from(session_.settings);
    session_.client_options.request_timeout_ms =
        std::min(session_.client_options.request_timeout_ms, kAnswerMs);
    choose_daemon(session_);
    client_.emplace(session_.client_options);
    if (session_.command.kind == Command::Kind::kBypass) return bypass(session_.command.reason);
    return cached();
  }

 private:
  void parse() {
    const Surroundings world = real_surroundings();
    Command& command = session_.command;
    command = parse_command(session_.command.compiler_arguments, world);
    if (command.kind == Command::Kind::kPassThrough) return;
    flags_variable_ =
        parse_flags_variable(variable(session_.env, "NEURON_CC_FLAGS"), world, command);
  }

  int without_cache(const std::string& why) {
    note_uncached(why);
    say(fmt::format("compiling without the cache: {}", why));
    return become_compiler(session_);
  }

  // A command that is not cached is counted, when a daemon is there to count.
  int bypass(const std::string& reason) {
    note_uncached(reason);
    client::ClientOptions options = session_.client_options;
    options.autostart = false;
    client::Client client(options);
    ignore_error(client.bypass(session_.settings.text("namespace"), reason, ""),
                 "only a count is lost");
    return become_compiler(session_);
  }

  // For whoever runs us and wants to know what did not go through the daemon.
  void note_uncached(const std::string& why) const {
    const std::string path = variable(session_.env, kUncachedVariable);
    if (path.empty()) return;
    const std::vector<std::string>& inputs = session_.command.inputs;
    const std::string input = inputs.empty() ? "" : inputs.front();
    std::string line = fmt::format("{}\t{}", key_text(input.substr(input.rfind('/') + 1)), why);
    std::replace(line.begin(), line.end(), '\n', ' ');
    constexpr std::size_t kMost = 2000;  // so that it is written at once
    line = line.substr(0, kMost) + "\n";
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (fd.valid()) [[maybe_unused]]
      const ssize_t n = ::write(fd.get(), line.data(), line.size());
  }

  int cached() {
    // What of such a file is output and what is log, only the compiler knows.
    if (same_file(session_.command.output, session_.command.logfile))
      return bypass("log_is_output");
    auto identity = identify(session_.compiler, session_.compiler_env(), identity_dir());
    if (!identity.ok()) return without_cache(identity.error().text());
    session_.identity = *std::move(identity);
    session_.output_locks = join(identity_dir(), "outputs.lock");
    auto action = make_action(session_.command, flags_variable_, session_.identity, session_.env,
                              session_.command.flags.contains("target") ? "" : machine_name());
    // The compiler says best what is wrong with its input.
    if (!action.ok()) return bypass("input");
    session_.action = *std::move(action);
    recording_ = recording_name();

    auto answer = ask();
    if (!answer.ok()) return without_cache(answer.error().text());
    if (answer->state == client::Acquired::State::kHit) {
      const Status delivered = deliver(session_, *client_, *answer);
      if (delivered.ok()) return recorded(0);
      if (!delivered.is(Code::kDigestMismatch)) {
        client_->disconnect();
        return without_cache(delivered.error().text());
      }
      // The daemon has dropped it by now: it is to be built.
      say(delivered.error().message + "; it is built again");
      answer = ask();
      if (!answer.ok()) return without_cache(answer.error().text());
    }
    switch (answer->state) {
      case client::Acquired::State::kHit: {
        const Status delivered = deliver(session_, *client_, *answer);
        if (delivered.ok()) return recorded(0);
        client_->disconnect();
        return without_cache(delivered.error().text());
      }
      case client::Acquired::State::kLease:
        return recorded(build(session_, *client_, answer->lease));
      case client::Acquired::State::kFailed:
        if (answer->failure.failure_class == "deterministic")
          return recorded(replay(session_, answer->failure));
        return without_cache("another process built this, but " + answer->failure.message);
      case client::Acquired::State::kMiss:
        return without_cache("the store is read-only and does not have this");
      case client::Acquired::State::kBuilding: {
        ignore_error(client_->bypass(session_.settings.text("namespace"), "wait_timeout",
                                     answer->building.ticket),
                     "only a count is lost");
        return without_cache("another process builds this for longer than wait_timeout");
      }
    }
    return without_cache("the daemon gave an answer that is not known");
  }

  Result<client::Acquired> ask() {
    client::AcquireRequest request;
    request.key = session_.action.key;
    request.parts = session_.action.parts;
    request.name_space = session_.settings.text("namespace");
    request.kind = "neff";
    request.label = session_.action.label;
    request.program = "neuronx-cc";
    request.compiler = "neuronx-cc " + session_.identity.version();
    request.retry = session_.command.retry_failed;
    request.wait_ms = kWaitStepMs;
    request.recording = recording_;
    WaitingLines lines(session_.settings.text("progress"));
    const auto limit = static_cast<Millis>(session_.settings.seconds("wait_timeout") * 1000);
    return client_->acquire_and_wait(std::move(request), limit,
                                     [&](const client::BuildingInfo& building) {
                                       lines.show(building);
                                       return true;
                                     });
  }

  // The command is served; what is left is for others, and its trouble is no trouble of the caller.
  int recorded(int status) {
    if (recording_.empty() || !session_.settings.boolean("record_inputs")) return status;
    const std::string name = recording_.substr(0, recording_.find('~'));
    const Status done = record_action(session_, *client_, name, flags_variable_);
    if (done.ok()) return status;
    say("not recorded: " + done.error().text());
    client::RecordedAction action;
    action.key = session_.action.key;
    action.label = session_.action.label;
    action.compiler = "neuronx-cc " + session_.identity.version();
    ignore_error(client_->record_lost(name, action, done.error().message), "it has been said");
    return status;
  }

  // NAME, or NAME~RUN. What cannot be one is said, and nothing is recorded.
  std::string recording_name() const {
    const auto fits = [](std::string_view part) {
      return !part.empty() && part.size() <= 64 && part != "." && part != ".." &&
             std::all_of(part.begin(), part.end(), [](unsigned char c) {
               return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
             });
    };
    std::string name = session_.settings.text("record");
    if (name.empty()) return name;
    const std::size_t mark = name.find('~');
    if (fits(std::string_view(name).substr(0, mark)) &&
        (mark == std::string::npos || fits(std::string_view(name).substr(mark + 1))))
      return name;
    say(fmt::format("'{}' cannot name a recording; nothing is recorded", name));
    return {};
  }

  std::string identity_dir() const {
    std::string store = session_.settings.text("dir");
    if (store.empty()) store = default_store_dir(session_.env);
    return join(store, "compilers");
  }

  Session& session_;
  const std::vector<std::string>& argv_;
  Command flags_variable_;
  std::optional<client::Client> client_;
  std::string recording_;
};

}  // namespace

std::vector<std::string> Session::compiler_env() const {
  std::vector<std::string> out;
  out.reserve(env.size() + 1);
  for (const std::string& entry : env) {
    if (!entry.starts_with(fmt::format("{}=", kChainVariable))) out.push_back(entry);
  }
  out.push_back(chain);
  return out;
}

std::vector<std::string> Session::compiler_argv() const {
  std::vector<std::string> out{compiler.path};
  out.insert(out.end(), command.compiler_arguments.begin(), command.compiler_arguments.end());
  return out;
}

int become_compiler(const Session& session) {
  const std::vector<std::string> words = session.compiler_argv();
  const std::vector<std::string> env = session.compiler_env();
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : env) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execve(session.compiler.path.c_str(), argv.data(), envp.data());
  const int error = errno;
  say(fmt::format("cannot run {}: {}", session.compiler.path, std::strerror(error)));
  return error == ENOENT ? kNotFoundStatus : kCannotRunStatus;
}

int run_wrapper(const std::vector<std::string>& argv) {
  keep_standard_streams();
  Session session;
  session.self = own_path();
  session.env = process_environment();
  return Run(session, argv).run();
}

}  // namespace nc::cc

// A miss: the compiler runs under the lease, and what it made is stored.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/filesystem.hpp"
#include "client/cc/child.hpp"
#include "client/cc/delivery.hpp"
#include "client/cc/failure.hpp"
#include "client/cc/input.hpp"
#include "client/cc/session.hpp"
#include "client/cc/waiting.hpp"
#include "client/cc/words.hpp"
#include "client/lease_keeper.hpp"

namespace nc::cc {
namespace {

constexpr int kTimeoutStatus = 124;  // as timeout(1) has it
constexpr std::uint64_t kMaxLog = 16 << 20;
constexpr int kMaxMemoryRetries = 2;
constexpr Millis kAdmissionStepMs = 2'000;

struct Seen {
  bool exists = false;
  bool regular = false;
  FileStamp stamp;
  std::uint32_t mode = 0;
};

Seen look(const std::string& path) {
  struct stat s {};
  Seen seen;
  if (::stat(path.c_str(), &s) != 0) return seen;
  seen.exists = true;
  seen.regular = S_ISREG(s.st_mode);
  seen.mode = s.st_mode & 0777;
  const auto ns = [](const timespec& t) {
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  seen.stamp = {s.st_dev, s.st_ino, static_cast<std::uint64_t>(s.st_size), ns(s.st_mtim),
                ns(s.st_ctim)};
  return seen;
}

// The log as it is before and after: what the compiler added, or all of it when it began anew.
class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)), before_(look(path_)) {
    if (before_.regular) old_ = read();
  }

  struct Written {
    std::string text;
    bool appended = false;
  };
  Written written() const {
    const Seen now = look(path_);
    if (!now.regular || (before_.exists && now.stamp == before_.stamp)) return {};
    std::string text = read();
    if (old_.empty() || !text.starts_with(old_)) return {std::move(text), !before_.exists};
    return {text.substr(old_.size()), true};
  }

 private:
  std::string read() const {
    auto text = real_filesystem().read_all(path_, kMaxLog);
    return text.ok() ? *std::move(text) : std::string();
  }

  std::string path_;
  Seen before_;
  std::string old_;
};

std::string host_name() {
  std::array<char, 256> buffer{};
  return ::gethostname(buffer.data(), buffer.size() - 1) == 0 ? std::string(buffer.data())
                                                              : std::string();
}

// Why the output cannot be stored, though the compiler says that all is well; "" when it can.
std::string fault_of(const std::string& path, const Seen& before, const Seen& after) {
  if (!after.exists) return fmt::format("wrote no {}", path);
  if (!after.regular) return fmt::format("left {}, which is no regular file", path);
  if (before.exists && before.stamp == after.stamp) return fmt::format("did not write {}", path);
  if (after.stamp.size == 0) return fmt::format("wrote an empty {}", path);
  return {};
}

class Build {
 public:
  // `for_others`: nobody waits for this process, so nothing is printed, and a build that is
  // interrupted is left to the next builder.
  Build(Session& session, client::Client& client, const client::Lease& lease, bool for_others)
      : session_(session), client_(client), lease_(lease), for_others_(for_others) {}

  int run() {
    if (!for_others_) {
      turn_ = output_turn(session_.output_locks, session_.command.output,
                          [this] { keeper_.emplace(session_.client_options, lease_); });
      keeper_.reset();
    }
    for (int retries = 0;; ++retries) {
      ask_for_room();
      auto result = compile();
      if (!result.ok()) return cannot_start(result.error());
      if (for_others_ && result->interrupted && !result->well()) return give_back();
      const LogFile::Written log = log_->written();
      const client::FailReport failure =
          result->well() ? client::FailReport{} : classify(*result, log.text);
      if (failure.failure_class != "out_of_memory" || retries == kMaxMemoryRetries || !admission_)
        return finish(*result, log, failure);
      prepare_retry(*result);
    }
  }

  const BuildReport& report() const { return report_; }

 private:
  int cannot_start(const Error& error) {
    if (for_others_) {
      report_.message = error.text();
      client::FailReport failure;
      failure.failure_class = report_.failure_class = "environment";
      failure.message = report_.message;
      ignore_error(client_.fail(lease_, failure), "the lease ends with this process");
      return 1;
    }
    ignore_error(client_.release(lease_), "the lease ends with this process");
    return become_compiler(session_);  // which says best why it cannot be run
  }

  int give_back() {
    keeper_.reset();
    ignore_error(client_.release(lease_), "the lease ends with this process");
    report_.end = BuildReport::End::kGivenBack;
    return 1;
  }

  // Waits until the host has room for the compiler. A daemon that cannot say leaves it to us.
  void ask_for_room() {
    request_.compiler = "neuronx-cc " + session_.identity.version();
    request_.input_bytes = session_.action.input_bytes;
    request_.wait_ms = kAdmissionStepMs;
    WaitingLines lines(for_others_ ? "off" : session_.settings.text("progress"));
    auto admission =
        client_.admit_and_wait(lease_, request_, 0, [&](const client::Admission& waiting) {
          lines.show(waiting);
          return true;
        });
    admission_.reset();
    if (admission.ok() && admission->state == client::Admission::State::kAdmitted)
      admission_ = *admission;
  }

  // The same once more, with nothing beside it and more room.
  void prepare_retry(const ChildResult& result) {
    keeper_.reset();
    gate_.reset();
    const std::uint64_t had = std::max(admission_->reserved_bytes, result.peak_rss_bytes);
    request_.minimum_bytes = had + had / 2;
    request_.alone = true;
    if (for_others_) return;
    say(fmt::format(
        "the compiler was killed for want of memory (it had taken {}); once more, alone, "
        "with {} set aside",
        format_size(result.peak_rss_bytes), format_size(request_.minimum_bytes)));
  }

  Result<ChildResult> compile() {
    log_.emplace(session_.command.logfile);
    before_ = look(session_.command.output);
    gate_.emplace();
    keeper_.emplace(session_.client_options, lease_);
    ChildSpec spec;
    spec.program = session_.compiler.path;
    spec.argv = session_.compiler_argv();
    spec.env = session_.compiler_env();
    spec.quiet = for_others_;
    if (admission_) {
      keeper_->set_admission(*admission_);
      spec.timeout_ms = admission_->build_timeout_ms;
    }
    auto result = run_child(spec, *gate_);
    if (!result.ok()) {
      keeper_.reset();
      gate_.reset();
    }
    return result;
  }

  int finish(const ChildResult& result, const LogFile::Written& log,
             const client::FailReport& failure) {
    report_.wall_ms = result.wall_ms;
    if (result.well()) {
      const Status stored = publish(result, log);
      if (stored.ok()) {
        report_.end = BuildReport::End::kBuilt;
      } else {
        not_stored(result, stored.error());
      }
    } else {
      report_failure(result, failure);
    }
    keeper_.reset();
    turn_.reset();
    client_.disconnect();
    if (for_others_) return result.well() ? 0 : 1;
    gate_.reset();  // what came for us in the meantime acts now
    return end_as(result);
  }

  Status publish(const ChildResult& result, const LogFile::Written& log) {
    const std::string& path = session_.command.output;
    const Seen after = look(path);
    std::string fault = fault_of(path, before_, after);
    if (fault.empty() && !inputs_are_the_same()) fault = "read inputs that changed meanwhile";
    if (!fault.empty())
      return Error{Code::kInvalid, "the compiler ended with status 0 but " + fault, ""};
    client::EntryManifest manifest = describe(result);
    NC_TRY(add_output(path, after, manifest));
    NC_TRY(add_text(kStdout, result.out, manifest));
    NC_TRY(add_text(kStderr, result.err, manifest));
    NC_TRY(add_text(kLog, log.text, manifest));
    if (log.appended) manifest.meta[kLogAppends] = "1";
    NC_ASSIGN([[maybe_unused]] const bool published, client_.commit(lease_, manifest));
    return {};
  }

  // Others who want it are as well off without us as they would be if we had not been there.
  void not_stored(const ChildResult& result, const Error& why) {
    report_.failure_class = "environment";
    report_.message = "the output was not stored: " + why.text();
    tell(report_.message);
    client::FailReport failure;
    failure.failure_class = report_.failure_class;
    failure.message = report_.message;
    failure.log = join_streams(result.out, result.err);
    failure.unstored = true;
    ignore_error(client_.fail(lease_, failure), "the lease ends with this process");
  }

  // An output that lies upon an input is no change of the input.
  bool inputs_are_the_same() const {
    std::vector<InputFile> files = session_.action.files;
    std::erase_if(files, [&](const InputFile& file) {
      return before_.exists && file.stamp.device == before_.stamp.device &&
             file.stamp.inode == before_.stamp.inode;
    });
    return unchanged(files);
  }

  client::EntryManifest describe(const ChildResult& result) const {
    client::EntryManifest m;
    m.key = session_.action.key;
    m.parts = session_.action.parts;
    m.kind = "neff";
    m.name_space = session_.settings.text("namespace");
    m.label = session_.action.label;
    m.model = session_.model;
    m.compiler = "neuronx-cc " + session_.identity.version();
    m.created_ms = system_clock().wall_ms();
    m.build_ms = static_cast<std::uint64_t>(result.wall_ms);
    m.peak_rss_bytes = result.peak_rss_bytes;
    m.producer = {host_name(), ::getpid(), "neuronx-cc", NC_VERSION};
    m.meta["input_bytes"] = std::to_string(session_.action.input_bytes);
    constexpr std::size_t kMaxCommand = 16 << 10;
    const std::string words = key_text(quote_words(session_.command.compiler_arguments));
    if (words.size() <= kMaxCommand) m.meta["command"] = words;
    return m;
  }

  Status add_output(const std::string& path, const Seen& seen, client::EntryManifest& manifest) {
    client::Client::UploadOptions options;
    options.may_compress = false;
    options.lease_id = lease_.id;
    NC_ASSIGN(const auto uploaded, client_.upload_file(path, options));
    NC_ASSIGN(const Xxh128 sum, quick_of(path));
    manifest.meta[kNeffSum] = quick_text(sum);
    // What changed between the two looks was hashed as it is, but is it the compiler's?
    if (look(path).stamp != seen.stamp)
      return Error{Code::kConflict, fmt::format("{} changed while it was stored", path), ""};
    manifest.outputs.push_back({kNeff, uploaded.digest, uploaded.size, seen.mode});
    return {};
  }

  Status add_text(const char* name, const std::string& text, client::EntryManifest& manifest) {
    if (text.empty()) return {};
    client::Client::UploadOptions options;
    options.lease_id = lease_.id;
    const Digest digest = Digest::of(as_bytes(text));
    NC_TRY(client_.upload(digest, as_bytes(text), options));
    constexpr std::uint32_t kMode = 0644;
    manifest.outputs.push_back({name, digest, text.size(), kMode});
    return {};
  }

  void report_failure(const ChildResult& result, client::FailReport failure) {
    failure.peak_rss_bytes = result.peak_rss_bytes;
    report_.failure_class = failure.failure_class;
    report_.message = failure.message;
    if (result.timed_out) tell(fmt::format("the compiler was stopped: {}", failure.message));
    const auto told = client_.fail(lease_, failure);
    if (!told.ok()) tell("the failure was not recorded: " + told.error().text());
  }

  void tell(const std::string& text) const {
    if (!for_others_) say(text);
  }

  // A compiler that was killed by a signal ends us by the same one: so the caller sees what it
  // would have seen.
  static int end_as(const ChildResult& result) {
    if (result.timed_out) return kTimeoutStatus;
    if (result.signal == 0) return result.exit_code;
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);
    ::signal(result.signal, SIG_DFL);
    sigset_t mine;
    ::sigemptyset(&mine);
    ::sigaddset(&mine, result.signal);
    ::sigprocmask(SIG_UNBLOCK, &mine, nullptr);
    ::raise(result.signal);
    return 128 + result.signal;
  }

  Session& session_;
  client::Client& client_;
  const client::Lease& lease_;
  const bool for_others_;
  BuildReport report_;
  UniqueFd turn_;
  std::optional<LogFile> log_;
  Seen before_;
  client::AdmissionRequest request_;
  std::optional<client::Admission> admission_;
  std::optional<SignalGate> gate_;
  std::optional<client::LeaseKeeper> keeper_;
};

}  // namespace

int build(Session& session, client::Client& client, const client::Lease& lease) {
  return Build(session, client, lease, false).run();
}

BuildReport build_for_others(Session& session, client::Client& client, const client::Lease& lease) {
  Build build(session, client, lease, true);
  build.run();
  return build.report();
}

}  // namespace nc::cc

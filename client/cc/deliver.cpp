// A hit and a replayed failure: what the compiler would have left and said.
#include <fcntl.h>
#include <sys/signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <map>

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/unique_fd.hpp"
#include "client/cc/delivery.hpp"
#include "client/cc/failure.hpp"
#include "client/cc/session.hpp"
#include "client/cc/waiting.hpp"

namespace nc::cc {
namespace {

constexpr std::uint64_t kMaxText = 64 << 20;  // of a log or a stream

void print(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // as for a program whose reader went away
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

// What is stored no longer, because somebody took its file away, is to be built again like what is
// damaged. The daemon saw it when it was asked for the bytes, and has dropped the entry.
Error as_damage(Error error) {
  if (error.code == Code::kNotFound) error.code = Code::kDigestMismatch;
  return error;
}

Result<std::string> text_of(client::Client& client, const client::BlobPlace& blob) {
  if (blob.inline_bytes) return *blob.inline_bytes;
  auto text = client.download(blob.output.digest, kMaxText);
  if (!text.ok()) return as_damage(std::move(text).error());
  return text;
}

// A blob that comes neither as a path nor with the answer is fetched into a file of ours.
Status place_fetched(client::Client& client, const client::BlobPlace& blob,
                     const Expected& expected, const std::string& destination) {
  std::string path = "/tmp/neuroncache-XXXXXX";
  const UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return errno_error(errno, "cannot write", path);
  auto fetched = client.download_to(blob.output.digest, [&](Bytes bytes) -> Status {
    const std::string_view text = as_text(bytes);
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return errno_error(errno, "cannot write", path);
    return {};
  });
  Status done =
      fetched.ok() ? place({path, {}}, expected, destination) : as_damage(fetched.error());
  ::unlink(path.c_str());
  return done;
}

Status place_neff(client::Client& client, const client::EntryManifest& manifest,
                  const client::BlobPlace& blob, const std::string& destination) {
  Expected expected(blob.output.size);
  if (const auto sum = manifest.meta.find(kNeffSum); sum != manifest.meta.end())
    expected.quick = quick_from(sum->second);
  expected.digest = blob.output.digest;
  if (blob.inline_bytes) return place({"", *blob.inline_bytes}, expected, destination);
  if (!blob.path.empty()) {
    Status placed = place({blob.path, {}}, expected, destination);
    if (!placed.is(Code::kNotFound)) return placed;
  }
  return place_fetched(client, blob, expected, destination);
}

// The daemon looks for itself, and drops what is bad.
void report_damage(client::Client& client, const Digest& digest) {
  const auto checked = client.check_blob(digest);
  if (!checked.ok()) say("a damaged output was not reported: " + checked.error().text());
}

std::string time_text(Millis unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::string out(32, '\0');
  out.resize(std::strftime(out.data(), out.size(), "%Y-%m-%d %H:%M:%S", &local));
  return out;
}

}  // namespace

Status deliver(const Session& session, client::Client& client, const client::Acquired& hit) {
  std::map<std::string, const client::BlobPlace*> blobs;
  for (const client::BlobPlace& blob : hit.blobs) blobs[blob.output.name] = &blob;
  const auto neff = blobs.find(kNeff);
  if (neff == blobs.end() || neff->second->output.size == 0)
    return Error{Code::kCorrupt, "the entry holds no output", "run `neuroncache verify --repair`"};
  std::map<std::string, std::string> texts;
  for (const char* name : {kStdout, kStderr, kLog}) {
    const auto blob = blobs.find(name);
    if (blob == blobs.end()) continue;
    NC_ASSIGN(texts[name], text_of(client, *blob->second));
  }
  const UniqueFd turn = output_turn(session.output_locks, session.command.output);
  const Status placed = place_neff(client, hit.manifest, *neff->second, session.command.output);
  if (placed.is(Code::kDigestMismatch)) report_damage(client, neff->second->output.digest);
  NC_TRY(placed);
  if (blobs.contains(kLog)) {
    const auto appends = hit.manifest.meta.find(kLogAppends);
    const Status logged = place_log(texts[kLog], session.command.logfile,
                                    appends != hit.manifest.meta.end() && appends->second == "1");
    // A side file is not missed; what becomes of a command whose own log cannot be written is the
    // compiler's to say.
    if (!logged.ok() && session.command.logfile_named) return logged;
    if (!logged.ok()) say(logged.error().message);
  }
  print(STDOUT_FILENO, texts[kStdout]);
  print(STDERR_FILENO, texts[kStderr]);
  return {};
}

int replay(const Session& session, const client::FailureInfo& failure) {
  const Streams streams = split_streams(failure.log);
  print(STDOUT_FILENO, streams.out);
  print(STDERR_FILENO, streams.err);
  say(
      fmt::format("this is the failure of {} again, the compiler was not run; "
                  "NEURONCACHE_RETRY_FAILED=1 or --retry_failed_compilation tries anew (key {})",
                  time_text(failure.created_ms), session.action.key.hex().substr(0, 12)));
  const auto status = static_cast<int>(failure.exit_code);
  return status > 0 && status < 256 ? status : 1;
}

}  // namespace nc::cc

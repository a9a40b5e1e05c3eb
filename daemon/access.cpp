#include "daemon/access.hpp"

#include <tuple>

#include <fmt/format.h>

#include "base/log.hpp"

namespace nc::daemon {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr Millis kLogAgainMs = 10'000;

}  // namespace

Status Rights::may(std::string_view name_space) const {
  if (namespaces.contains(name_space)) return {};
  return Error{Code::kDenied, fmt::format("{} may not use the namespace {}", who, name_space),
               "ask for a token for it, or name another namespace"};
}

Gate::Gate(FileSystem& fs, Clock& clock, std::string tokens_path)
    : fs_(fs), clock_(clock), path_(std::move(tokens_path)) {
  refresh();
}

void Gate::refresh() {
  if (path_.empty()) return;
  auto info = fs_.stat(path_);
  const std::optional<FileInfo> now = info.ok() ? std::optional(*info) : std::nullopt;
  const auto identity = [](const FileInfo& i) {
    return std::tuple(i.inode, i.size, i.mtime_ms, i.mode, i.uid);
  };
  {
    MutexLock lock(mutex_);
    const bool same =
        now.has_value() == seen_.has_value() && (!now || identity(*now) == identity(*seen_));
    if (same && looked_) return;
    seen_ = now;
    looked_ = true;
  }
  auto file = trust::TokenFile::load(fs_, path_);
  MutexLock lock(mutex_);
  tokens_.reset();
  counts_.grants = 0;
  counts_.problem.clear();
  if (file.ok()) {
    counts_.grants = file->grants().size();
    tokens_ = std::make_shared<const trust::TokenFile>(std::move(*file));
    log::info("gate", "{} tokens and clients may come in ({})", counts_.grants, path_);
  } else {
    counts_.problem = file.error().text();
    log::error("gate", "nobody may come in: {}", counts_.problem);
  }
}

Result<std::shared_ptr<const Rights>> Gate::admit(const Remote& remote,
                                                  std::string_view authorization) {
  std::shared_ptr<const trust::TokenFile> tokens;
  {
    MutexLock lock(mutex_);
    tokens = tokens_;
  }
  const trust::Grant* grant = nullptr;
  Error denied{Code::kDenied, "a token is needed", "send Authorization: Bearer <token>"};
  if (authorization.starts_with(kBearer)) {
    if (tokens) grant = tokens->find_token(authorization.substr(kBearer.size()));
    denied = {Code::kDenied, "the token is not known here", "ask for another one"};
  } else if (authorization.empty() && tokens) {
    grant = tokens->find_client(remote.client);
  }
  if (grant != nullptr && grant->expired(clock_.wall_ms())) {
    denied = {Code::kDenied, fmt::format("{} has expired", grant->id()), "ask for another one"};
    grant = nullptr;
  }
  MutexLock lock(mutex_);
  if (grant == nullptr) {
    ++counts_.denied;
    tell(remote, denied);
    return denied;
  }
  ++counts_.admitted;
  auto rights = std::make_shared<Rights>();
  rights->scope = grant->scope;
  rights->namespaces = grant->namespaces;
  rights->remote = true;
  rights->who = fmt::format("{} {}", grant->client.empty() ? "token" : "client", grant->id());
  return std::shared_ptr<const Rights>(std::move(rights));
}

// What was sent as a token is never told.
void Gate::tell(const Remote& remote, const Error& error) {
  const Millis now = clock_.monotonic_ms();
  if (log_again_ms_ != 0 && now < log_again_ms_) {
    ++silent_;
    return;
  }
  log::warn("gate", "{}{}{} is refused: {}{}", remote.address, remote.client.empty() ? "" : " ",
            remote.client, error.message,
            silent_ == 0 ? "" : fmt::format("; so were {} more requests", silent_));
  silent_ = 0;
  log_again_ms_ = now + kLogAgainMs;
}

Gate::Counts Gate::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace nc::daemon

#include "base/result.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace nc {
namespace {

struct CodeName {
  Code code;
  std::string_view name;
};

// The names are part of the protocol (docs/protocol.md, "Errors"): never rename one.
constexpr std::array kCodeNames = {
    CodeName{Code::kInvalid, "invalid"},
    CodeName{Code::kNotFound, "not_found"},
    CodeName{Code::kDenied, "denied"},
    CodeName{Code::kReadOnly, "read_only"},
    CodeName{Code::kTimeout, "timeout"},
    CodeName{Code::kUnavailable, "unavailable"},
    CodeName{Code::kBusy, "busy"},
    CodeName{Code::kDraining, "draining"},
    CodeName{Code::kTooLarge, "too_large"},
    CodeName{Code::kLengthRequired, "length_required"},
    CodeName{Code::kDigestMismatch, "digest_mismatch"},
    CodeName{Code::kCorrupt, "corrupt"},
    CodeName{Code::kNoSpace, "no_space"},
    CodeName{Code::kLeaseLost, "lease_lost"},
    CodeName{Code::kConflict, "conflict"},
    CodeName{Code::kUnsupported, "unsupported_protocol"},
    CodeName{Code::kKeyMismatch, "key_mismatch"},
    CodeName{Code::kIo, "io"},
    CodeName{Code::kInternal, "internal"},
};

struct ErrnoMeaning {
  Code code;
  std::string_view action;
};

ErrnoMeaning meaning_of(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
      return {Code::kNotFound, ""};
    case EISDIR:
      return {Code::kConflict, "a directory is where a file should be: name another place"};
    case ENOTDIR:
      return {Code::kInvalid, "a file is where a directory should be: move it away"};
    case EACCES:
    case EPERM:
      return {Code::kDenied, "check the owner and the permissions of the path"};
    case EROFS:
      return {Code::kReadOnly, "the file system is mounted read-only: choose another place"};
    case ENOSPC:
      return {Code::kNoSpace, "free some disk space there"};
    case EDQUOT:
      return {Code::kNoSpace, "your disk quota is used up: free some space"};
    case EFBIG:
      return {Code::kTooLarge, "the file is over the size that the system allows (ulimit -f)"};
    case EEXIST:
    case ENOTEMPTY:
      return {Code::kConflict, ""};
    case EINVAL:
      return {Code::kInvalid, ""};
    case ENAMETOOLONG:
      return {Code::kInvalid, "use a shorter path"};
    case ELOOP:
      return {Code::kInvalid, "the path has too many symbolic links"};
    case EAGAIN:
    case EBUSY:
    case ETXTBSY:
      return {Code::kBusy, "try again"};
    case ETIMEDOUT:
      return {Code::kTimeout, ""};
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
      return {Code::kUnavailable, ""};
    case EMFILE:
    case ENFILE:
      return {Code::kIo, "too many open files: raise the limit (ulimit -n)"};
    case ENOMEM:
      return {Code::kIo, "out of memory"};
    case ENOSYS:
    case EOPNOTSUPP:
      return {Code::kUnsupported, "this kernel or file system cannot do that"};
    case EIO:
      return {Code::kIo, "the disk reports a fault: look at the kernel's log (dmesg)"};
    default:
      return {Code::kIo, ""};
  }
}

}  // namespace

std::string_view code_name(Code code) {
  const auto* it = std::ranges::find(kCodeNames, code, &CodeName::code);
  return it == kCodeNames.end() ? "internal" : it->name;
}

std::optional<Code> code_from_name(std::string_view name) {
  const auto* it = std::ranges::find(kCodeNames, name, &CodeName::name);
  if (it == kCodeNames.end()) return std::nullopt;
  return it->code;
}

std::string Error::text() const {
  return action.empty() ? message : message + " (" + action + ")";
}

Error Error::context(std::string_view where) && {
  message.insert(0, std::string(where) + ": ");
  return std::move(*this);
}

Error errno_error(int err, std::string_view what, std::string_view path) {
  const ErrnoMeaning meaning = meaning_of(err);
  std::string message(what);
  if (!path.empty()) message.append(" ").append(path);
  message.append(": ").append(std::generic_category().message(err));
  return {meaning.code, std::move(message), std::string(meaning.action)};
}

}  // namespace nc

// Result<T>: a value or an Error. Nothing in neuroncache throws across an API.
//
// An Error says what happened and to what (`message`) and what the reader can do about it
// (`action`). Its code tells absent, denied, failed and timed out apart; callers branch on the
// code, never on the text.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace nc {

// The order is not stored anywhere; the names are (docs/protocol.md), see code_name().
enum class Code {
  kInvalid,         // the caller's input is wrong
  kNotFound,        // absent: a normal answer, not a fault
  kDenied,          // permission
  kReadOnly,        // the store or disk cannot be written
  kTimeout,         // did not answer in time
  kUnavailable,     // nobody there (daemon not running, connection refused)
  kBusy,            // a limit on concurrent work was reached
  kDraining,        // shutting down
  kTooLarge,        // over a size limit
  kLengthRequired,  // a body without a declared length
  kDigestMismatch,  // bytes are not what their name says
  kCorrupt,         // stored bytes are damaged
  kNoSpace,         // disk or budget full
  kLeaseLost,       // another builder holds the lease
  kConflict,        // the state does not allow it
  kUnsupported,     // version or capability not spoken
  kKeyMismatch,     // parts do not hash to the key
  kIo,              // the operating system failed
  kInternal,        // a fault of ours
};

std::string_view code_name(Code code);  // "not_found", ...
std::optional<Code> code_from_name(std::string_view name);

struct Error {
  Code code = Code::kInternal;
  std::string message = {};  // "cannot write /x/y: No space left on device"
  std::string action = {};   // "free space or lower max_bytes"; may be empty

  // "message (action)" for people.
  std::string text() const;
  // Puts where we were in front: context("publishing 1234") -> "publishing 1234: cannot write ...".
  [[nodiscard]] Error context(std::string_view where) &&;
};

// An Error from errno: chooses the code (ENOENT, EACCES, ENOSPC, EROFS, EDQUOT, ...) and an action
// that fits.
Error errno_error(int err, std::string_view what, std::string_view path);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    assert(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    assert(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    assert(ok());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    assert(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    assert(!ok());
    return std::get<1>(std::move(state_));
  }
  bool is(Code code) const { return !ok() && error().code == code; }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    assert(!ok());
    return *error_;
  }
  Error&& error() && {
    assert(!ok());
    return *std::move(error_);
  }
  bool is(Code code) const { return !ok() && error_->code == code; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// For the rare place where a failure changes nothing (best-effort clean-up); says why at the call.
template <class T>
void ignore_error(const Result<T>&, const char* /*why*/) {}

}  // namespace nc

// NC_TRY(expr): returns the error from the enclosing function. NC_ASSIGN(decl, expr): the same,
// else binds the value.
#define NC_CONCAT_(a, b) a##b
#define NC_CONCAT(a, b) NC_CONCAT_(a, b)
#define NC_TRY(expr)                                  \
  do {                                                \
    if (auto nc_status_ = (expr); !nc_status_.ok()) { \
      return std::move(nc_status_).error();           \
    }                                                 \
  } while (false)
#define NC_ASSIGN_IMPL(tmp, decl, expr)         \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).error(); \
  decl = std::move(tmp).value()
#define NC_ASSIGN(decl, expr) NC_ASSIGN_IMPL(NC_CONCAT(nc_result_, __LINE__), decl, expr)

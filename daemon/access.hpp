// What a client may do. The daemon's own user may do everything; members of the socket's group and
// callers over TCP have what they were given, and never see paths of this host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/result.hpp"
#include "base/thread_annotations.hpp"
#include "base/trust/tokens.hpp"

namespace nc::daemon {

using trust::Scope;

struct Rights {
  Scope scope = Scope::kRead;
  trust::NamespaceSet namespaces;
  bool remote = false;  // over TCP: what it publishes has to be signed
  std::string who;      // for the log: "token 3f2a...", "client host-7", "uid 1001"

  // kDenied.
  Status may(std::string_view name_space) const;
};

// A caller over TCP, as its connection knows it.
struct Remote {
  std::string address;  // "10.0.0.7:51234"
  std::string client;   // common name of a certificate that was verified; "" without one
};

// The tokens in force. Thread-safe; only refresh() touches the disk.
class Gate {
 public:
  Gate(FileSystem& fs, Clock& clock, std::string tokens_path);

  // Looks whether the file has changed. A file that cannot be read lets nobody in.
  void refresh();

  // `authorization`: the header's value, or "". kDenied: nobody that is known, or not any more.
  Result<std::shared_ptr<const Rights>> admit(const Remote& remote, std::string_view authorization);

  struct Counts {
    std::uint64_t admitted = 0, denied = 0;
    std::size_t grants = 0;
    std::string problem;
  };
  Counts counts() const;

 private:
  void tell(const Remote& remote, const Error& error) NC_REQUIRES(mutex_);

  FileSystem& fs_;
  Clock& clock_;
  const std::string path_;
  mutable Mutex mutex_;
  std::optional<FileInfo> seen_ NC_GUARDED_BY(mutex_);
  bool looked_ NC_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const trust::TokenFile> tokens_ NC_GUARDED_BY(mutex_);
  Counts counts_ NC_GUARDED_BY(mutex_);
  Millis log_again_ms_ NC_GUARDED_BY(mutex_) = 0;
  std::uint64_t silent_ NC_GUARDED_BY(mutex_) = 0;
};

}  // namespace nc::daemon

// The settings in force. Those marked live may change while the daemon runs; who depends on one
// subscribes.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"

namespace nc::daemon {

class LiveSettings {
 public:
  explicit LiveSettings(Settings settings);

  Settings copy() const NC_EXCLUDES(mutex_);
  // Called at once, and after every change, one call at a time.
  void subscribe(std::function<void(const Settings&)> changed) NC_EXCLUDES(mutex_, change_);

  // kInvalid: no such setting, or a bad value. kConflict: it is fixed while the daemon runs.
  Status change(const std::string& name, const std::string& value) NC_EXCLUDES(mutex_, change_);
  // Takes the live ones over from `fresh` (read again from file and environment); what was changed
  // over the socket stays. Returns the names of those that differ but need a restart.
  std::vector<std::string> reload(const Settings& fresh) NC_EXCLUDES(mutex_, change_);

 private:
  void tell() NC_REQUIRES(change_);

  Mutex change_;  // taken before mutex_
  mutable Mutex mutex_;
  Settings settings_ NC_GUARDED_BY(mutex_);
  std::vector<std::function<void(const Settings&)>> subscribers_ NC_GUARDED_BY(change_);
};

StoreOptions store_options(const Settings& settings);

}  // namespace nc::daemon

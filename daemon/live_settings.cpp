#include "daemon/live_settings.hpp"

#include <utility>

#include "base/bytes.hpp"

namespace nc::daemon {

LiveSettings::LiveSettings(Settings settings) : settings_(std::move(settings)) {}

Settings LiveSettings::copy() const {
  MutexLock lock(mutex_);
  return settings_;
}

void LiveSettings::subscribe(std::function<void(const Settings&)> changed) {
  MutexLock change(change_);
  changed(copy());
  subscribers_.push_back(std::move(changed));
}

void LiveSettings::tell() {
  const Settings now = copy();
  for (const auto& subscriber : subscribers_) subscriber(now);
}

Status LiveSettings::change(const std::string& name, const std::string& value) {
  const SettingSpec* spec = find_setting(name);
  if (spec == nullptr) {
    std::vector<std::string> names;
    for (const auto& known : setting_table()) names.emplace_back(known.name);
    const auto near = nearest_name(name, names);
    return Error{Code::kInvalid, "there is no setting '" + name + "'",
                 near ? "did you mean '" + *near + "'?" : "see `neuroncache config show`"};
  }
  if (!spec->live) {
    return Error{Code::kConflict, "'" + name + "' cannot change while the daemon runs",
                 "set it in the settings file and restart the daemon"};
  }
  MutexLock change(change_);
  {
    MutexLock lock(mutex_);
    NC_TRY(settings_.set(name, value, Origin::kLive, "changed while running"));
  }
  tell();
  return {};
}

std::vector<std::string> LiveSettings::reload(const Settings& fresh) {
  std::vector<std::string> need_restart;
  MutexLock change(change_);
  {
    MutexLock lock(mutex_);
    for (const SettingSpec& spec : setting_table()) {
      if (settings_.origin(spec.name) == Origin::kLive) continue;
      if (settings_.text(spec.name) == fresh.text(spec.name)) continue;
      if (!spec.live) {
        if (spec.reader == "daemon" || spec.reader == "all") need_restart.emplace_back(spec.name);
        continue;
      }
      // It was checked when `fresh` was read.
      ignore_error(settings_.set(spec.name, fresh.text(spec.name), fresh.origin(spec.name),
                                 fresh.origin_detail(spec.name)),
                   "a value that was checked before");
    }
  }
  tell();
  return need_restart;
}

StoreOptions store_options(const Settings& settings) {
  const auto millis = [&settings](std::string_view name) {
    return static_cast<Millis>(settings.seconds(name) * 1000);
  };
  StoreOptions options;
  options.dir = settings.text("dir");
  options.read_only = settings.boolean("read_only");
  if (!settings.text("max_bytes").empty()) options.max_bytes = settings.size("max_bytes");
  options.max_entries = static_cast<std::uint64_t>(settings.integer("max_entries"));
  options.min_free = settings.size("min_free");
  options.max_blob = settings.size("max_blob");
  options.namespace_quota = settings.quotas("namespace_quota");
  options.compression = settings.boolean("compression");
  options.failure_ttl_ms = millis("failure_ttl");
  options.orphan_grace_ms = millis("orphan_grace");
  return options;
}

}  // namespace nc::daemon

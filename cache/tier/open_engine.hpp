// Opens the engine that an address names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/random.hpp"
#include "cache/tier/engine.hpp"
#include "cache/tier/tier_url.hpp"

namespace nc::tier {

// An environment variable's value; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// The doors of an engine; the defaults are the real ones.
struct EngineDeps {
  Clock* clock = &system_clock();
  Random* random = &system_random();
  FileSystem* files = &real_filesystem();
  Environment environment = process_environment();
  std::function<void(Millis)> sleep = {};  // between attempts; empty: the thread sleeps
};

// Talks to nobody: a tier that cannot be reached is found at the first call. kUnsupported where
// the machine lacks a library that it needs.
Result<std::unique_ptr<Engine>> open_engine(const TierAddress& address, EngineDeps deps = {});

}  // namespace nc::tier

// One place outside of this host where a fleet keeps its objects: a bucket of an S3 service, a
// shared directory, a Redis server, another neuroncached. An engine moves bytes and knows nothing
// of what they mean: which objects there are, in which order they are written and who is believed
// is decided above it (cache/tier/chain.hpp, cache/tier/lease.hpp).
//
// Names are relative, '/'-separated, made of [a-z0-9._-] parts, none of them empty, "." or ".."; at
// most 512 bytes. An object is immutable but for what put() replaces whole: a reader sees one
// version or another, never a mixture, and never a part. No engine is trusted: what it gives may be
// anything, and whoever reads it checks digest or signature.
//
// Errors, the same for all engines and all calls:
//   kNotFound      there is no such object (a normal answer)
//   kDenied        credentials are missing, wrong or too weak
//   kReadOnly      the engine cannot be written
//   kNoSpace       it is full, or over its quota
//   kTimeout       no answer, or no byte, in time
//   kUnavailable   nobody there, or it asks to come back later (503, connection refused)
//   kBusy          it asks to slow down (429, 503 SlowDown)
//   kTooLarge      larger than the caller's limit, or than the engine takes
//   kCorrupt       what came is not what was announced (short body, wrong checksum of the
//   transport) kUnsupported   the engine cannot do this at all (see Capabilities) kIo anything else
//   the engine or the network said
// All calls are thread-safe and block, each no longer than the engine's timeout without progress.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::tier {

struct ObjectInfo {
  std::string name;
  std::uint64_t size = 0;
  Millis modified_ms = 0;  // by the engine's clock, which may be any; 0: not known
};

struct Page {
  std::vector<ObjectInfo> objects;  // by name
  std::string next;                 // pass as `after` for the rest; "": there is none
};

struct Capabilities {
  bool exclusive_create = false;  // create() is atomic among all clients of the engine
  bool list = false;
  bool remove = false;
  // Has one entry for each key, and whom it believes decides which: another neuroncached.
  bool one_entry = false;
};

// Takes a body piece by piece; an error ends the transfer and is what the transfer gives.
using Sink = std::function<Status(Bytes)>;

// Gives a body piece by piece, and again from any place when a transfer has to be repeated.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::uint64_t size() const = 0;
  virtual Result<std::size_t> read_at(std::uint64_t offset,
                                      std::span<std::byte> out) = 0;  // 0 at the end
};

class Engine {
 public:
  virtual ~Engine() = default;

  // The tier's address for people and logs; never a secret.
  virtual const std::string& address() const = 0;
  virtual Capabilities capabilities() const = 0;

  // A small object, whole. kTooLarge over `limit` bytes; no more than that is read.
  virtual Result<std::string> get(const std::string& name, std::uint64_t limit) = 0;
  // From `offset` to the end, into `sink`; an engine repeats what it can by itself, without giving
  // a byte twice. Gives the size of the whole object. kTooLarge over `limit`.
  virtual Result<std::uint64_t> fetch(const std::string& name, std::uint64_t offset,
                                      std::uint64_t limit, const Sink& sink) = 0;
  virtual Result<ObjectInfo> head(const std::string& name) = 0;

  // Visible whole, and durable as far as the engine is, when it returns; replaces what is there.
  virtual Status put(const std::string& name, Bytes bytes) = 0;
  virtual Status store(const std::string& name, Source& source) = 0;
  // As put(), if there is no such object: of any number of callers, everywhere, one gets true. An
  // answer that got lost counts as an error even where the object was made. `keep_ms` > 0 lets an
  // engine that can forget it after that time.
  virtual Result<bool> create(const std::string& name, Bytes bytes, Millis keep_ms) = 0;
  // Ok also when it is gone already.
  virtual Status remove(const std::string& name) = 0;
  // Names that begin with `prefix` and come after `after`; at most `limit` (or what the engine
  // gives at once).
  virtual Result<Page> list(const std::string& prefix, const std::string& after,
                            std::size_t limit) = 0;
};

}  // namespace nc::tier

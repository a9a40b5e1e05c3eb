// The builds that leases stand for: admission (admission.hpp), what their memory teaches
// (peak_book.hpp), and both written down so that a restart goes on with them. Thread-safe; what
// writes may wait for the disk.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/filesystem.hpp"
#include "base/settings.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"
#include "daemon/admission.hpp"
#include "daemon/lease_keeper.hpp"
#include "daemon/peak_book.hpp"

namespace nc::daemon {

// This host's memory.
class HostDoor final : public MemoryDoor {
 public:
  explicit HostDoor(FileSystem& fs) : fs_(fs) {}
  std::optional<std::uint64_t> available() override;
  std::vector<std::uint64_t> taken(std::span<const std::int64_t> pids) override;

 private:
  FileSystem& fs_;
};
MemoryDoor& host_memory_door();

class Builds final : public LeaseFollower {
 public:
  Builds(Store& store, Clock& clock, MemoryDoor& door)
      : store_(store), clock_(clock), admission_(clock, door) {}

  // The reservations of leases that are still held. After LeaseKeeper::restore().
  Status restore(const LeaseTable& leases, const Settings& settings, bool persist)
      NC_EXCLUDES(mutex_);
  // Takes over build_memory and build_cores.
  void configure(const Settings& settings);
  void drain();

  struct Ask {
    std::string lease;
    std::int64_t pid = 0;
    std::string compiler;
    std::uint64_t input_bytes = 0;
    std::uint64_t minimum_bytes = 0;
    unsigned cores = 1;
    bool alone = false;
    std::uint64_t guess = 0;  // of the user, see PeakBook::estimate()
    Millis wait_ms = 0;
  };
  PeakBook::Estimate expect(const Ask& ask) const;
  // `wake` is called once, from any thread, when the answer is kParked.
  AdmissionQueue::Answer ask(const Ask& ask, std::uint64_t expected, AdmissionQueue::Wake wake)
      NC_EXCLUDES(mutex_);
  // An admission was told to its builder: from now on a restart knows it.
  void told(const std::string& lease, const Demand& granted) NC_EXCLUDES(mutex_);
  // A builder says that it runs with a reservation that we do not know.
  void adopt(const std::string& lease, std::int64_t pid, const Demand& demand) NC_EXCLUDES(mutex_);
  // The build of this lease took so much; nothing when it was never admitted.
  void learn(const std::string& lease, std::uint64_t peak_bytes) NC_EXCLUDES(mutex_);
  // What was reserved for it, 0 when nothing.
  std::uint64_t reserved(const std::string& lease) NC_EXCLUDES(mutex_);

  void lease_ended(const std::string& lease) override NC_EXCLUDES(mutex_);
  void tick() override;
  std::optional<Millis> next_deadline() const override { return admission_.next_deadline(); }

  AdmissionQueue::View view() { return admission_.view(); }
  std::vector<PeakBook::Learned> learned() const { return peaks_.learned(); }

 private:
  struct Known {
    std::optional<PeakClass> of;
    Demand granted;
    bool written = false;
  };
  void write(const std::string& lease, const Known& known);

  Store& store_;
  Clock& clock_;
  AdmissionQueue admission_;
  PeakBook peaks_;
  std::atomic<bool> persist_{false};
  Mutex mutex_;
  std::map<std::string, Known> known_ NC_GUARDED_BY(mutex_);  // by lease
};

}  // namespace nc::daemon

// What people ask of one tier: what lies in it, whether it is whole, and taking things out of it.
// Works page by page, so that no call takes long, but for collect(). Goes to the engine directly:
// no breaker stops a person, and nothing is counted as a look-up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/tier/transfer.hpp"

namespace nc::tier {

struct TierFilter {                       // all that are set must hold
  std::string name_space = {};            // exact
  std::string model = {}, compiler = {};  // substrings
  std::optional<double> older_than_s = {},
                        newer_than_s = {};  // since built, by the builder's clock
  bool any() const {
    return !name_space.empty() || !model.empty() || !compiler.empty() || older_than_s ||
           newer_than_s;
  }
};

class Survey {
 public:
  struct Deps {
    Link& link;
    Transfer& transfer;
    Store& store;
    Clock& clock;
    Random& random;
  };
  explicit Survey(Deps deps) : deps_(deps) {}

  struct Row {
    ActionKey key;
    std::string name_space, label, model, compiler;
    std::uint64_t bytes = 0;
    Millis created_ms = 0;
    std::string state;    // found | here | pulled | removed | refused (not trusted here) | failed
    std::string problem;  // refused, failed
  };
  struct Page {
    std::vector<Row> rows;
    std::string next;  // "": that was all
  };
  // Entries that fit and are not in the local store are brought there, unless `dry_run`.
  Result<Page> pull(const TierFilter& filter, const std::string& after, std::size_t limit,
                    bool dry_run);
  // Entries that fit are removed, unless `dry_run`; their blobs are what collect() is for.
  Result<Page> prune(const TierFilter& filter, const std::string& after, std::size_t limit,
                     bool dry_run);

  struct Check {
    std::uint64_t checked = 0;  // entries and blobs
    std::uint64_t bytes = 0;
    struct Bad {
      std::string what, problem, action;
    };
    std::vector<Bad> bad;
    std::vector<Bad> untrusted;  // may be good to other hosts: unsigned, or of unknown signers
    std::string next;
  };
  enum class Repair {
    kNo,
    kDamaged,    // a blob that is damaged, and an entry that nobody can use, are removed
    kUntrusted,  // so are entries that are not trusted here, whoever else may want them
  };
  // Entries are read and checked as a look-up does; their blobs have to be there, and with `deep`
  // their bytes are fetched and hashed. The last page has the jobs of the cluster's queue as well,
  // which are checked likewise.
  Result<Check> verify(const std::string& after, std::size_t limit, bool deep, Repair repair);

  struct Collected {
    std::uint64_t entries = 0, blobs = 0, bytes = 0;  // what there is
    std::uint64_t damaged = 0;                        // entries that nobody can read
    std::uint64_t unused = 0;                         // blobs that no entry names
    std::uint64_t marked = 0;                         // of these: seen so for the first time now
    std::uint64_t removed = 0, removed_bytes = 0;
    std::uint64_t leases = 0, leases_removed = 0;  // rows of leases, see lease_sweep.hpp
  };
  // Blobs that no entry names go once they have been so for `grace_ms`: each is marked, in the
  // tier, when it is first seen unused; whoever is about to name it removes the mark first.
  // Rows of leases go that have not changed for so long. `dry_run`: counts what would go.
  Result<Collected> collect(Millis grace_ms, bool dry_run);

 private:
  struct Described {
    Row row;
    std::optional<Manifest> manifest;  // nothing: row.problem says why it cannot be used
    bool gone = false;                 // removed since it was listed
    bool foreign = false;              // it may be good to other hosts
  };
  // An error is the engine's.
  Result<Described> describe(const std::string& name);
  // True: another entry lies under that name now.
  using Act = std::function<Result<bool>(const std::string& name, const Manifest&, Row&)>;
  Result<Page> each_entry(const TierFilter& filter, const std::string& after, std::size_t limit,
                          bool unusable, const Act& act);
  // Removes an entry, and moves the last one of its key to its place. True: there was another.
  Result<bool> take_out(const std::string& name);
  Result<bool> check_entry(const std::string& name, bool deep, Repair repair, Check& check);
  Status check_blob(const Output& output, bool deep, Check& check, bool& damaged);
  Status check_blobs(const Manifest& manifest, bool deep, Repair repair, Check& check);
  Status check_jobs(bool deep, Repair repair, Check& check);

  const Deps deps_;
};

}  // namespace nc::tier

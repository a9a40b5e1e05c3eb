// The tiers of this host, in the order in which they are asked. A look-up that the local store does
// not answer reads through them; what is built here is written back to all that are written; what
// is found in a slower tier is filled into the faster ones before it. Blocks; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cache/tier/transfer.hpp"
#include "cache/tier/write_back.hpp"

namespace nc::tier {

struct TierView {  // one tier, for people
  std::string address;
  bool readable = true, writable = true, compress = true;
  int priority = 0;
  Millis timeout_ms = 0;
  std::uint64_t max_bytes = 0;
  Breaker::View reading, writing;
  std::uint64_t asked = 0, hits = 0, absent = 0, denied = 0, failed = 0, timed_out = 0, refused = 0,
                corrupt = 0, skipped = 0;
  std::uint64_t sent = 0, known = 0, send_failed = 0, unsigned_kept = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0;
  double entry_ms = 0;  // mean time of asking for an entry
  std::size_t queued = 0, sending = 0;
};

class Chain {
 public:
  struct Deps {
    Clock& clock;
    TransferDeps transfer;
    WriteBack::Options write_back = {};
  };
  // Sorted here by priority; those of one priority stay in the order given.
  Chain(std::vector<std::unique_ptr<Link>> links, Deps deps);
  ~Chain();

  bool empty() const { return links_.empty(); }
  bool readable() const;

  Status restore();  // before start()
  void start();
  void stop();
  // Something is being sent, or could be.
  bool busy() const;

  // Asks the tiers in order and brings the first entry that is good into the local store. Never
  // fails: a tier that does is counted and the next is asked.
  struct Found {
    bool found = false;
    std::string tier;
    std::uint64_t bytes = 0;  // raw, of all its blobs
  };
  // `asked`: the namespace of the look-up; what may not answer it is refused. "": any.
  Found find(const ActionKey& key, const Progress& progress, std::string_view asked = {});

  // Asks each once, so that what is wrong shows before somebody needs it. Blocks.
  void greet();
  // Asks those that were sick whether they are well again, when it is time. Blocks; call it every
  // second or so.
  void probe();

  // An entry was built here: it goes to every tier that is written. Returns at once.
  void published(const ActionKey& key);
  // Others wait for this one in `link`: it goes there first. Whether it is on its way still.
  void hurry(const ActionKey& key, const Link& link) { write_back_.hurry(key, link.name()); }
  bool pending(const ActionKey& key, const Link& link) const {
    return write_back_.pending(key, link.name());
  }
  // On its way, but that way is blocked: the tier does not take it.
  bool stuck(const ActionKey& key, const Link& link) const {
    return write_back_.stuck(key, link.name());
  }
  // The first tier that can hold the cluster's leases: read, written, and atomic in create(). With
  // `name`: that one. kNotFound, kUnsupported.
  Result<Link*> lease_link(const std::string& name);
  // One by hand. kNotFound: there is no such tier.
  Status queue(const ActionKey& key, const std::string& tier);
  // The tier whose address is `name`, or, "" with a single tier, that one. kNotFound.
  Result<Link*> link(const std::string& name);
  const std::vector<std::unique_ptr<Link>>& links() const { return links_; }
  Transfer& transfer() { return transfer_; }

  std::vector<TierView> view() const;
  std::uint64_t dropped() const { return write_back_.dropped(); }
  // Sends what is due on this thread; for tests.
  bool step() { return write_back_.step(); }

 private:
  enum class Asked { kFound, kAbsent, kNo };
  Asked ask(Link& link, const ActionKey& key, const Progress& progress, std::string_view asked,
            Found& found);
  WriteBack::Outcome send(const ActionKey& key, const std::string& tier);

  std::vector<std::unique_ptr<Link>> links_;
  Transfer transfer_;
  WriteBack write_back_;
};

}  // namespace nc::tier

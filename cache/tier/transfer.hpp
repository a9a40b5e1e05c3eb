// Entries between the local store and one tier: bytes stream, digests are checked as they arrive,
// an entry becomes visible after all its blobs, on both sides.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "base/filesystem.hpp"
#include "base/thread_annotations.hpp"
#include "cache/store.hpp"
#include "cache/tier/link.hpp"

namespace nc::tier {

// Who is believed, and who may sign (docs/security.md).
struct Trust {
  std::function<Status(const Manifest&, std::string_view origin)> check;
  std::function<Status(Manifest&)> sign;
  // Whether what check() took may answer a look-up in the namespace `asked`.
  std::function<Status(const Manifest&, std::string_view asked, std::string_view origin)> serves =
      {};
  // Whether its signer's key is revoked here: no use to anybody, so that another may replace it.
  std::function<bool(const Manifest&)> disowns = {};
  // Told of an entry that lay under another key's name; counts and logs.
  std::function<void(const Manifest&, const ActionKey& found_under, std::string_view origin)>
      misplaced = {};
};

struct TransferDeps {
  Store& store;
  FileSystem& fs;
  Random& random;
  Trust trust;
  std::string scratch_dir;            // for blobs that are compressed before they are sent
  std::function<void(Millis)> sleep;  // between two attempts
};

// Told of bytes as they come, for people who wait. False: it is not wanted any more.
using Progress = std::function<bool(std::uint64_t bytes)>;

class Transfer {
 public:
  explicit Transfer(TransferDeps deps) : deps_(std::move(deps)) {}

  // What a failure was about, beside its code.
  struct Blame {
    bool refused = false;  // the entry is there, and nobody whom we trust signed it
    bool foreign =
        false;  // it may be good to others: of a stranger, unsigned, or of a newer version
    bool disowned = false;  // its signer's key is revoked here
    bool local = false;     // the local store failed, not the tier
  };
  // The first entry of `key` in the tier that is believed: kNotFound; kKeyMismatch, kInvalid, ...:
  // what is there, at the first place, is not a manifest of this key. `asked`: the namespace whose
  // look-up it is for; "": of none. One request where the first place has it, or has nothing.
  Result<Manifest> read_entry(Link& link, const ActionKey& key, Blame& blame,
                              std::string_view asked = {});
  // `text`, which the tier has as the entry of `key`, as read_entry() judges it.
  Result<Manifest> believe(Link& link, const ActionKey& key, const std::string& text, Blame& blame);
  // All that read_entry() gave, into the local store. Counts nothing.
  Status fetch(Link& link, const Manifest& manifest, const Progress& progress, Blame& blame);

  enum class Sent {
    kSent,
    kKnown,     // it was there already
    kGone,      // it is not in the local store any more
    kUnsigned,  // this host may not sign it
    kCrowded,   // strangers' entries have all places of this key
  };
  Result<Sent> send(Link& link, const ActionKey& key);
  // Whether the local store has the entry and all its blobs.
  bool has_whole(const ActionKey& key);
  // The same, under another name than an entry's.
  Result<Sent> send_as(Link& link, const ActionKey& key, const std::string& name);

  // What is being sent ends with kDraining at its next piece, and nothing is sent any more.
  void stop() { stopping_ = true; }

 private:
  Status may_serve(Link& link, const Manifest& manifest, std::string_view asked, Blame& blame);
  // Where the entry of `manifest` goes; nothing: one that is as good is there. kConflict: nowhere.
  // `damaged`: what is there now is no entry at all.
  Result<std::optional<std::string>> place_for(Link& link, const Manifest& manifest,
                                               const std::vector<std::string>& names,
                                               bool& damaged);
  Result<Sent> send_to(Link& link, const ActionKey& key, const std::vector<std::string>& names);
  Status publish(const Manifest& manifest, const std::string& origin);
  Status fetch_blob(Link& link, const Output& output, const Progress& progress, Blame& blame);
  Status fetch_form(Link& link, const Output& output, bool compressed, const Progress& progress,
                    Blame& blame);
  // True: it was there.
  Result<bool> send_blob(Link& link, const Output& output);
  Status upload(Link& link, const Output& output);
  Status write_blob(Link& link, const Output& output);
  Result<bool> has_blob(Link& link, const Output& output);

  TransferDeps deps_;
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  std::condition_variable_any arrived_;
  std::set<Digest> coming_ NC_GUARDED_BY(mutex_);  // blobs that somebody fetches
};

// Smaller blobs are never compressed in a tier, so that nobody has to look for both forms.
inline constexpr std::uint64_t kMinCompressedBlob = 4096;

// By its size alone: an object of `stored` bytes may hold this output in that form.
bool may_be_blob(const Output& output, bool compressed, std::uint64_t stored);

}  // namespace nc::tier

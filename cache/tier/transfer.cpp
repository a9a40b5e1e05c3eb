#include "cache/tier/transfer.hpp"

#include <algorithm>
#include <memory>

#include "base/log.hpp"
#include "cache/tier/blob_source.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/write_aside.hpp"
#include "cache/tier/zstd_stream.hpp"

namespace nc::tier {
namespace {

constexpr int kAttempts = 3;
constexpr Millis kRetryMs = 300;

bool worth_repeating(const Error& error) {
  return error.code == Code::kCorrupt || error.code == Code::kUnavailable ||
         error.code == Code::kIo || error.code == Code::kBusy;
}

class StoppableSource final : public Source {
 public:
  StoppableSource(Source& source, const std::atomic<bool>& stopping)
      : source_(source), stopping_(stopping) {}
  std::uint64_t size() const override { return source_.size(); }
  Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> out) override {
    if (stopping_) return Error{Code::kDraining, "the transfer was given up", ""};
    return source_.read_at(offset, out);
  }

 private:
  Source& source_;
  const std::atomic<bool>& stopping_;
};

}  // namespace

Result<Manifest> Transfer::read_entry(Link& link, const ActionKey& key, Blame& blame,
                                      std::string_view asked) {
  std::optional<Error> first;
  const unsigned places = link.engine().capabilities().one_entry ? 1 : kEntryPlaces;
  for (unsigned place = 0; place < places; ++place) {
    const auto text = link.get(entry_name(key, place), Manifest::kMaxBytes);
    if (!text.ok() && (text.is(Code::kNotFound) || sick(text.error()))) {
      return first ? *first : text.error();
    }
    Blame here;
    auto manifest = text.ok() ? believe(link, key, *text, here) : Result<Manifest>(text.error());
    if (manifest.ok()) {
      Status may = may_serve(link, *manifest, asked, here);
      if (may.ok()) return manifest;
      manifest = std::move(may).error();
    }
    if (!first) {
      first = manifest.error();
      blame = here;
    }
  }
  return *first;
}

Status Transfer::may_serve(Link& link, const Manifest& manifest, std::string_view asked,
                           Blame& blame) {
  if (asked.empty() || !deps_.trust.serves) return {};
  Status may = deps_.trust.serves(manifest, asked, link.name());
  if (!may.ok()) blame.refused = blame.foreign = true;
  return may;
}

Result<Manifest> Transfer::believe(Link& link, const ActionKey& key, const std::string& text,
                                   Blame& blame) {
  auto parsed = Manifest::parse(text);
  blame.foreign = parsed.is(Code::kUnsupported);
  NC_ASSIGN(auto manifest, std::move(parsed));
  if (manifest.key != key) {
    if (deps_.trust.misplaced) deps_.trust.misplaced(manifest, key, link.name());
    return Error{Code::kKeyMismatch,
                 "the tier " + link.name() + " gave the entry of another key for " + key.hex(), ""};
  }
  if (Status believed = deps_.trust.check(manifest, link.name()); !believed.ok()) {
    blame.refused = true;
    blame.foreign = believed.is(Code::kDenied) || believed.is(Code::kUnsupported);
    blame.disowned = deps_.trust.disowns && deps_.trust.disowns(manifest);
    return std::move(believed).error();
  }
  return manifest;
}

// ---- From the tier ----

Status Transfer::fetch_form(Link& link, const Output& output, bool compressed,
                            const Progress& progress, Blame& blame) {
  auto begun = deps_.store.begin_upload(output.digest, output.size, false);
  blame.local = !begun.ok();
  NC_ASSIGN(auto upload, std::move(begun));
  upload->may_be_lost();  // the tier has it
  std::uint64_t came = 0;
  WriteAside writer(*upload, output.size);
  const auto judged = [&](Status kept) {
    blame.local = !kept.ok() && !kept.is(Code::kTooLarge);  // more than announced is the tier's
    return kept;
  };
  const Sink keep = [&](Bytes piece) { return judged(writer.write(piece)); };
  Inflater inflater(keep);
  const Sink take = [&](Bytes piece) -> Status {
    came += piece.size();
    if (progress && !progress(piece.size())) {
      blame.local = true;
      return Error{Code::kDraining, "the transfer was given up", ""};
    }
    return compressed ? inflater.write(piece) : keep(piece);
  };
  const auto name = blob_name(output.digest, compressed);
  for (int attempt = 1;; ++attempt) {
    // A compressed blob is only kept where it is smaller than the raw one.
    auto size = link.fetch(name, came, output.size, take);
    if (size.ok()) break;
    const bool resumable = came > 0 && attempt < kAttempts && worth_repeating(size.error());
    if (!resumable) return std::move(size).error();
    log::debug("tiers", "{}: goes on at byte {}: {}", name, came, size.error().text());
    deps_.sleep(kRetryMs * attempt);
  }
  if (compressed) NC_TRY(inflater.finish());
  NC_TRY(judged(writer.drain()));
  Status kept = upload->finish();
  blame.local = !kept.ok() && !kept.is(Code::kDigestMismatch);
  return kept;
}

Status Transfer::fetch_blob(Link& link, const Output& output, const Progress& progress,
                            Blame& blame) {
  {
    MutexLock lock(mutex_);
    while (coming_.contains(output.digest)) arrived_.wait(mutex_);
    coming_.insert(output.digest);
  }
  const std::shared_ptr<void> leave(nullptr, [&](void*) {
    MutexLock lock(mutex_);
    coming_.erase(output.digest);
    arrived_.notify_all();
  });
  NC_ASSIGN(const bool known, deps_.store.has_blob(output.digest));
  if (known) return {};
  const bool maybe = output.size >= kMinCompressedBlob;
  const bool first = maybe && link.compressed_likely;
  auto fetched = fetch_form(link, output, first, progress, blame);
  if (!fetched.is(Code::kNotFound)) return fetched;
  if (maybe) fetched = fetch_form(link, output, !first, progress, blame);
  if (fetched.ok()) link.compressed_likely = !first;
  return fetched;
}

Status Transfer::fetch(Link& link, const Manifest& manifest, const Progress& progress,
                       Blame& blame) {
  for (const auto& output : manifest.outputs) {
    auto fetched = fetch_blob(link, output, progress, blame);
    if (fetched.is(Code::kNotFound)) {
      // It was there before the entry was: one that is not to be seen may be a moment late.
      deps_.sleep(kRetryMs);
      fetched = fetch_blob(link, output, progress, blame);
    }
    if (fetched.is(Code::kNotFound)) {
      return Error{Code::kCorrupt,
                   "the tier " + link.name() + " has the entry " + manifest.key.hex() +
                       " without its blob " + output.digest.hex(),
                   "`neuroncache verify --tier` finds such entries"};
    }
    if (fetched.is(Code::kCorrupt) || fetched.is(Code::kDigestMismatch) ||
        fetched.is(Code::kTooLarge)) {
      if (!blame.local) link.note_damaged(output.digest);
    }
    if (!fetched.ok()) return fetched;
  }
  Status published = publish(manifest, link.name());
  blame.local = !published.ok();
  return published;
}

Status Transfer::publish(const Manifest& manifest, const std::string& origin) {
  NC_ASSIGN(const bool fresh, deps_.store.publish(manifest));
  if (fresh || !deps_.trust.serves) return {};
  // One whose signer is not believed any more must not mask this one.
  NC_ASSIGN(const auto there, deps_.store.peek(manifest.key));
  if (!there || there->signature.empty() ||
      deps_.trust.serves(*there, manifest.name_space, origin).ok()) {
    return {};
  }
  return deps_.store.replace(manifest);
}

// ---- To the tier ----

bool may_be_blob(const Output& output, bool compressed, std::uint64_t stored) {
  return compressed ? stored <= output.size : stored == output.size;
}

Result<bool> Transfer::has_blob(Link& link, const Output& output) {
  if (link.damaged(output.digest)) return false;
  const bool maybe = output.size >= kMinCompressedBlob;
  for (const bool compressed :
       {link.address().compress && maybe, !link.address().compress && maybe}) {
    auto info = link.head(blob_name(output.digest, compressed));
    // One of the wrong size, or no file at all, is no blob: it is written anew.
    if (info.ok() && may_be_blob(output, compressed, info->size)) return true;
    if (!info.ok() && sick(info.error())) return std::move(info).error();
    if (!maybe) break;
  }
  return false;
}

Status Transfer::upload(Link& link, const Output& output) {
  NC_TRY(write_blob(link, output));
  link.note_mended(output.digest);
  return {};
}

Status Transfer::write_blob(Link& link, const Output& output) {
  NC_ASSIGN(const auto blob, blob_source(deps_.store, deps_.fs, output.digest));
  StoppableSource source(*blob, stopping_);
  if (link.address().compress && output.size >= kMinCompressedBlob) {
    NC_ASSIGN(const bool pays, worth_compressing(source));
    if (pays) {
      const auto path = join(deps_.scratch_dir, "tier-" + deps_.random.hex_id());
      NC_ASSIGN(auto file, deps_.fs.open(path, FileSystem::Open::kCreateNew));
      const std::shared_ptr<void> gone(nullptr, [&](void*) {
        ignore_error(deps_.fs.remove(path), "the directory is emptied at the next start");
      });
      NC_ASSIGN(const auto size, deflate(source, *file));
      file.reset();
      if (size < output.size) {
        NC_ASSIGN(const auto packed, file_source(deps_.fs, path));
        StoppableSource stoppable(*packed, stopping_);
        return link.store(blob_name(output.digest, true), stoppable);
      }
    }
  }
  return link.store(blob_name(output.digest, false), source);
}

Result<bool> Transfer::send_blob(Link& link, const Output& output) {
  // Before anything else: who collects garbage must not go by a mark of times when nothing named
  // this blob.
  link.forget(mark_name(output.digest));
  NC_ASSIGN(const bool known, has_blob(link, output));
  if (known) return true;
  NC_TRY(upload(link, output));
  return false;
}

Result<std::optional<std::string>> Transfer::place_for(Link& link, const Manifest& manifest,
                                                       const std::vector<std::string>& names,
                                                       bool& damaged) {
  const ActionKey& key = manifest.key;
  const bool only = names.size() == 1 || link.engine().capabilities().one_entry;
  for (const std::string& place : names) {
    const auto text = link.peek(place, Manifest::kMaxBytes);
    if (!text.ok() && sick(text.error())) return text.error();
    damaged = !text.ok() && !text.is(Code::kNotFound);
    if (!text.ok()) return std::optional(place);
    Blame blame;
    const auto theirs = believe(link, key, *text, blame);
    // Who cannot be believed here may be the one whom others believe: his entry is left alone.
    // What nobody can use must not mask this one.
    damaged = !theirs.ok() && !blame.refused && !blame.foreign;
    if (!theirs.ok() && (blame.disowned || !blame.foreign)) return std::optional(place);
    if (theirs.ok() && may_serve(link, *theirs, manifest.name_space, blame).ok()) {
      bool whole = true;
      for (std::size_t i = 0; whole && i < theirs->outputs.size(); ++i) {
        NC_ASSIGN(whole, has_blob(link, theirs->outputs[i]));
      }
      return whole ? std::nullopt : std::optional(place);
    }
    if (only) return std::optional(place);
  }
  return Error{Code::kConflict, "", ""};
}

bool Transfer::has_whole(const ActionKey& key) {
  const auto entry = deps_.store.peek(key);
  if (!entry.ok() || !*entry) return false;
  return std::ranges::all_of((*entry)->outputs, [this](const Output& output) {
    const auto there = deps_.store.has_blob(output.digest);
    return there.ok() && *there;
  });
}

Result<Transfer::Sent> Transfer::send(Link& link, const ActionKey& key) {
  std::vector<std::string> names;
  for (unsigned place = 0; place < kEntryPlaces; ++place) names.push_back(entry_name(key, place));
  return send_to(link, key, names);
}

Result<Transfer::Sent> Transfer::send_as(Link& link, const ActionKey& key,
                                         const std::string& name) {
  return send_to(link, key, {name});
}

Result<Transfer::Sent> Transfer::send_to(Link& link, const ActionKey& key,
                                         const std::vector<std::string>& names) {
  const auto hold = deps_.store.hold(key);
  NC_ASSIGN(auto entry, deps_.store.peek(key));
  if (!entry) return Sent::kGone;
  Manifest& manifest = *entry;
  if (Status may = deps_.trust.sign(manifest); !may.ok()) {
    log::debug("tiers", "{} is not sent to {}: {}", key.hex(), link.name(), may.error().text());
    return Sent::kUnsigned;
  }
  // The first one stays, if it is one that can be used.
  bool damaged = false;
  auto place = place_for(link, manifest, names, damaged);
  if (place.is(Code::kConflict)) return Sent::kCrowded;
  NC_TRY(place);
  if (!*place) return Sent::kKnown;
  if (damaged) {  // its blobs may be, too: none is taken for whole by its size
    for (const auto& output : manifest.outputs) link.note_damaged(output.digest);
  }
  NC_TRY(link.within_budget());
  std::vector<const Output*> known;
  for (const auto& output : manifest.outputs) {
    NC_ASSIGN(const bool there, send_blob(link, output));
    if (there) known.push_back(&output);
  }
  if (known.size() < manifest.outputs.size()) {  // it took its time: somebody may have come first
    place = place_for(link, manifest, names, damaged);
    if (place.is(Code::kConflict)) return Sent::kCrowded;
    NC_TRY(place);
    if (!*place) return Sent::kKnown;
  }
  const auto text = manifest.to_json();
  Status put = link.put(**place, as_bytes(text));
  // What is no object there, and cannot be written over, does not mask this one either.
  for (auto next = names.begin(); put.is(Code::kCorrupt) && !link.engine().capabilities().one_entry;
       put = link.put(**place, as_bytes(text))) {
    next = std::find(next, names.end(), **place);
    if (next == names.end() || ++next == names.end()) break;
    place = place_for(link, manifest, {next, names.end()}, damaged);
    if (place.is(Code::kConflict)) return Sent::kCrowded;
    NC_TRY(place);
    if (!*place) return Sent::kKnown;
  }
  NC_TRY(put);
  // What was there already may have been collected while nothing named it; now something does.
  for (const auto* output : known) {
    NC_ASSIGN(const bool there, has_blob(link, *output));
    if (!there) NC_TRY(upload(link, *output));
  }
  return Sent::kSent;
}

}  // namespace nc::tier

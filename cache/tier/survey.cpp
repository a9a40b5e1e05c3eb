#include "cache/tier/survey.hpp"

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/log.hpp"
#include "base/number.hpp"
#include "cache/tier/job_queue.hpp"
#include "cache/tier/layout.hpp"
#include "cache/tier/lease_sweep.hpp"
#include "cache/tier/zstd_stream.hpp"

namespace nc::tier {
namespace {

// Between looking at a blob's mark for the last time and removing the blob.
constexpr Millis kHasteMs = 10'000;

bool fits(const Manifest& m, const TierFilter& f, Millis now) {
  const double age_s = static_cast<double>(now - m.created_ms) / 1000;
  return (f.name_space.empty() || m.name_space == f.name_space) &&
         m.model.find(f.model) != std::string::npos &&
         m.compiler.find(f.compiler) != std::string::npos &&
         (!f.older_than_s || age_s > *f.older_than_s) &&
         (!f.newer_than_s || age_s < *f.newer_than_s);
}

}  // namespace

Result<Survey::Described> Survey::describe(const std::string& name) {
  Described out;
  Row& row = out.row;
  row.key = parse_entry(name)->key;
  row.state = "failed";
  auto text = deps_.link.engine().get(name, Manifest::kMaxBytes);
  if (!text.ok() && sick(text.error())) return std::move(text).error();
  Transfer::Blame blame;
  auto believed = text.ok() ? deps_.transfer.believe(deps_.link, row.key, *text, blame)
                            : Result<Manifest>(text.error());
  if (!believed.ok()) {
    out.gone = text.is(Code::kNotFound);
    out.foreign = blame.foreign;
    if (blame.foreign) row.state = "refused";
    row.problem = believed.error().text();
    return out;
  }
  const Manifest& manifest = out.manifest.emplace(*std::move(believed));
  row.name_space = manifest.name_space;
  row.label = manifest.label;
  row.model = manifest.model;
  row.compiler = manifest.compiler;
  row.bytes = manifest.bytes();
  row.created_ms = manifest.created_ms;
  row.state = "found";
  return out;
}

// Of a page of entries those that fit, each with what `act` makes of it; what cannot be used is
// among them, as it is, where `unusable`.
Result<Survey::Page> Survey::each_entry(const TierFilter& filter, const std::string& after,
                                        std::size_t limit, bool unusable, const Act& act) {
  NC_ASSIGN(auto listed, deps_.link.engine().list(std::string(kEntries), after, limit));
  Page page;
  page.next = std::move(listed.next);
  for (const auto& object : listed.objects) {
    if (!parse_entry(object.name)) continue;
    for (bool again = true; again;) {
      again = false;
      NC_ASSIGN(auto found, describe(object.name));
      if (found.manifest) {
        if (!fits(*found.manifest, filter, deps_.clock.wall_ms())) continue;
        NC_ASSIGN(again, act(object.name, *found.manifest, found.row));
      } else if (!unusable || found.gone) {
        continue;
      }
      page.rows.push_back(std::move(found.row));
    }
  }
  return page;
}

Result<bool> Survey::take_out(const std::string& name) {
  Engine& engine = deps_.link.engine();
  const auto entry = *parse_entry(name);
  // Readers stop at the first place that is empty, so none is left so.
  unsigned end = entry.place + 1;
  for (; end < kEntryPlaces; ++end) {
    auto there = engine.head(entry_name(entry.key, end));
    if (there.is(Code::kNotFound)) break;
    if (!there.ok() && sick(there.error())) return std::move(there).error();
  }
  for (unsigned last = end; --last > entry.place;) {
    const auto from = entry_name(entry.key, last);
    const auto text = engine.get(from, Manifest::kMaxBytes);
    if (!text.ok() && sick(text.error())) return text.error();
    if (!text.ok()) continue;
    NC_TRY(engine.put(name, as_bytes(*text)));
    NC_TRY(engine.remove(from));
    return true;
  }
  NC_TRY(engine.remove(name));
  return false;
}

Result<Survey::Page> Survey::pull(const TierFilter& filter, const std::string& after,
                                  std::size_t limit, bool dry_run) {
  const bool unusable = !filter.any();  // whether it fits a filter cannot be told
  return each_entry(filter, after, limit, unusable,
                    [&](const std::string&, const Manifest& manifest, Row& row) -> Result<bool> {
                      NC_ASSIGN(const auto here, deps_.store.peek(row.key));
                      if (here) {
                        row.state = "here";
                      } else if (!dry_run) {
                        Transfer::Blame blame;
                        Status fetched = deps_.transfer.fetch(deps_.link, manifest, {}, blame);
                        row.state = fetched.ok() ? "pulled" : "failed";
                        if (!fetched.ok()) row.problem = fetched.error().text();
                      }
                      return false;
                    });
}

Result<Survey::Page> Survey::prune(const TierFilter& filter, const std::string& after,
                                   std::size_t limit, bool dry_run) {
  return each_entry(filter, after, limit, false,
                    [&](const std::string& name, const Manifest&, Row& row) -> Result<bool> {
                      if (dry_run) return false;
                      row.state = "removed";
                      return take_out(name);
                    });
}

Status Survey::check_blob(const Output& output, bool deep, Check& check, bool& damaged) {
  Engine& engine = deps_.link.engine();
  ++check.checked;
  std::string problem = "is not there";
  for (const bool compressed : {true, false}) {
    if (compressed && output.size < kMinCompressedBlob) continue;
    const auto name = blob_name(output.digest, compressed);
    auto info = engine.head(name);
    if (info.is(Code::kNotFound)) continue;
    if (!info.ok() && sick(info.error())) return std::move(info).error();
    if (!info.ok()) {
      damaged = true;
      problem = "is no file";
      continue;
    }
    if (!may_be_blob(output, compressed, info->size)) {
      problem = "has the wrong size";
      continue;
    }
    check.bytes += info->size;
    if (!deep) return {};
    Sha256Hasher hasher;
    std::uint64_t raw = 0;
    const Sink take = [&](Bytes piece) -> Status {
      raw += piece.size();
      if (raw > output.size) return Error{Code::kTooLarge, "it is larger than announced", ""};
      hasher.update(piece);
      return {};
    };
    Inflater inflater(take);
    auto got = engine.fetch(name, 0, output.size, [&](Bytes piece) {
      return compressed ? inflater.write(piece) : take(piece);
    });
    if (!got.ok() && sick(got.error())) return std::move(got).error();
    const bool whole = got.ok() && (!compressed || inflater.finish().ok());
    if (whole && hasher.finish() == output.digest) return {};
    damaged = true;
    problem = "is damaged";
  }
  check.bad.push_back({output.digest.hex(), "the blob " + problem, ""});
  return {};
}

// True: another entry lies under that name now.
Result<bool> Survey::check_entry(const std::string& name, bool deep, Repair repair, Check& check) {
  NC_ASSIGN(const auto found, describe(name));
  if (found.gone) return false;
  ++check.checked;
  const auto before = check.bad.size();
  if (found.foreign) {
    const bool remove = repair == Repair::kUntrusted;
    check.untrusted.push_back(
        {found.row.key.hex(), found.row.problem,
         remove ? "the entry was removed"
                : "left alone: other hosts may trust it; --repair --untrusted removes it"});
    if (remove) return take_out(name);
    return false;
  }
  if (!found.manifest) check.bad.push_back({found.row.key.hex(), found.row.problem, ""});
  if (found.manifest) NC_TRY(check_blobs(*found.manifest, deep, repair, check));
  for (auto i = before; i < check.bad.size(); ++i) {
    check.bad[i].action =
        repair != Repair::kNo
            ? "the entry was removed; it is built again when it is wanted"
            : "the entry cannot be used: `neuroncache verify --tier ... --repair` removes it";
  }
  if (check.bad.size() == before || repair == Repair::kNo) return false;
  return take_out(name);
}

Result<Survey::Check> Survey::verify(const std::string& after, std::size_t limit, bool deep,
                                     Repair repair) {
  NC_ASSIGN(auto listed, deps_.link.engine().list(std::string(kEntries), after, limit));
  Check check;
  check.next = std::move(listed.next);
  for (const auto& object : listed.objects) {
    if (!parse_entry(object.name)) {
      check.bad.push_back({object.name, "is not an object of ours", "remove it by hand"});
      continue;
    }
    for (bool again = true; again;) {
      NC_ASSIGN(again, check_entry(object.name, deep, repair, check));
    }
  }
  if (check.next.empty()) NC_TRY(check_jobs(deep, repair, check));
  return check;
}

Status Survey::check_blobs(const Manifest& manifest, bool deep, Repair repair, Check& check) {
  for (const auto& output : manifest.outputs) {
    bool damaged = false;
    NC_TRY(check_blob(output, deep, check, damaged));
    if (!damaged || repair == Repair::kNo) continue;
    for (const bool compressed : {true, false}) {
      Status gone = deps_.link.engine().remove(blob_name(output.digest, compressed));
      if (!gone.ok() && sick(gone.error())) return std::move(gone).error();
    }
  }
  return {};
}

Status Survey::check_jobs(bool deep, Repair repair, Check& check) {
  Engine& engine = deps_.link.engine();
  JobQueue queue(engine, deps_.link, deps_.transfer);
  NC_ASSIGN(const auto jobs, queue.list());
  for (const auto& job : jobs) {
    ++check.checked;
    const auto before = check.bad.size();
    auto text = engine.get(queue_name(job.key.hex()), Manifest::kMaxBytes);
    if (text.is(Code::kNotFound)) continue;  // done meanwhile
    if (!text.ok() && sick(text.error())) return std::move(text).error();
    auto manifest = text.ok() ? Manifest::parse(*text) : Result<Manifest>(text.error());
    if (manifest.ok()) {
      Transfer::Blame blame;
      manifest = deps_.transfer.believe(deps_.link, manifest->key, *text, blame);
      if (!manifest.ok() && blame.foreign) {
        const bool remove = repair == Repair::kUntrusted;
        check.untrusted.push_back(
            {job.key.hex(), manifest.error().text(),
             remove ? "the queued build was removed"
                    : "left alone: other hosts may trust it; --repair --untrusted removes it"});
        if (remove) NC_TRY(queue.remove(job.key));
        continue;
      }
    }
    if (manifest.ok()) {
      NC_TRY(check_blobs(*manifest, deep, repair, check));
    } else {
      check.bad.push_back({job.key.hex(), manifest.error().text(), ""});
    }
    if (check.bad.size() == before) continue;
    if (repair != Repair::kNo) NC_TRY(queue.remove(job.key));
    for (auto i = before; i < check.bad.size(); ++i) {
      check.bad[i].action =
          repair != Repair::kNo
              ? "the queued build was removed; queue it again"
              : "the queued build cannot be used: `neuroncache verify --tier ... --repair` "
                "removes it";
    }
  }
  return {};
}

Result<Survey::Collected> Survey::collect(Millis grace_ms, bool dry_run) {
  Engine& engine = deps_.link.engine();
  const Millis now = deps_.clock.wall_ms();
  Collected result;
  NC_ASSIGN(const LeaseSweep leases, sweep_leases(engine, deps_.clock, grace_ms, dry_run));
  result.leases = leases.rows;
  result.leases_removed = leases.removed;
  // Marks first, then blobs, then entries: what becomes named meanwhile is seen as such, and what
  // is uploaded meanwhile is not looked at.
  std::unordered_set<Digest, Sha256Hash> marked;
  NC_TRY(each_object(engine, kMarks, [&](const ObjectInfo& object) -> Status {
    if (const auto digest = parse_mark(object.name)) marked.insert(*digest);
    return {};
  }));
  struct Blob {
    std::uint64_t bytes = 0;
    bool forms[2] = {false, false};  // raw, compressed
  };
  std::unordered_map<Digest, Blob, Sha256Hash> blobs;
  NC_TRY(each_object(engine, kBlobs, [&](const ObjectInfo& object) -> Status {
    const auto name = parse_blob(object.name);
    if (!name) return {};
    Blob& blob = blobs[name->digest];
    blob.bytes += object.size;
    blob.forms[name->compressed ? 1 : 0] = true;
    result.bytes += object.size;
    return {};
  }));
  result.blobs = blobs.size();
  // Also what we do not believe keeps its blobs: others may.
  const auto keep_blobs = [&](const std::string& name) -> Status {
    auto text = engine.get(name, Manifest::kMaxBytes);
    if (text.is(Code::kNotFound)) return {};
    if (!text.ok() && sick(text.error())) return std::move(text).error();
    const auto manifest = text.ok() ? Manifest::parse(*text) : Result<Manifest>(text.error());
    if (!manifest.ok()) {
      ++result.damaged;
      return {};
    }
    for (const auto& output : manifest->outputs) blobs.erase(output.digest);
    return {};
  };
  NC_TRY(each_object(engine, kEntries, [&](const ObjectInfo& object) -> Status {
    if (!parse_entry(object.name)) return {};
    ++result.entries;
    return keep_blobs(object.name);
  }));
  NC_TRY(each_object(engine, kQueue, [&](const ObjectInfo& object) -> Status {
    return parse_job(object.name) ? keep_blobs(object.name) : Status();
  }));
  result.unused = blobs.size();
  // A mark of what is used again, or gone, has had its day. Whoever made it new marks it anew.
  for (const auto& digest : marked) {
    if (!dry_run && !blobs.contains(digest)) NC_TRY(engine.remove(mark_name(digest)));
  }
  for (const auto& [digest, blob] : blobs) {
    auto mark = marked.contains(digest) ? engine.get(mark_name(digest), 64)
                                        : Result<std::string>(Error{Code::kNotFound, "", ""});
    if (!mark.ok() && sick(mark.error())) return std::move(mark).error();
    const auto since = mark.ok() ? whole_number<Millis>(*mark) : std::nullopt;
    if (!since || *since > now) {  // none, or of a clock that is far ahead: it begins anew
      ++result.marked;
      const auto text = std::to_string(now);
      if (!dry_run) NC_TRY(engine.put(mark_name(digest), as_bytes(text)));
      continue;
    }
    if (now - *since < grace_ms) continue;
    ++result.removed;
    result.removed_bytes += blob.bytes;
    if (dry_run) continue;
    const Millis begin = deps_.clock.monotonic_ms();
    auto last = engine.get(mark_name(digest), 64);
    if (!last.ok() || *last != *mark || deps_.clock.monotonic_ms() - begin > kHasteMs) {
      --result.removed;  // somebody wants it, or we are too slow to be sure
      result.removed_bytes -= blob.bytes;
      continue;
    }
    for (const bool compressed : {false, true}) {
      if (blob.forms[compressed ? 1 : 0]) NC_TRY(engine.remove(blob_name(digest, compressed)));
    }
    NC_TRY(engine.remove(mark_name(digest)));
  }
  return result;
}

}  // namespace nc::tier

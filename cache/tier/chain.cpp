#include "cache/tier/chain.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "cache/tier/layout.hpp"

namespace nc::tier {
namespace {

// A look-up that was not answered by a tier, into the one counter that says why.
void count(LinkCounters& counters, const Error& error, const Transfer::Blame& blame) {
  if (blame.refused) {
    ++counters.refused;
  } else if (blame.local) {
    ++counters.failed;
  } else {
    count_failure(counters, error);
  }
}

// Whether the tier would take another entry, or this one a moment later.
WriteBack::Refusal refusal_of(const Error& error) {
  switch (error.code) {
    case Code::kDenied:
    case Code::kReadOnly:
    case Code::kNoSpace:
    case Code::kUnsupported:
      return WriteBack::Refusal::kAll;
    default:
      return WriteBack::Refusal::kNone;
  }
}

}  // namespace

Chain::Chain(std::vector<std::unique_ptr<Link>> links, Deps deps)
    : links_(std::move(links)),
      transfer_(deps.transfer),
      write_back_(
          deps.transfer.store, deps.clock, deps.transfer.random,
          [this](const ActionKey& key, const std::string& tier) { return send(key, tier); },
          deps.write_back) {
  std::ranges::stable_sort(links_, {}, [](const auto& link) { return link->address().priority; });
}

Chain::~Chain() {
  stop();
}

bool Chain::readable() const {
  return std::ranges::any_of(links_, [](const auto& link) { return link->readable(); });
}

Status Chain::restore() {
  std::vector<std::string> names;
  for (const auto& link : links_) {
    if (link->writable()) names.push_back(link->name());
  }
  return write_back_.restore(names);
}

void Chain::start() {
  if (std::ranges::any_of(links_, [](const auto& link) { return link->writable(); })) {
    write_back_.start();
  }
}

bool Chain::busy() const {
  return std::ranges::any_of(links_, [&](const auto& link) {
    const auto counts = write_back_.counts(link->name());
    return counts.sending > 0 || (counts.waiting > 0 && link->writing().may_call());
  });
}

void Chain::stop() {
  transfer_.stop();
  write_back_.stop();
}

Chain::Asked Chain::ask(Link& link, const ActionKey& key, const Progress& progress,
                        std::string_view asked, Found& found) {
  LinkCounters& counters = link.counters();
  if (!link.reading().may_call()) {
    ++counters.skipped;
    return Asked::kNo;
  }
  Transfer::Blame blame;
  auto manifest = transfer_.read_entry(link, key, blame, asked);
  if (manifest.is(Code::kNotFound)) {
    ++counters.absent;
    return Asked::kAbsent;
  }
  Status fetched =
      manifest.ok() ? transfer_.fetch(link, *manifest, progress, blame) : Status(manifest.error());
  if (!fetched.ok()) {
    count(counters, fetched.error(), blame);
    log::debug("tiers", "{}: no {}: {}", link.name(), key.hex(), fetched.error().text());
    return Asked::kNo;
  }
  ++counters.hits;
  found = {true, link.name(), manifest->bytes()};
  return Asked::kFound;
}

Chain::Found Chain::find(const ActionKey& key, const Progress& progress, std::string_view asked) {
  Found found;
  std::vector<Link*> without;
  for (const auto& link : links_) {
    if (!link->readable()) continue;
    const Asked answer = ask(*link, key, progress, asked, found);
    if (answer == Asked::kAbsent) without.push_back(link.get());
    if (answer == Asked::kFound) break;
  }
  if (!found.found) return found;
  for (Link* link : without) {
    if (link->writable()) write_back_.add(key, link->name());
  }
  return found;
}

void Chain::greet() {
  for (const auto& link : links_) {
    if (link->readable() && link->reading().may_call()) link->probe();
  }
}

void Chain::probe() {
  for (const auto& link : links_) {
    if (link->readable() && !link->reading().may_call() && link->reading().may_probe()) {
      link->probe();
    }
  }
}

void Chain::published(const ActionKey& key) {
  for (const auto& link : links_) {
    if (link->writable()) write_back_.add(key, link->name());
  }
}

Result<Link*> Chain::link(const std::string& name) {
  if (name.empty() && links_.size() == 1) return links_.front().get();
  std::string known;
  for (const auto& link : links_) {
    if (link->name() == name) return link.get();
    known += (known.empty() ? "" : ", ") + link->name();
  }
  if (links_.empty()) {
    return Error{Code::kNotFound, "there are no tiers", "name some in the setting `tiers`"};
  }
  return Error{Code::kNotFound,
               name.empty() ? std::string("there are several tiers") : "there is no tier " + name,
               "name one of " + known};
}

Result<Link*> Chain::lease_link(const std::string& name) {
  const auto can = [](Link& link) {
    return link.readable() && link.writable() && link.engine().capabilities().exclusive_create;
  };
  if (!name.empty()) {
    NC_ASSIGN(Link* const named, link(name));
    if (can(*named)) return named;
    return Error{Code::kUnsupported, "the tier " + name + " cannot hold the leases of a cluster",
                 "name one that is read and written, or set cluster_leases to auto"};
  }
  for (const auto& link : links_) {
    if (can(*link)) return link.get();
  }
  return Error{Code::kNotFound, "no tier can hold the leases of a cluster", ""};
}

Status Chain::queue(const ActionKey& key, const std::string& tier) {
  NC_ASSIGN(Link* const to, link(tier));
  if (!to->writable()) {
    return Error{Code::kReadOnly, "the tier " + to->name() + " is set read_only", ""};
  }
  if (write_back_.add(key, to->name())) return {};
  return Error{Code::kBusy, "too many entries wait to be sent to tiers", "try again later"};
}

WriteBack::Outcome Chain::send(const ActionKey& key, const std::string& tier) {
  const auto to = link(tier);
  if (!to.ok()) return {.done = true};
  Link& link = **to;
  if (!link.writing().may_probe()) {
    constexpr Millis kLeastMs = 100;
    return {.wait_ms = std::max(link.writing().view().retry_in_ms, kLeastMs)};
  }
  auto sent = transfer_.send(link, key);
  if (!sent.ok()) {
    ++link.counters().send_failed;
    log::debug("tiers", "{} is not sent to {} yet: {}", key.hex(), tier, sent.error().text());
    if (sick(sent.error()) || sent.is(Code::kDraining)) {
      return {.refusal = refusal_of(sent.error())};
    }
    link.writing().done({}, 0);  // a probe must have an outcome
    // Should the local copy be gone or damaged, there is nothing to be sent.
    if (!transfer_.has_whole(key)) return {.done = true};
    link.tell_refused(key, sent.error());
    return {.refusal = WriteBack::Refusal::kThis};
  }
  // Also where nothing was asked of the tier: a probe must have an outcome.
  link.writing().done({}, 0);
  switch (*sent) {
    case Transfer::Sent::kSent:
      ++link.counters().sent;
      break;
    case Transfer::Sent::kKnown:
      ++link.counters().known;
      break;
    case Transfer::Sent::kUnsigned:
      if (link.counters().unsigned_kept++ == 0) {
        log::warn("tiers", "what is built here is not sent to {}: this host may not sign it", tier);
      }
      break;
    case Transfer::Sent::kCrowded:
      ++link.counters().send_failed;
      log::warn("tiers",
                "{} is not sent to {}: {} entries of signers who are not trusted here have its "
                "places; `neuroncache verify --tier ... --repair --untrusted` removes them",
                key.hex(), tier, kEntryPlaces);
      break;
    case Transfer::Sent::kGone:
      break;
  }
  return {.done = true};
}

std::vector<TierView> Chain::view() const {
  std::vector<TierView> views;
  for (const auto& link : links_) {
    const TierAddress& address = link->address();
    const LinkCounters& c = link->counters();
    TierView v;
    v.address = address.shown;
    v.readable = link->readable();
    v.writable = link->writable();
    v.compress = address.compress;
    v.priority = address.priority;
    v.timeout_ms = address.timeout_ms;
    v.max_bytes = address.max_bytes;
    v.reading = link->reading().view();
    v.writing = link->writing().view();
    v.hits = c.hits;
    v.absent = c.absent;
    v.denied = c.denied;
    v.failed = c.failed;
    v.timed_out = c.timed_out;
    v.refused = c.refused;
    v.corrupt = c.corrupt;
    v.skipped = c.skipped;
    v.asked =
        v.hits + v.absent + v.denied + v.failed + v.timed_out + v.refused + v.corrupt + v.skipped;
    v.sent = c.sent;
    v.known = c.known;
    v.send_failed = c.send_failed;
    v.unsigned_kept = c.unsigned_kept;
    v.bytes_in = c.bytes_in;
    v.bytes_out = c.bytes_out;
    const auto calls = v.asked - v.skipped;
    v.entry_ms = calls > 0 ? static_cast<double>(c.entry_ms) / static_cast<double>(calls) : 0;
    const auto counts = write_back_.counts(address.shown);
    v.queued = counts.waiting;
    v.sending = counts.sending;
    views.push_back(std::move(v));
  }
  return views;
}

}  // namespace nc::tier

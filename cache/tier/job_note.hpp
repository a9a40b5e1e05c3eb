// What became of the attempts to build a queued action (cache/tier/job_queue.hpp). Whoever may
// write the tier may write one, so a note is a claim: it can delay a build or end the attempts, and
// never makes anybody run or believe anything.
//
//   note      = one JSON object in UTF-8, at most 64 KiB, of these members in any order; members
//               that are not known are skipped, so that a later version may add some
//   v         1                        anything else is kUnsupported
//   state     "building"               taken by `host`; whether that host lives is told by the
//                                      key's lease, and by nothing here
//             "again"                  it failed by bad luck, or was given back: to be taken again
//             "failed"                 nobody tries again until it is queued anew
//   attempts  0 .. 1000                how often it was taken, those that were given back not
//                                      counted
//   host, compiler, class, message     for people: who took it last, and the last failure; at most
//                                      1024 bytes each
//   log       the end of the failed build's log, at most 16 KiB
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace nc::tier {

struct JobNote {
  enum class State { kBuilding, kAgain, kFailed };
  static constexpr std::size_t kMaxBytes = 64 << 10;
  static constexpr std::size_t kMaxText = 1024;
  static constexpr std::size_t kMaxLog = 16 << 10;
  static constexpr unsigned kMaxAttempts = 1000;

  State state = State::kBuilding;
  unsigned attempts = 0;
  std::string host, compiler, failure_class, message, log;

  // kUnsupported for another version, kTooLarge, kInvalid for all that is not a note.
  static Result<JobNote> parse(std::string_view text);
  // Texts that are too long are cut at a whole character; of a log its end stays.
  std::string to_text() const;
};

std::string_view job_note_state_name(JobNote::State state);

}  // namespace nc::tier

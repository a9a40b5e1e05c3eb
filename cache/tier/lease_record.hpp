// What a lease object of a tier holds. Anybody who may write the tier may write one, so a record is
// a claim and proves nothing: it only delays builds, never decides whose bytes are believed.
//
//   record  = one JSON object in UTF-8, at most 8192 bytes, of these members in any order; members
//             that are not known are skipped, so that a later version may add some
//   v           1                        anything else is kUnsupported
//   state       "held"                   its holder builds, as long as `beat` goes on changing
//               "released"               given back: the next fence may be taken at once
//               "apart"                  given back, and what was built cannot be shared: who
//                                        waited for it builds for itself, all at the same time
//   holder      32 hex digits, drawn anew for each attempt to hold
//   beat        1 .. 2^53, counts the writes of this object; never a point in time
//   period_ms   1000 .. 3600000: after that long without a change the holder counts as gone
//   host, program, label, progress       for people; at most 256 bytes each
//   pid         0 .. 2^31
//   building_ms 0 .. 2^53: for how long it has been building, by its own clock
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace nc::tier {

struct LeaseRecord {
  enum class State { kHeld, kReleased, kApart };
  static constexpr std::size_t kMaxBytes = 8192;
  static constexpr std::size_t kMaxText = 256;
  static constexpr Millis kMinPeriodMs = 1'000;
  static constexpr Millis kMaxPeriodMs = 3'600'000;

  State state = State::kHeld;
  std::string holder;
  std::uint64_t beat = 1;
  Millis period_ms = 60'000;
  std::string host;
  std::string program;
  std::string label;
  std::string progress;
  std::int64_t pid = 0;
  Millis building_ms = 0;

  // kUnsupported for another version, kTooLarge, kInvalid for all that is not a record.
  static Result<LeaseRecord> parse(std::string_view text);
  // Texts that are too long are cut, at a whole character.
  std::string to_text() const;
};

}  // namespace nc::tier

// How much memory a build is expected to take at its peak, learned from those before it. Pure
// logic, in memory; the rows are kept in the store's table "peaks" (docs/formats.md). Thread-safe.
//
// Builds of one compiler (its version text) whose inputs have sizes between two powers of two are
// alike. Of the last kSamples measured peaks of such a class the estimate is the 90 % quantile
// (nearest rank) with a margin of 15 % + 50 % / (number of samples): few samples say little. From
// four samples on, a single one that is over twice the next is left out; what needs so much is
// killed, and tried again with what it is known to need.
//
// A class without samples goes by the nearest one of this compiler, within three doublings, scaled
// by the first guesses and never down; else by the same class of the same compiler in another
// version; else by the first guess: a table for neuronx-cc, kOtherGuess for others.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/thread_annotations.hpp"

namespace nc::daemon {

// The samples of one class, oldest first.
struct PeakRow {
  static constexpr std::size_t kSamples = 32;
  std::vector<std::uint64_t> peaks;
  Millis used_ms = 0;  // wall clock

  std::string encode() const;
  static std::optional<PeakRow> decode(std::string_view text);
};

struct PeakClass {
  std::string compiler;
  unsigned size = 0;  // inputs have less than 2^size bytes
  auto operator<=>(const PeakClass&) const = default;

  static PeakClass of(std::string_view compiler, std::uint64_t input_bytes);
  std::string record_key() const;  // compiler NUL size
  static std::optional<PeakClass> from_record_key(std::string_view key);
};

class PeakBook {
 public:
  static constexpr std::size_t kMaxRows = 1024;  // the least recently used go
  static constexpr std::uint64_t kOtherGuess = 2ULL << 30;

  struct Estimate {
    std::uint64_t bytes = 0;
    bool learned = false;
  };
  // `guess`: what the user says about builds of which nothing is known; 0: nothing.
  Estimate estimate(const PeakClass& of, std::uint64_t guess) const NC_EXCLUDES(mutex_);

  // Row keys with their new values, nullopt for those to be erased.
  using Changes = std::vector<std::pair<std::string, std::optional<std::string>>>;
  Changes add(const PeakClass& of, std::uint64_t peak_bytes, Millis now_ms) NC_EXCLUDES(mutex_);
  // False for a row that cannot be read.
  bool load(std::string_view key, std::string_view value) NC_EXCLUDES(mutex_);

  struct Learned {
    PeakClass of;
    std::size_t samples = 0;
    std::uint64_t highest = 0;
    std::uint64_t expected = 0;
  };
  std::vector<Learned> learned() const NC_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<PeakClass, PeakRow> rows_ NC_GUARDED_BY(mutex_);
};

// What facts tell about a compiler before its first build here.
std::uint64_t first_guess(std::string_view compiler, unsigned size);
// The estimate of a class from its samples; `peaks` must not be empty.
std::uint64_t expected_peak(std::vector<std::uint64_t> peaks);

}  // namespace nc::daemon

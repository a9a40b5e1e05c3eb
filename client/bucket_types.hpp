// Sizes that were seen of a program's dimensions, and the buckets in force, as the protocol tells
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace nc::client {

struct BucketFamilyPlan {
  std::vector<std::uint64_t> buckets;
  std::uint64_t tile = 0, floor = 0;
  std::uint64_t base = 0, num = 0, den = 0, max = 0;  // the ladder beyond; max 0: none
  bool varies = false;
};
struct BucketFamily {
  std::string name;
  std::uint64_t calls = 0, distinct = 0, smallest = 0, largest = 0;
  std::optional<BucketFamilyPlan> plan;
  std::optional<double> waste;  // of the plan over the calls: padded / unpadded - 1
};
struct BucketJoint {
  std::string first, second;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> buckets;
};
struct BucketProgram {
  std::string program, label, digest;  // digest "" without a plan
  Millis seen_ms = 0;
  std::uint64_t epoch = 0, jobs = 0;
  std::uint64_t compile_ms = 0, call_us = 0;  // of one artifact, of one call; 0: not known
  std::vector<BucketFamily> families;
  std::vector<BucketJoint> joints;
};

}  // namespace nc::client

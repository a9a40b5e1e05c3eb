// A plan: all buckets of a program in one epoch, and the pure map from sizes to buckets. Whoever
// has the same plan text computes the same buckets, on every rank and in every language.
//
//   plan    = "neuroncache-plan 1" LF "program " hex LF "epoch " number LF family* joint*
//   family  = "family tile " number " floor " number " max " (number | "-") " ratio " number "/"
//             number " varies " ("0" | "1") " buckets " (list | "-") " name " name LF
//   list    = number ("," number)*                 ascending
//   joint   = "joint " number " " number " buckets " number "x" number ("," number "x" number)* LF
//   number  = decimal, no leading zeros            hex = 64 lower-case digits
//   name    = 1 to 128 bytes of UTF-8 without control characters
//
// Families are sorted by name, bytewise. A joint names two families by their place (from 0), the
// first one lower than the second; each family is in at most one joint; rectangles are in the order
// of choice (bucketing/planner/joint_plan.hpp). The digest of a plan is the SHA-256 of this text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "bucketing/planner/family_plan.hpp"
#include "bucketing/planner/joint_plan.hpp"

namespace nc::buckets {

struct JointPlan {
  std::uint32_t first = 0, second = 0;  // places in Plan::families
  Rectangles buckets;
  bool operator==(const JointPlan&) const = default;
};

struct Plan {
  static constexpr std::size_t kMaxFamilies = 64;
  static constexpr std::size_t kMaxRectangles = 1024;  // of one joint

  Sha256 program;
  std::uint64_t epoch = 0;
  std::vector<FamilyPlan> families;  // sorted by name
  std::vector<JointPlan> joints;

  bool operator==(const Plan&) const = default;

  const FamilyPlan* find(std::string_view family) const;
  const JointPlan* joint_of(std::size_t family) const;

  // One bucket for each family, in the order of `families`; nullopt where there is none.
  std::vector<std::optional<Size>> buckets(std::span<const Size> sizes) const;
  // The most bucket vectors that the lists can give, without the ladders; stops at 2^62.
  std::uint64_t artifacts() const;

  std::string text() const;
  Sha256 digest() const;
  // kInvalid for anything that text() does not give.
  static Result<Plan> parse(std::string_view text);
};

}  // namespace nc::buckets

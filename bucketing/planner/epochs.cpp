#include "bucketing/planner/epochs.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace nc::buckets {
namespace {

constexpr std::string_view kHead = "neuroncache-plan 1\n";

Error damaged(std::string_view what) {
  return {Code::kInvalid, "this is no plan: " + std::string(what), "make the plan anew"};
}

// Reads a text from its front.
class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}

  bool at_end() const { return left_.empty(); }
  bool skip(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  template <class Int>
  bool number(Int& out, Int least = 0) {
    const char* end = left_.data() + left_.size();
    const auto [stop, error] = std::from_chars(left_.data(), end, out);
    const auto digits = static_cast<std::size_t>(stop - left_.data());
    if (error != std::errc() || digits == 0 || left_[0] == '-') return false;
    if (digits > 1 && left_[0] == '0') return false;
    left_.remove_prefix(digits);
    return out >= least;
  }
  bool size(Size& out) { return number(out, Size{1}) && out <= kMaxSize; }
  bool line(std::string_view& out) {
    const std::size_t end = left_.find('\n');
    if (end == std::string_view::npos) return false;
    out = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return true;
  }
  bool hex(Sha256& out) {
    constexpr std::size_t kDigits = 64;
    const auto value = Sha256::from_hex(left_.substr(0, kDigits));
    if (!value) return false;
    out = *value;
    left_.remove_prefix(kDigits);
    return true;
  }

 private:
  std::string_view left_;
};

bool read_buckets(Reader& in, std::vector<Size>& out) {
  if (in.skip("-")) return true;
  do {
    Size bucket = 0;
    if (!in.size(bucket) || out.size() == kMaxBuckets) return false;
    if (!out.empty() && bucket <= out.back()) return false;
    out.push_back(bucket);
  } while (in.skip(","));
  return true;
}

// After "family ".
bool read_family(Reader& in, FamilyPlan& out) {
  std::string_view name;
  bool ok = in.skip("tile ") && in.size(out.axis.tile) && in.skip(" floor ") &&
            in.size(out.axis.floor) && in.skip(" max ") &&
            (in.skip("-") || in.size(out.axis.max)) && in.skip(" ratio ") && in.size(out.num) &&
            in.skip("/") && in.size(out.den) && out.num > out.den && in.skip(" varies ");
  if (!ok) return false;
  out.varies = in.skip("1");
  ok = (out.varies || in.skip("0")) && in.skip(" buckets ") && read_buckets(in, out.buckets) &&
       in.skip(" name ") && in.line(name) && is_family_name(name);
  if (!ok) return false;
  if (out.axis.max != 0 && !out.buckets.empty() && out.buckets.back() > out.axis.max) return false;
  out.family = name;
  return true;
}

// After "joint ".
bool read_joint(Reader& in, JointPlan& out) {
  if (!in.number(out.first) || !in.skip(" ") || !in.number(out.second) || !in.skip(" buckets ")) {
    return false;
  }
  do {
    Pair sides{};
    if (out.buckets.size() == Plan::kMaxRectangles || !in.size(sides[0]) || !in.skip("x") ||
        !in.size(sides[1])) {
      return false;
    }
    out.buckets.push_back(sides);
  } while (in.skip(","));
  Rectangles sorted = out.buckets;
  sort_rectangles(sorted);
  return in.skip("\n") && sorted == out.buckets;
}

}  // namespace

const FamilyPlan* Plan::find(std::string_view family) const {
  for (const FamilyPlan& one : families) {
    if (one.family == family) return &one;
  }
  return nullptr;
}

const JointPlan* Plan::joint_of(std::size_t family) const {
  for (const JointPlan& joint : joints) {
    if (joint.first == family || joint.second == family) return &joint;
  }
  return nullptr;
}

std::vector<std::optional<Size>> Plan::buckets(std::span<const Size> sizes) const {
  std::vector<std::optional<Size>> out(families.size());
  for (std::size_t i = 0; i < families.size(); ++i) out[i] = families[i].bucket(sizes[i]);
  for (const JointPlan& joint : joints) {
    const auto pair = covering(joint.buckets, {sizes[joint.first], sizes[joint.second]});
    if (!pair) continue;
    out[joint.first] = (*pair)[0];
    out[joint.second] = (*pair)[1];
  }
  return out;
}

std::uint64_t Plan::artifacts() const {
  constexpr std::uint64_t kMost = 1ULL << 62;
  std::uint64_t product = 1;
  const auto times = [&](std::size_t count) {
    const std::uint64_t factor = std::max<std::uint64_t>(count, 1);
    product = product > kMost / factor ? kMost : product * factor;
  };
  for (std::size_t i = 0; i < families.size(); ++i) {
    const JointPlan* joint = joint_of(i);
    if (joint == nullptr) {
      times(families[i].buckets.size());
    } else if (joint->first == i) {
      times(joint->buckets.size());
    }
  }
  return product;
}

std::string Plan::text() const {
  std::string out(kHead);
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "program {}\nepoch {}\n", program.hex(), epoch);
  for (const FamilyPlan& one : families) {
    fmt::format_to(
        to, "family tile {} floor {} max {} ratio {}/{} varies {} buckets {} name {}\n",
        one.axis.tile, one.axis.floor, one.axis.max == 0 ? "-" : std::to_string(one.axis.max),
        one.num, one.den, one.varies ? 1 : 0,
        one.buckets.empty() ? "-" : fmt::format("{}", fmt::join(one.buckets, ",")), one.family);
  }
  for (const JointPlan& joint : joints) {
    fmt::format_to(to, "joint {} {} buckets ", joint.first, joint.second);
    for (std::size_t i = 0; i < joint.buckets.size(); ++i) {
      fmt::format_to(to, "{}{}x{}", i == 0 ? "" : ",", joint.buckets[i][0], joint.buckets[i][1]);
    }
    out.push_back('\n');
  }
  return out;
}

Sha256 Plan::digest() const {
  return Sha256::of(as_bytes(text()));
}

Result<Plan> Plan::parse(std::string_view text) {
  Reader in(text);
  Plan plan;
  if (!in.skip(kHead) || !in.skip("program ") || !in.hex(plan.program) || !in.skip("\nepoch ") ||
      !in.number(plan.epoch) || !in.skip("\n")) {
    return damaged("it does not begin like one");
  }
  while (in.skip("family ")) {
    FamilyPlan family;
    if (plan.families.size() == kMaxFamilies || !read_family(in, family)) {
      return damaged("a family in it is wrong");
    }
    if (!plan.families.empty() && family.family <= plan.families.back().family) {
      return damaged("its families are not in order");
    }
    plan.families.push_back(std::move(family));
  }
  while (in.skip("joint ")) {
    JointPlan joint;
    if (!read_joint(in, joint) || joint.first >= joint.second ||
        joint.second >= plan.families.size() || plan.joint_of(joint.first) != nullptr ||
        plan.joint_of(joint.second) != nullptr) {
      return damaged("a joint in it is wrong");
    }
    plan.joints.push_back(std::move(joint));
  }
  if (!in.at_end()) return damaged("something follows it");
  return plan;
}

}  // namespace nc::buckets

#include "bucketing/planner/cost.hpp"

#include <algorithm>

namespace nc::buckets {
namespace {

constexpr std::uint64_t kMaxTime = 1ULL << 40;
constexpr std::uint64_t kMaxCost = (1ULL << 63) - 1;

}  // namespace

Result<CostModel> CostModel::measured(std::vector<std::pair<Size, std::uint64_t>> points) {
  const auto wrong = [](std::string problem) {
    return Error{Code::kInvalid, "the table of costs " + std::move(problem),
                 "send pairs of a size and the time of a call at it"};
  };
  if (points.empty()) return wrong("is empty");
  if (points.size() > kMaxPoints) return wrong("has more than 1024 sizes");
  std::sort(points.begin(), points.end());
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto& [size, time] = points[i];
    if (size == 0 || size > kMaxSize) return wrong("has a size out of range");
    if (i > 0 && points[i - 1].first == size) return wrong("has a size twice");
    if (time >= kMaxTime) return wrong("has a time that is too large");
    most = std::max(most, time);
    time = most;
  }
  return CostModel(Kind::kMeasured, 0, std::move(points));
}

std::uint64_t CostModel::at(Size n) const {
  const std::uint64_t size = n;
  switch (kind_) {
    case Kind::kLinear:
      return size;
    case Kind::kQuadratic:
      return size * size;
    case Kind::kMixed:
      return size * at_ + size * size;
    case Kind::kMeasured:
      break;
  }
  const auto above =
      std::lower_bound(points_.begin(), points_.end(), n,
                       [](const auto& point, Size wanted) { return point.first < wanted; });
  if (above == points_.end()) {
    const auto& [last, time] = points_.back();
    return static_cast<std::uint64_t>(
        std::min<Wide>(static_cast<Wide>(time) * size / last, kMaxCost));
  }
  if (above == points_.begin() || above->first == n) return above->second;
  const auto& [low, low_time] = *(above - 1);
  const auto& [high, high_time] = *above;
  return low_time + static_cast<std::uint64_t>(static_cast<Wide>(high_time - low_time) *
                                               (size - low) / (high - low));
}

}  // namespace nc::buckets

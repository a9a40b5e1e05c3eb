#include "cache/tier/exclusive.hpp"

#include <fmt/format.h>

namespace nc::tier {

Result<bool> Exclusive::create(const std::string& shown, const Once& once) {
  NC_ASSIGN(const bool made, once());
  if (!made) {
    state_ = State::kProven;
    return false;
  }
  if (state_ == State::kProven) return true;
  // Twice, because somebody may have removed the object in between.
  for (int i = 0; i < 2; ++i) {
    NC_ASSIGN(const bool again, once());
    if (!again) {
      state_ = State::kProven;
      return true;
    }
  }
  state_ = State::kBroken;
  return Error{Code::kUnsupported,
               fmt::format("{}: the service ignores If-None-Match, so that no lease can be kept "
                           "there",
                           shown),
               "use a service that has conditional writes"};
}

}  // namespace nc::tier

#include "base/credentials.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <vector>

namespace nc {
namespace {

constexpr std::string_view kMark = "://";

// Options of addresses whose values are never secrets; of all others the name alone is shown.
constexpr std::string_view kPlainOptions[] = {
    "anonymous", "compression", "conditional", "insecure", "layout",  "max_bytes", "priority",
    "profile",   "read_only",   "region",      "style",    "timeout", "write_only"};

struct Secret {
  std::size_t from, to;
};

// Where user and password end, at an '@', or npos. A password may hold any character, when it was
// written down as it is, so all that could belong to it counts.
std::size_t end_of_credentials(std::string_view address, std::size_t start) {
  const auto at = address.rfind('@');
  if (at == std::string_view::npos || start == 0 || at < start) return at;
  const auto scheme = address.substr(0, start - kMark.size());
  const auto place = address.substr(start, address.find_first_of("/?#", start) - start);
  // These have none, and paths of all kinds, unless somebody wrote one down all the same.
  const bool bare = scheme == "file" || scheme == "s3";
  return bare && place.find_first_of(":@") == std::string_view::npos ? std::string_view::npos : at;
}

std::vector<Secret> secrets_of(std::string_view address) {
  std::vector<Secret> secrets;
  const auto mark = address.find(kMark);
  const auto start = mark == std::string_view::npos ? 0 : mark + kMark.size();
  const auto end = end_of_credentials(address, start);
  std::size_t rest = start;
  if (end != std::string_view::npos) {
    secrets.push_back({end < start ? 0 : start, end});
    rest = end;
  }
  const auto fragment = std::min(address.find('#', rest), address.size());
  for (auto at = std::min(address.find('?', rest), fragment); at < fragment;) {
    const auto stop = std::min(address.find('&', ++at), fragment);
    const auto option = address.substr(at, stop - at);
    const auto name = option.substr(0, option.find('='));
    const bool plain = std::ranges::find(kPlainOptions, name) != std::end(kPlainOptions);
    const auto skip = name.size() == option.size() ? 0 : name.size() + 1;
    if (!plain && skip < option.size()) secrets.push_back({at + skip, stop});
    at = stop;
  }
  if (fragment + 1 < address.size()) secrets.push_back({fragment + 1, address.size()});
  return secrets;
}

}  // namespace

std::string shown_address(std::string_view address) {
  std::string shown;
  std::size_t from = 0;
  for (const auto& secret : secrets_of(address)) {
    shown += address.substr(from, secret.from - from);
    shown += "***";
    from = secret.to;
  }
  return shown += address.substr(from);
}

void hide_credentials(std::span<char* const> arguments) {
  for (char* const argument : arguments) {
    const std::string_view text = argument;
    for (std::size_t from = 0; from < text.size();) {
      const auto end = std::min(text.find(' ', from), text.size());
      const auto word = text.substr(from, end - from);
      if (word.find(kMark) != std::string_view::npos) {
        for (const auto& secret : secrets_of(word)) {
          std::fill(argument + from + secret.from, argument + from + secret.to, '*');
        }
      }
      from = end + 1;
    }
  }
}

void hide_memory() {
  ::prctl(PR_SET_DUMPABLE, 0);
}

}  // namespace nc

#include "daemon/paging.hpp"

#include <algorithm>

#include "base/number.hpp"

namespace nc::daemon {

Result<std::uint64_t> query_number(const HttpRequest& request, const std::string& name,
                                   std::uint64_t otherwise) {
  const std::string_view text = request.query(name);
  if (text.empty()) return otherwise;
  if (const auto value = whole_number<std::uint64_t>(text)) return *value;
  return Error{Code::kInvalid, name + " is not a number", "send a whole number"};
}

Result<std::size_t> page_limit(const HttpRequest& request, std::size_t most) {
  NC_ASSIGN(const std::uint64_t limit, query_number(request, "limit", most));
  return std::clamp<std::size_t>(limit, 1, most);
}

Result<std::optional<ActionKey>> page_after(const HttpRequest& request) {
  const std::string_view text = request.query("after");
  if (text.empty()) return std::optional<ActionKey>();
  if (const auto key = ActionKey::from_hex(text)) return std::optional(*key);
  return Error{Code::kInvalid, "after is not a key", "send `next` as it came"};
}

}  // namespace nc::daemon

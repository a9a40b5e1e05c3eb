#include "base/trust/field_file.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace nc::trust {

Status read_fields(
    const FieldFile& file, std::string_view text,
    const std::function<std::string(std::string_view name, std::string_view value)>& line,
    const std::function<std::string()>& end) {
  if (text.size() > file.max_bytes) {
    return Error{Code::kTooLarge, fmt::format("{}: a file of {} bytes", file.what, text.size()),
                 ""};
  }
  std::size_t number = 0;
  const auto bad = [&](std::string_view problem) {
    return Error{Code::kInvalid, fmt::format("{}, line {}: {}", file.what, number, problem),
                 fmt::format("use `{}` to change it", file.change_with)};
  };
  if (!text.empty() && text.back() != '\n') {
    number = 1 + static_cast<std::size_t>(std::ranges::count(text, '\n'));
    return bad("it is cut off");
  }
  const auto next = [&] {
    const auto stop = text.find('\n');
    const std::string_view taken = text.substr(0, stop);
    text.remove_prefix(stop + 1);
    ++number;
    return taken;
  };
  if (text.empty() || next() != file.magic) {
    number = 1;
    return bad(fmt::format("'{}' is expected", file.magic));
  }
  while (!text.empty()) {
    const std::string_view one = next();
    if (one.empty()) continue;
    const auto space = one.find(' ');
    const auto value = space == std::string_view::npos ? std::string_view() : one.substr(space + 1);
    const std::string problem = line(one.substr(0, space), value);
    if (!problem.empty()) return bad(problem);
  }
  const std::string problem = end();
  return problem.empty() ? Status() : Status(bad(problem));
}

}  // namespace nc::trust

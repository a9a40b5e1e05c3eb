// The padding engine reads graphs from outside: hostile ones end in an error, a refusal or a plan.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <boost/json.hpp>

#include "bucketing/padding/engine.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace json = boost::json;
  json::parse_options options;
  options.max_depth = 64;
  boost::system::error_code ec;
  const json::value request =
      json::parse(std::string_view(reinterpret_cast<const char*>(data), size), ec, {}, options);
  if (ec) return -1;
  auto answer = nc::padding::plan(request);
  // What it catches of its own faults must not happen at all.
  if (answer.is(nc::Code::kInternal) && answer.error().message.find("failed:") != std::string::npos)
    __builtin_trap();
  return 0;
}

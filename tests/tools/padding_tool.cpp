// The padding engine as a filter, for tests: one request of docs/padding.md per line in, one answer
// per line out. An error is the body of an HTTP error, as the daemon would send it.
#include <iostream>
#include <string>

#include <boost/json.hpp>

#include "bucketing/padding/engine.hpp"

int main() {
  namespace json = boost::json;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    boost::system::error_code ec;
    json::parse_options options;
    options.max_depth = 128;
    const json::value request = json::parse(line, ec, {}, options);
    nc::Result<json::value> answer =
        ec ? nc::Error{nc::Code::kInvalid, "the line is no JSON", "send one request per line"}
           : nc::padding::plan(request);
    if (answer) {
      std::cout << json::serialize(*answer) << std::endl;
    } else {
      const nc::Error& e = answer.error();
      std::cout << json::serialize(json::value{{"error",
                                                {{"code", nc::code_name(e.code)},
                                                 {"message", e.message},
                                                 {"action", e.action}}}})
                << std::endl;
    }
  }
  return 0;
}

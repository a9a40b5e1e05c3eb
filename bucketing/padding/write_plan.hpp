// A pass as the `sub` of docs/padding.md.
#pragma once

#include <set>
#include <string>

#include <boost/json/value.hpp>

#include "bucketing/padding/analyse.hpp"

namespace nc::padding {

struct Written {
  boost::json::value json;
  int masks = 0;
};

// `kept`: outputs that stay padded because the backward graph takes them. Nodes that nothing needs
// are left out.
Written write_plan(Pass& pass, const Analysed& analysed, const std::set<int64_t>& kept,
                   bool claims);

}  // namespace nc::padding

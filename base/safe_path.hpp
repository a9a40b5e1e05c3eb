// Whether a place on disk can be taken over by somebody else. Whoever may write to a directory can
// put another one in its place, so the whole way down from the root counts, links included.
#pragma once

#include <string>

#include "base/result.hpp"

namespace nc {

// `path` is absolute. Looks at what of it is there, as written and as the links in it lead. kDenied
// with what to do:
//   - a directory on the way, or a link, belongs to somebody who is neither root nor we;
//   - one on the way can be written by everybody and is not sticky (as /tmp is).
// A group may write: it was given the right. What is inside a user namespace, made by a user that
// does not exist there, counts as root's, but for the directory itself.
Status check_safe_dir(const std::string& path);

}  // namespace nc

// libcurl, loaded when the first tier needs it: Debian ships no archive of it that links, and a
// program without such tiers has to start where it is absent. Include it from .cpp files only.
#pragma once

#define CURL_DISABLE_TYPECHECK
#define CURL_DISABLE_DEPRECATION
#include <curl/curl.h>

#include "base/result.hpp"

namespace nc::tier {

struct CurlLibrary {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_reset) easy_reset = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
};

// Loads it once per process; kUnsupported names the package to install.
Result<const CurlLibrary*> curl_library();

// The same for a list of library names; for tests.
Result<CurlLibrary> load_curl(const char* const* names);

}  // namespace nc::tier

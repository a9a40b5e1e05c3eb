#include "cache/tier/curl_library.hpp"

#include <dlfcn.h>

#include <string>

namespace nc::tier {
namespace {

// The flavours share one interface.
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4", nullptr};

template <class Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

}  // namespace

Result<CurlLibrary> load_curl(const char* const* names) {
  std::string why;
  for (; *names != nullptr; ++names) {
    void* library = ::dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* problem = ::dlerror();
      if (why.empty()) why = problem == nullptr ? *names : problem;
      continue;
    }
    CurlLibrary curl;
    const bool whole = find(library, "curl_global_init", curl.global_init) &&
                       find(library, "curl_easy_init", curl.easy_init) &&
                       find(library, "curl_easy_reset", curl.easy_reset) &&
                       find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                       find(library, "curl_easy_setopt", curl.easy_setopt) &&
                       find(library, "curl_easy_perform", curl.easy_perform) &&
                       find(library, "curl_easy_strerror", curl.easy_strerror) &&
                       find(library, "curl_slist_append", curl.slist_append) &&
                       find(library, "curl_slist_free_all", curl.slist_free_all);
    if (whole && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return curl;  // stays loaded
    why = std::string(*names) + " is there and is not usable";
    ::dlclose(library);
  }
  return Error{Code::kUnsupported, "tiers over HTTP need libcurl: " + why,
               "install it (Debian: libcurl4, Fedora: libcurl)"};
}

Result<const CurlLibrary*> curl_library() {
  static const Result<CurlLibrary> loaded = load_curl(kNames);
  if (!loaded.ok()) return loaded.error();
  return &loaded.value();
}

}  // namespace nc::tier

#include <nss.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "client/cc/wrapper.hpp"

int main(int argc, char** argv) {
  // The program is linked statically, and a module of the C library would come with another one.
  if (std::getenv("HOME") == nullptr) ::__nss_configure_lookup("passwd", "files");
  return nc::cc::run_wrapper(std::vector<std::string>(argv, argv + argc));
}

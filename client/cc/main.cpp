#include <string>
#include <vector>

#include "client/cc/wrapper.hpp"

int main(int argc, char** argv) {
  return nc::cc::run_wrapper(std::vector<std::string>(argv, argv + argc));
}

// What the benchmarks share: times, percentiles, a directory that goes away, and budgets as ratios
// within one run.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace nc::bench {

class Stopwatch {
 public:
  double us() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

class Samples {
 public:
  void add(double us) { values_.push_back(us); }
  void add(const Samples& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  std::size_t size() const { return values_.size(); }
  double percentile(double p) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    const auto at = static_cast<std::size_t>(p / 100 * static_cast<double>(sorted.size() - 1));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(at),
                     sorted.end());
    return sorted[at];
  }
  double median() const { return percentile(50); }

 private:
  std::vector<double> values_;
};

// In $NC_BENCH_DIR, else the working directory: the disk that counts, not a tmpfs.
class TempDir {
 public:
  TempDir() {
    const char* base = std::getenv("NC_BENCH_DIR");
    std::string name =
        (base != nullptr ? std::filesystem::path(base) : std::filesystem::current_path()) /
        "bench-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      std::perror(name.c_str());
      std::exit(2);
    }
    path_ = std::filesystem::canonical(name);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

template <class T>
T must(Result<T> result, std::string_view what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(what.size()), what.data(),
                 result.error().text().c_str());
    std::exit(2);
  }
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// Resident memory of a process in MiB; 0: this one.
inline double resident_mib(pid_t pid = 0) {
  std::ifstream status("/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) +
                       "/status");
  std::string word;
  while (status >> word) {
    double kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib / 1024;
  }
  return 0;
}

// User and system time that a process has used, in microseconds. Says what work costs on a machine
// that does other things, too.
inline double cpu_us(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) * 1e6 / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Counts budgets that do not hold; its result is the exit status.
class Budgets {
 public:
  void at_most(const char* what, double value, double budget, const char* unit = "x") {
    const bool holds = value <= budget;
    if (!holds) ++broken_;
    std::printf("%-58s %10.2f %-4s budget %g: %s\n", what, value, unit, budget,
                holds ? "ok" : "OVER");
  }
  int exit_status() const { return broken_ == 0 ? 0 : 1; }

 private:
  int broken_ = 0;
};

}  // namespace nc::bench

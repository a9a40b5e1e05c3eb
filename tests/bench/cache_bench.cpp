// What the store costs at 100, 10,000 and 100,000 entries: put, get and evict must cost the same
// whatever is in it. Beside it, in the same run and on the same disk, what a bare RocksDB asks for
// a synced write and a read of as many bytes.
//
//   cache_bench [rounds, default 200]
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <optional>

#include "cache/bench_floor.hpp"
#include "tests/bench/bench_util.hpp"
#include "tests/bench/store_entries.hpp"
#include "tests/bench/unsynced_filesystem.hpp"

namespace nc::bench {
namespace {

constexpr std::array<std::uint64_t, 3> kSizes{100, 10'000, 100'000};
constexpr std::size_t kSmall = 4 << 10;   // lies in the index
constexpr std::size_t kLarge = 96 << 10;  // a file of its own
constexpr std::uint64_t kUnlimited = 1ULL << 50;

StoreOptions options_for(const std::string& dir, std::uint64_t max_entries) {
  StoreOptions options;
  options.dir = dir;
  options.max_bytes = kUnlimited;
  options.min_free = 0;
  options.max_entries = max_entries;
  return options;
}

std::unique_ptr<Store> open_store(FileSystem& fs, const std::string& dir,
                                  std::uint64_t max_entries) {
  return must(Store::open(options_for(dir, max_entries), {fs, system_clock(), system_random()}),
              "opening the store");
}

void fill(const std::string& dir, std::uint64_t entries) {
  UnsyncedFileSystem fs;
  const auto store = open_store(fs, dir, kUnlimited);
  for (std::uint64_t i = 0; i < entries; ++i) put(*store, prepare(i, kSmall));
  must(store->flush(), "flush");
}

// One size of store and what was measured on it.
struct Subject {
  std::uint64_t entries = 0;
  std::string dir;
  std::unique_ptr<Store> store;
  Samples put_small, put_large, get, evict;
  std::uint64_t next = 1'000'000;  // entries that are not there yet
};

ActionKey some_key(int round, std::uint64_t n, std::uint64_t entries) {
  return key_number((static_cast<std::uint64_t>(round) * 7919 + n * 104729) % entries);
}

double timed(const auto& action) {
  const Stopwatch watch;
  action();
  return watch.us();
}

double timed_put(Subject& s, std::size_t size) {
  const Prepared entry = prepare(s.next++, size);
  return timed([&] { put(*s.store, entry); });
}

void measure_round(Subject& s, int round) {
  s.put_small.add(timed_put(s, kSmall));
  if (round % 4 == 0) s.put_large.add(timed_put(s, kLarge));
  for (std::uint64_t n = 0; n < 20; ++n) {
    const ActionKey key = some_key(round, n, s.entries);
    s.get.add(timed([&] {
      if (!must(s.store->lookup(key), "look-up")) std::exit(2);
    }));
  }
}

// Full by count: every put makes another entry go.
void measure_evictions(std::array<Subject, 3>& subjects, int rounds) {
  for (Subject& s : subjects) s.store->set_limits(options_for(s.dir, s.store->size().entries));
  for (int i = 0; i < rounds; ++i) {
    for (Subject& s : subjects) s.evict.add(timed_put(s, kSmall));
  }
  for (Subject& s : subjects) {
    if (s.store->counters("").at("evictions") >= rounds) continue;
    std::fprintf(stderr, "nothing was evicted\n");
    std::exit(2);
  }
}

// A bare RocksDB with as many records of the same size as the store has entries.
struct Floor {
  std::uint64_t entries = 0;
  std::optional<BenchFloor> db;
  Samples put, get;
};

void fill(Floor& floor, const std::string& dir, std::uint64_t entries) {
  floor.entries = entries;
  floor.db = must(BenchFloor::open(dir), "bare RocksDB");
  for (std::uint64_t i = 0; i < entries; ++i) {
    must(floor.db->put(key_number(i).view(), noise(kSmall, i), false), "put");
  }
}

void measure_round(Floor& floor, int round) {
  const std::string key = "new " + std::to_string(round);
  const std::string value = noise(kSmall, static_cast<std::uint64_t>(round));
  floor.put.add(timed([&] { must(floor.db->put(key, value, true), "put"); }));
  for (std::uint64_t n = 0; n < 20; ++n) {
    const ActionKey wanted = some_key(round, n, floor.entries);
    floor.get.add(timed([&] {
      if (!must(floor.db->get(wanted.view()), "get")) std::exit(2);
    }));
  }
}

// Opening in a process of its own: memory that filling or measuring used does not count.
void report_memory(const char* self, const std::string& dir) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(self, self, "--memory", dir.c_str(), nullptr);
    std::_Exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

int memory_main(const std::string& dir) {
  const double before = resident_mib();
  const Stopwatch watch;
  const auto store = open_store(real_filesystem(), dir, kUnlimited);
  const double open_ms = watch.us() / 1000;
  const double opened = resident_mib();
  for (std::uint64_t i = 0; i < 10'000; ++i)
    must(store->lookup(key_number(i % 100'000)), "look-up");
  store->maintain();
  std::printf(
      "memory, %llu entries: %.1f MiB before, %.1f MiB when open, %.1f MiB after 10,000 hits; "
      "opens in %.0f ms\n",
      static_cast<unsigned long long>(store->size().entries), before, opened, resident_mib(),
      open_ms);
  return 0;
}

template <class Row, std::size_t N>
void print_row(const char* name, const std::array<Row, N>& rows, Samples Row::*what) {
  std::printf("%-34s", name);
  for (const std::uint64_t size : kSizes) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.entries == size; });
    if (row == rows.end()) {
      std::printf("  %20s", "");
    } else {
      std::printf("  %9.1f /%9.1f", ((*row).*what).median(), ((*row).*what).percentile(90));
    }
  }
  std::printf("\n");
}

template <class Row, std::size_t N>
double growth(const std::array<Row, N>& rows, Samples Row::*what) {
  return (rows.back().*what).median() / (rows.front().*what).median();
}

int run(const char* self, int rounds) {
  const TempDir dir;
  std::array<Subject, 3> subjects;
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    Subject& s = subjects[i];
    s.entries = kSizes[i];
    s.dir = dir.path("store-" + std::to_string(s.entries));
    const double seconds = timed([&] { fill(s.dir, s.entries); }) / 1e6;
    std::printf("filled %llu entries in %.1f s (without syncs)\n",
                static_cast<unsigned long long>(s.entries), seconds);
  }
  report_memory(self, subjects[2].dir);
  for (Subject& s : subjects) s.store = open_store(real_filesystem(), s.dir, kUnlimited);
  std::array<Floor, 2> floors;
  fill(floors[0], dir.path("floor-few"), kSizes.front());
  fill(floors[1], dir.path("floor-many"), kSizes.back());
  // All take turns, so that a disturbance meets all of them.
  for (int round = 0; round < rounds; ++round) {
    for (Subject& s : subjects) measure_round(s, round);
    for (Floor& floor : floors) measure_round(floor, round);
  }
  measure_evictions(subjects, rounds);
  std::printf("\n%-34s  %20s  %20s  %20s\n", "microseconds, median / 90 %", "100", "10,000",
              "100,000");
  print_row("put, 4 KiB (upload and publish)", subjects, &Subject::put_small);
  print_row("put, 96 KiB (a file)", subjects, &Subject::put_large);
  print_row("get (look-up with bytes)", subjects, &Subject::get);
  print_row("put that evicts", subjects, &Subject::evict);
  print_row("bare RocksDB, synced put of 4 KiB", floors, &Floor::put);
  print_row("bare RocksDB, get", floors, &Floor::get);
  std::printf("\n%-58s %10.2f x\n", "put against a bare synced put, 100,000 entries",
              subjects[2].put_small.median() / floors[1].put.median());
  std::printf("%-58s %10.2f x\n", "get against a bare get, 100,000 entries",
              subjects[2].get.median() / floors[1].get.median());
  std::printf("%-58s %10.2f x\n", "bare get, 100,000 entries against 100",
              growth(floors, &Floor::get));
  Budgets budgets;
  budgets.at_most("put, 100,000 entries against 100", growth(subjects, &Subject::put_small), 1.5);
  budgets.at_most("put of a file, 100,000 against 100", growth(subjects, &Subject::put_large), 1.5);
  budgets.at_most("put that evicts, 100,000 against 100", growth(subjects, &Subject::evict), 1.5);
  budgets.at_most("get, 100,000 entries against 100", growth(subjects, &Subject::get), 1.5);
  return budgets.exit_status();
}

}  // namespace
}  // namespace nc::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--memory") == 0) return nc::bench::memory_main(argv[2]);
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  if (rounds < 4) {
    std::fprintf(stderr, "usage: %s [rounds >= 4]\n", argv[0]);
    return 2;
  }
  return nc::bench::run("/proc/self/exe", rounds);
}

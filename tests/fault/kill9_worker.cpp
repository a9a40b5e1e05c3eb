// Changes a store at random and kills itself at the n-th pass of a named point. Everything it was
// told goes to standard output first: "maybe NAME" before a call that may change NAME, "there NAME"
// or "removed NAME" after it said so.
//
//   kill9_worker DIR SEED POINT NTH
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.hpp"
#include "base/test_point.hpp"
#include "tests/fault/store_script.hpp"

namespace nc {
namespace {

const char* g_point = "";
int g_left = 0;

void on_point(const char* name) {
  if (std::strcmp(name, g_point) == 0 && --g_left == 0) ::kill(::getpid(), SIGKILL);
}

void tell(const std::string& what, const std::string& name) {
  const auto line = what + " " + name + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::abort();
  }
}

class Worker {
 public:
  Worker(std::string dir, std::uint64_t seed) : state_(seed * 2 + 1) {
    options_.dir = std::move(dir);
    options_.max_bytes = 64 << 20;
    options_.orphan_grace_ms = 0;
  }

  bool open() {
    store_.reset();
    auto opened = Store::open(options_, {real_filesystem(), system_clock(), system_random()});
    if (!opened.ok()) {
      std::fprintf(stderr, "%s\n", opened.error().text().c_str());
      return false;
    }
    store_ = *std::move(opened);
    return true;
  }

  bool step() {
    switch (below(12)) {
      case 0:
        ignore_error(upload(*store_, noise(70'000, below(1000))), "only to leave an orphan");
        break;
      case 1:
        prune();
        break;
      case 2:
        evict();
        break;
      case 3:
        damage();
        break;
      case 4:
        store_->maintain();
        return store_->flush().ok();
      case 5:
        return open();
      case 6:
      case 7:
        store_->count("default", "hits", 1);
        ignore_error(store_->lookup(script_entry(name()).manifest.key), "there or not");
        break;
      default:
        return put(name());
    }
    return true;
  }

 private:
  std::uint64_t below(std::uint64_t end) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % end;
  }
  std::string name() { return (below(4) == 0 ? "temp" : "entry") + std::to_string(below(25)); }

  bool put(const std::string& name) {
    const auto entry = script_entry(name);
    // Known already: what was said of it stays true.
    if (const auto known = store_->peek(entry.manifest.key); known.ok() && known->has_value()) {
      return true;
    }
    tell("maybe", name);
    const auto done = nc::put(*store_, entry);
    if (done.ok()) tell("there", name);
    return done.ok();
  }

  void prune() {
    PruneRequest request;
    request.filter.name_space = "temp";
    for (int i = 0; i < 25; ++i) tell("maybe", "temp" + std::to_string(i));
    if (!store_->prune(request).ok()) return;
    for (int i = 0; i < 25; ++i) tell("removed", "temp" + std::to_string(i));
  }

  void evict() {
    for (int i = 0; i < 25; ++i) {
      tell("maybe", "entry" + std::to_string(i));
      tell("maybe", "temp" + std::to_string(i));
    }
    auto tight = options_;
    tight.max_entries = 1 + below(6);
    store_->set_limits(tight);
    store_->maintain();
    ignore_error(store_->flush(), "the next step shows");
    store_->set_limits(options_);
  }

  // Of an entry of its own, so that nothing that was acknowledged is concerned.
  void damage() {
    const auto bytes = noise(90'000, 1'000'000 + below(100));
    const auto entry = make_entry("damaged", {bytes});
    ignore_error(nc::put(*store_, entry), "then there is nothing to damage");
    auto ref = store_->blob_ref(Sha256::of(as_bytes(bytes)));
    if (!ref.ok() || ref->path.empty()) return;
    auto broken = bytes;
    broken[1000] = static_cast<char>(broken[1000] ^ 1);
    ignore_error(real_filesystem().write_atomically(ref->path, as_bytes(broken)), "as above");
    ignore_error(store_->lookup(entry.manifest.key), "a miss");
  }

  StoreOptions options_;
  std::unique_ptr<Store> store_;
  std::uint64_t state_;
};

}  // namespace
}  // namespace nc

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  nc::log::set_level(nc::log::Level::kOff);
  nc::g_point = argv[3];
  nc::g_left = std::atoi(argv[4]);
  nc::g_test_point_hook = nc::on_point;
  nc::Worker worker(argv[1], std::strtoull(argv[2], nullptr, 10));
  if (!worker.open()) return 3;
  for (int i = 0; i < 60; ++i) {
    if (!worker.step()) return 4;
  }
  return 0;
}

// A store on a disk of its choice, and short ways to put entries in and get them out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.hpp"
#include "base/fake_filesystem.hpp"
#include "base/random.hpp"
#include "cache/store.hpp"

namespace nc {

// Bytes that do not compress, the same for a seed on every machine.
inline std::string noise(std::size_t size, std::uint64_t seed) {
  std::string out(size, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (auto& c : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state >> 24);
  }
  return out;
}

struct TestEntry {
  Manifest manifest;
  std::vector<std::string> contents;  // of its outputs
};

inline TestEntry make_entry(const std::string& name, const std::vector<std::string>& contents,
                            std::uint64_t build_ms = 1000) {
  TestEntry out;
  auto& m = out.manifest;
  m.parts = {{"compiler", "test 1"}, {"input", name}};
  m.key = action_key(m.parts).value();
  m.kind = "graph";
  m.label = "label of " + name;
  m.model = "tiny";
  m.compiler = "test 1.0";
  m.created_ms = 1'700'000'000'000;
  m.build_ms = build_ms;
  m.producer = {"host", 1, "test", "0"};
  for (std::size_t i = 0; i < contents.size(); ++i) {
    m.outputs.push_back(
        {"out" + std::to_string(i), Sha256::of(as_bytes(contents[i])), contents[i].size(), 0644});
  }
  out.contents = contents;
  return out;
}

inline Status upload(Store& store, const std::string& bytes, bool may_compress = true) {
  NC_ASSIGN(const auto upload,
            store.begin_upload(Sha256::of(as_bytes(bytes)), bytes.size(), may_compress));
  NC_TRY(upload->write(as_bytes(bytes)));
  return upload->finish();
}

inline Result<bool> put(Store& store, const TestEntry& entry, bool may_compress = true) {
  for (const auto& bytes : entry.contents) NC_TRY(upload(store, bytes, may_compress));
  return store.publish(entry.manifest);
}

// The bytes of an output however they are handed out.
inline Result<std::string> fetch(FileSystem& fs, Store& store, const BlobRef& ref) {
  if (ref.inline_bytes) return *ref.inline_bytes;
  if (!ref.path.empty()) return fs.read_all(ref.path, 1 << 30);
  return store.read_blob(ref.output.digest, 1 << 30);
}

// "hit" when the entry is there and its bytes are right, "miss", or what is wrong.
inline std::string get(FileSystem& fs, Store& store, const TestEntry& entry) {
  auto hit = store.lookup(entry.manifest.key);
  if (!hit.ok()) return hit.error().message;
  if (!*hit) return "miss";
  if ((*hit)->blobs.size() != entry.contents.size()) return "wrong number of blobs";
  for (std::size_t i = 0; i < entry.contents.size(); ++i) {
    auto bytes = fetch(fs, store, (*hit)->blobs[i]);
    if (!bytes.ok()) return bytes.error().message;
    if (*bytes != entry.contents[i]) return "wrong bytes";
  }
  return "hit";
}

// All pages of verify() as one.
inline Result<VerifyPage> verify_all(Store& store, bool repair = false) {
  VerifyPage all;
  std::string after;
  while (true) {
    NC_ASSIGN(auto page, store.verify(after, 1000, repair));
    all.checked += page.checked;
    all.bytes += page.bytes;
    all.orphans += page.orphans;
    for (auto& bad : page.bad) all.bad.push_back(bad);
    if (!page.next) return all;
    after = *page.next;
  }
}

// On a disk in memory; reopened at will.
class StoreBox {
 public:
  StoreBox() : fs(&clock) { options.dir = "/data/store"; }

  Status open() {
    store.reset();
    auto opened = Store::open(options, {fs, clock, random});
    if (!opened.ok()) return std::move(opened).error();
    store = *std::move(opened);
    return {};
  }
  std::string get(const TestEntry& entry) { return nc::get(fs, *store, entry); }
  bool put(const TestEntry& entry, bool may_compress = true) {
    auto done = nc::put(*store, entry, may_compress);
    EXPECT_TRUE(done.ok()) << done.error().text();
    return done.ok() && *done;
  }
  std::string blob_path(const std::string& bytes, bool compressed = false) const {
    const auto hex = Sha256::of(as_bytes(bytes)).hex();
    return options.dir + "/cas/" + hex.substr(0, 2) + "/" + hex.substr(2, 2) + "/" + hex +
           (compressed ? ".zst" : "");
  }
  // Lets everything happen that waits for time.
  void settle(int calls = 3) {
    for (int i = 0; i < calls; ++i) {
      clock.advance(3000);
      store->maintain();
    }
  }

  FakeClock clock;
  FakeRandom random;
  FakeFileSystem fs;
  StoreOptions options;
  std::unique_ptr<Store> store;
};

}  // namespace nc

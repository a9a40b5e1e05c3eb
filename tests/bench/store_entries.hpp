// Entries as a front end makes them, for the benchmarks: 24 key parts, one output.
#pragma once

#include <string>

#include "base/hash.hpp"
#include "cache/store.hpp"
#include "tests/bench/bench_util.hpp"

namespace nc::bench {

inline std::string noise(std::size_t size, std::uint64_t seed) {  // does not compress
  std::string out;
  out.reserve(size + 8);
  for (std::uint64_t state = seed * 2654435761U + 1; out.size() < size;) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    put_u64(out, state * 0x9e3779b97f4a7c15ULL);
  }
  out.resize(size);
  return out;
}

inline KeyParts parts_of(std::uint64_t i) {
  KeyParts parts{{"graph", "sha256:" + Sha256::of(as_bytes("graph " + std::to_string(i))).hex()}};
  for (int p = 0; p < 23; ++p) {
    parts.emplace_back("setting_" + std::to_string(p),
                       "some value that is much the same everywhere");
  }
  return parts;
}

inline Manifest manifest_of(std::uint64_t i, const std::string& bytes) {
  Manifest m;
  m.parts = parts_of(i);
  m.key = must(action_key(m.parts), "key");
  m.kind = "graph";
  m.label = "layer " + std::to_string(i % 200);
  m.model = "model " + std::to_string(i % 20);
  m.compiler = "inductor 2.13.0";
  m.created_ms = 1'700'000'000'000;
  m.build_ms = 500 + (i * 7919) % 60'000;
  m.producer = {"host-a", 4711, "train.py", "0.1.0"};
  m.outputs = {{"kernel.so", Sha256::of(as_bytes(bytes)), bytes.size(), 0755}};
  return m;
}

struct Prepared {
  Manifest manifest;
  std::string bytes;
};
inline Prepared prepare(std::uint64_t i, std::size_t size) {
  Prepared p;
  p.bytes = noise(size, i + 1);
  p.manifest = manifest_of(i, p.bytes);
  return p;
}

// What is done to store one entry.
inline void put(Store& store, const Prepared& p) {
  auto upload =
      must(store.begin_upload(p.manifest.outputs[0].digest, p.bytes.size(), true), "upload");
  must(upload->write(as_bytes(p.bytes)), "upload");
  must(upload->finish(), "upload");
  if (must(store.publish(p.manifest), "publish")) return;
  std::fprintf(stderr, "entry %s is there already\n", p.manifest.key.hex().c_str());
  std::exit(2);
}

inline ActionKey key_number(std::uint64_t i) {
  return must(action_key(parts_of(i)), "key");
}

}  // namespace nc::bench

// The signature of a manifest: what is signed, and how it is written in Manifest::signature.
//
// Signed are these bytes (u32, u64 little endian; text is u64 length, then the bytes):
//
//   "neuroncache-manifest-signature-v1" NUL
//   key id:text signed_ms:u64
//   action key:32 bytes kind:text namespace:text label:text model:text compiler:text
//   created_ms:u64 build_ms:u64 peak_rss_bytes:u64
//   host:text pid:u64 program:text version:text
//   count:u32 (name:text value:text)*                         parts, in the manifest's order
//   count:u32 (name:text digest:32 bytes size:u64 mode:u32)*  outputs, likewise
//   count:u32 (name:text value:text)*                         meta, by name
//
// Written: {"v": 1, "alg": "ed25519", "key": 32 hex digits, "time_ms": n, "sig": base64 of 64
// bytes}, these members and no others. A change to any of it is a new version.
#pragma once

#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/trust/keys.hpp"
#include "cache/manifest.hpp"

namespace nc::trust {

struct Signature {
  std::string key_id;
  Millis signed_ms = 0;
  std::string bytes;  // 64

  // kUnsupported: a newer version or another algorithm; kInvalid: anything else that is wrong.
  static Result<Signature> parse(std::string_view json);
  std::string to_json() const;
};

// The bytes above; the manifest's own `signature` is no part of them.
std::string signed_bytes(const Manifest& manifest, std::string_view key_id, Millis signed_ms);

Status sign_manifest(Manifest& manifest, const PrivateKey& key, Millis now_ms);

}  // namespace nc::trust

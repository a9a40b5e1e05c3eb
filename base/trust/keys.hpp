// Ed25519 keys of those who sign entries for shared tiers.
//
// A public key is written as `ed25519:` and the base64 of its 32 bytes; its id is the first 32 hex
// digits of SHA-256("neuroncache-key-id-v1" NUL, the 32 bytes). A private key's file, text, one
// field a line, in this order, nothing else:
//
//   file    = "neuroncache-private-key 1\n" id public private created [comment]
//   id      = "id " 32 hex digits "\n"
//   public  = "public ed25519:" base64 "\n"
//   private = "private " base64 of the 32 bytes of the seed "\n"
//   created = "created " time "\n"               time as in base/trust/time_text.hpp
//   comment = "comment " 1..200 bytes of UTF-8 without control characters "\n"
//
// The file belongs to who uses it and nobody else may read it (0600).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "base/clock.hpp"
#include "base/filesystem.hpp"
#include "base/result.hpp"

namespace nc::trust {

inline constexpr std::size_t kSignatureSize = 64;

struct PublicKey {
  std::array<std::byte, 32> raw{};

  // "ed25519:<base64>", in its one canonical form; kInvalid.
  static Result<PublicKey> parse(std::string_view text);
  std::string text() const;
  std::string id() const;
  // True when `signature` (64 bytes) is this key's over `message`.
  bool verify(Bytes message, Bytes signature) const;
  auto operator<=>(const PublicKey&) const = default;
};

// The secret lies in memory that OpenSSL locks, keeps out of core dumps and wipes.
class PrivateKey {
 public:
  static Result<PrivateKey> generate();
  // kInvalid: not such a file; kDenied: others may read it, or it is another user's.
  static Result<PrivateKey> load(FileSystem& fs, const std::string& path);
  static Result<PrivateKey> parse(std::string_view file);

  PrivateKey(PrivateKey&&) noexcept;
  PrivateKey& operator=(PrivateKey&&) noexcept;
  ~PrivateKey();

  const PublicKey& public_key() const { return public_; }
  const std::string& id() const { return id_; }
  const std::string& comment() const { return comment_; }
  Millis created_ms() const { return created_ms_; }
  Result<std::string> sign(Bytes message) const;  // 64 bytes

  // Writes a new file (0600); kConflict when there is one.
  Status save(FileSystem& fs, const std::string& path, Millis created_ms,
              std::string_view comment) const;

 private:
  struct Secret;
  explicit PrivateKey(std::unique_ptr<Secret> secret, const PublicKey& key);
  static Result<PrivateKey> from_seed(Bytes seed);

  std::unique_ptr<Secret> secret_;
  PublicKey public_;
  std::string id_;
  std::string comment_;
  Millis created_ms_ = 0;
};

// Comments of keys and tokens: 1..200 bytes of UTF-8 without control characters.
bool is_comment(std::string_view text);

// Overwrites what `text` holds before it is let go.
void wipe(std::string& text);

}  // namespace nc::trust

#include "base/trust/keys.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include <fmt/format.h>
#include <openssl/bn.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/hash.hpp"
#include "base/trust/time_text.hpp"

namespace nc::trust {
namespace {

constexpr std::string_view kPrefix = "ed25519:";
constexpr std::string_view kIdTag{"neuroncache-key-id-v1\0", 22};
constexpr std::string_view kMagic = "neuroncache-private-key 1";
constexpr std::size_t kKeySize = 32;
constexpr std::size_t kMaxFile = 4096;
constexpr std::size_t kMaxComment = 200;

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

// OpenSSL keeps the secret half of a key in its secure heap where there is one: locked, left out
// of core dumps, wiped. Without it (no memory may be locked) it lies in plain memory.
void bring_up_secure_heap() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (CRYPTO_secure_malloc_initialized() == 0) CRYPTO_secure_malloc_init(32 << 10, 16);
  });
}

const unsigned char* raw(Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// The rest of the line that begins with `name` and a space; takes it off `text`.
std::optional<std::string_view> take_line(std::string_view& text, std::string_view name) {
  const auto end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ' ') {
    return std::nullopt;
  }
  text.remove_prefix(end + 1);
  return line.substr(name.size() + 1);
}

// ---- Points ----

struct FreeNumber {
  void operator()(BIGNUM* number) const { BN_free(number); }
};
struct FreeScratch {
  void operator()(BN_CTX* scratch) const { BN_CTX_free(scratch); }
};
using Number = std::unique_ptr<BIGNUM, FreeNumber>;

Number number_of(const char* hex) {
  BIGNUM* number = nullptr;
  BN_hex2bn(&number, hex);
  return Number(number);
}

// Whether a point of the curve -x^2 + y^2 = 1 + d x^2 y^2 has this y (RFC 8032, 5.1.3).
bool on_curve(const BIGNUM* y, const BIGNUM* p) {
  const Number d = number_of("52036cee2b6ffe738cc740797779e89800700a4d4141d8ab75eb4dca135978a3");
  const std::unique_ptr<BN_CTX, FreeScratch> scratch(BN_CTX_new());
  const Number square(BN_new());
  const Number below(BN_new());
  const Number above(BN_new());
  if (!d || !scratch || !square || !below || !above) return false;
  // x^2 = (y^2 - 1) / (d y^2 + 1): there is an x where numerator times denominator is a square.
  if (BN_mod_sqr(square.get(), y, p, scratch.get()) != 1 ||
      BN_mod_sub(above.get(), square.get(), BN_value_one(), p, scratch.get()) != 1 ||
      BN_mod_mul(below.get(), d.get(), square.get(), p, scratch.get()) != 1 ||
      BN_mod_add(below.get(), below.get(), BN_value_one(), p, scratch.get()) != 1 ||
      BN_mod_mul(above.get(), above.get(), below.get(), p, scratch.get()) != 1) {
    return false;
  }
  const int root = BN_kronecker(above.get(), p, scratch.get());
  return root == 0 || root == 1;
}

// What is wrong with it as a key; "": nothing. With a point of low order anybody can sign anything.
std::string_view weakness(const PublicKey& key) {
  const Number p = number_of("7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffed");
  auto little = key.raw;
  little.back() &= std::byte{0x7f};  // the sign of x
  const Number y(BN_lebin2bn(reinterpret_cast<const unsigned char*>(little.data()),
                             static_cast<int>(little.size()), nullptr));
  if (!p || !y) return "it cannot be checked";
  if (BN_cmp(y.get(), p.get()) >= 0 || !on_curve(y.get(), p.get())) {
    return "it is no point of the curve";
  }
  // The y of all points whose order divides 8.
  for (const char* low :
       {"0", "1", "7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffec",
        "05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826",
        "7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7"}) {
    const Number bad = number_of(low);
    if (!bad || BN_cmp(bad.get(), y.get()) == 0) {
      return "it is one of those with which anybody can sign";
    }
  }
  return "";
}

Error not_a_key(std::string_view problem) {
  return {Code::kInvalid, fmt::format("not a private key of neuroncache: {}", problem),
          "make one with `neuroncache keys init`"};
}

}  // namespace

bool is_comment(std::string_view text) {
  return !text.empty() && text.size() <= kMaxComment && is_utf8(text) &&
         std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void wipe(std::string& text) {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

// ---- Public keys ----

Result<PublicKey> PublicKey::parse(std::string_view text) {
  const Error bad{Code::kInvalid, fmt::format("not a public key: '{}'", text.substr(0, 80)),
                  "it looks like ed25519:<44 characters of base64>; `neuroncache keys list` prints "
                  "your own"};
  if (!text.starts_with(kPrefix)) return bad;
  const auto bytes = from_base64(text.substr(kPrefix.size()));
  if (!bytes || bytes->size() != kKeySize) return bad;
  PublicKey key;
  std::memcpy(key.raw.data(), bytes->data(), kKeySize);
  if (key.text() != text) return bad;
  if (const auto problem = weakness(key); !problem.empty()) {
    return Error{Code::kInvalid,
                 fmt::format("'{}' cannot be used as a public key: {}", text, problem),
                 "do not trust whoever sent it; `neuroncache keys list` prints a real one"};
  }
  return key;
}

std::string PublicKey::text() const {
  return std::string(kPrefix) + to_base64(raw);
}

std::string PublicKey::id() const {
  std::string tagged(kIdTag);
  tagged += as_text(raw);
  return Sha256::of(as_bytes(tagged)).hex().substr(0, 32);
}

bool PublicKey::verify(Bytes message, Bytes signature) const {
  if (signature.size() != kSignatureSize) return false;
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, trust::raw(raw), kKeySize));
  const Context context(EVP_MD_CTX_new());
  return key && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), trust::raw(signature), signature.size(),
                          trust::raw(message), message.size()) == 1;
}

// ---- Private keys ----

struct PrivateKey::Secret {
  Key key;
};

PrivateKey::PrivateKey(std::unique_ptr<Secret> secret, const PublicKey& key)
    : secret_(std::move(secret)), public_(key), id_(key.id()) {}
PrivateKey::PrivateKey(PrivateKey&&) noexcept = default;
PrivateKey& PrivateKey::operator=(PrivateKey&&) noexcept = default;
PrivateKey::~PrivateKey() = default;

Result<PrivateKey> PrivateKey::from_seed(Bytes seed) {
  bring_up_secure_heap();
  auto secret = std::make_unique<Secret>();
  secret->key.reset(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, trust::raw(seed), seed.size()));
  PublicKey key;
  std::size_t size = kKeySize;
  if (!secret->key ||
      EVP_PKEY_get_raw_public_key(secret->key.get(),
                                  reinterpret_cast<unsigned char*>(key.raw.data()), &size) != 1) {
    return Error{Code::kInternal, "OpenSSL takes no Ed25519 key", ""};
  }
  return PrivateKey(std::move(secret), key);
}

Result<PrivateKey> PrivateKey::generate() {
  bring_up_secure_heap();
  const Key made(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  std::array<std::byte, kKeySize> seed{};
  std::size_t size = seed.size();
  if (!made || EVP_PKEY_get_raw_private_key(
                   made.get(), reinterpret_cast<unsigned char*>(seed.data()), &size) != 1) {
    return Error{Code::kInternal, "OpenSSL makes no Ed25519 key", ""};
  }
  auto key = from_seed(seed);
  OPENSSL_cleanse(seed.data(), seed.size());
  return key;
}

Result<PrivateKey> PrivateKey::parse(std::string_view file) {
  if (file.substr(0, file.find('\n')) != kMagic) return not_a_key("its first line is another one");
  file.remove_prefix(std::min(file.size(), kMagic.size() + 1));
  const auto id = take_line(file, "id");
  const auto shown = take_line(file, "public");
  const auto hidden = take_line(file, "private");
  const auto created = take_line(file, "created");
  if (!id || !shown || !hidden || !created) {
    return not_a_key("it lacks one of the lines id, public, private, created");
  }
  const auto comment = take_line(file, "comment");
  if (!file.empty()) return not_a_key("there is something behind its last line");
  if (comment && !is_comment(*comment)) return not_a_key("its comment is not plain text");
  const auto created_ms = parse_time(*created);
  if (!created_ms) return not_a_key("its time is none");
  auto seed = from_base64(*hidden);
  if (!seed || seed->size() != kKeySize) return not_a_key("its private line is damaged");
  auto key = from_seed(as_bytes(*seed));
  wipe(*seed);
  if (!key.ok()) return key;
  if (key->public_.text() != *shown || key->id_ != *id) {
    return not_a_key("its halves do not belong together");
  }
  key->created_ms_ = *created_ms;
  if (comment) key->comment_ = *comment;
  return key;
}

Result<PrivateKey> PrivateKey::load(FileSystem& fs, const std::string& path) {
  NC_ASSIGN(const FileInfo info, fs.stat(path));
  if (info.uid != ::geteuid()) {
    return Error{Code::kDenied, fmt::format("{} belongs to uid {}", path, info.uid),
                 "use a key of your own: `neuroncache keys init`"};
  }
  if ((info.mode & 077) != 0) {
    return Error{Code::kDenied,
                 fmt::format("others may read the private key {} (mode {:04o})", path, info.mode),
                 fmt::format("chmod 600 {}; if others could log in here, rotate it", path)};
  }
  NC_ASSIGN(std::string text, fs.read_all(path, kMaxFile));
  auto key = parse(text);
  wipe(text);
  if (!key.ok()) return std::move(key).error().context(path);
  return key;
}

Result<std::string> PrivateKey::sign(Bytes message) const {
  const Context context(EVP_MD_CTX_new());
  std::string signature(kSignatureSize, '\0');
  std::size_t size = signature.size();
  if (!context ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, secret_->key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     trust::raw(message), message.size()) != 1) {
    return Error{Code::kInternal, "OpenSSL cannot sign", ""};
  }
  return signature;
}

Status PrivateKey::save(FileSystem& fs, const std::string& path, Millis created_ms,
                        std::string_view comment) const {
  if (!comment.empty() && !is_comment(comment)) {
    return Error{Code::kInvalid, "a comment has 1 to 200 bytes of plain text", ""};
  }
  std::array<std::byte, kKeySize> seed{};
  std::size_t size = seed.size();
  if (EVP_PKEY_get_raw_private_key(secret_->key.get(),
                                   reinterpret_cast<unsigned char*>(seed.data()), &size) != 1) {
    return Error{Code::kInternal, "OpenSSL does not give the key", ""};
  }
  std::string hidden = to_base64(seed);
  OPENSSL_cleanse(seed.data(), seed.size());
  std::string text = fmt::format("{}\nid {}\npublic {}\nprivate {}\ncreated {}\n", kMagic, id_,
                                 public_.text(), hidden, time_text(created_ms));
  wipe(hidden);
  if (!comment.empty()) text += fmt::format("comment {}\n", comment);
  const auto write = [&]() -> Status {
    NC_TRY(fs.make_dirs(parent_dir(path), 0700));
    // A new name, so that a link somebody put there is never followed and no key is lost.
    NC_ASSIGN(auto file, fs.open(path, FileSystem::Open::kCreateNew, 0600));
    NC_TRY(file->write(as_bytes(text)));
    NC_TRY(file->sync());
    return fs.sync_dir(parent_dir(path));
  };
  Status written = write();
  wipe(text);
  return written;
}

}  // namespace nc::trust

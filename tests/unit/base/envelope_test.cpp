#include "base/envelope.hpp"

#include <string>

#include <gtest/gtest.h>

#include "base/hash.hpp"

namespace nc {
namespace {

constexpr std::uint64_t kLimit = 1 << 20;

std::string noise(std::size_t size) {
  std::string out;
  for (std::uint64_t i = 0; out.size() < size; ++i) {
    std::string counter;
    put_u64(counter, i);
    out.append(Sha256::of(as_bytes(counter)).view());
  }
  out.resize(size);
  return out;
}

Envelope::Encoding encoding_of(const std::string& sealed) {
  return static_cast<Envelope::Encoding>(sealed[6]);
}

// Puts the right checksum onto a record that was changed on purpose.
std::string resealed(std::string sealed) {
  sealed.resize(sealed.size() - 16);
  const Xxh128 sum = xxh128(as_bytes(sealed));
  put_u64(sealed, sum.low);
  put_u64(sealed, sum.high);
  return sealed;
}

TEST(Envelope, RoundTrip) {
  for (const std::string& payload :
       {std::string(), std::string("x"), std::string(10000, 'a'), noise(3000)}) {
    for (const bool compress : {false, true}) {
      const std::string sealed =
          Envelope::seal(Envelope::Kind::kManifest, as_bytes(payload), compress);
      const auto open = Envelope::unseal(as_bytes(sealed), kLimit);
      ASSERT_TRUE(open.ok()) << open.error().text();
      EXPECT_EQ(open->payload, payload);
      EXPECT_EQ(open->kind, Envelope::Kind::kManifest);
      const auto size =
          Envelope::sealed_size(as_bytes(sealed).first(Envelope::kHeaderSize), kLimit);
      ASSERT_TRUE(size.ok());
      EXPECT_EQ(*size, sealed.size());
    }
  }
}

TEST(Envelope, CompressesOnlyWhereItPays) {
  const std::string even(10000, 'a');
  EXPECT_EQ(encoding_of(Envelope::seal(Envelope::Kind::kBlob, as_bytes(even), true)),
            Envelope::Encoding::kZstd);
  EXPECT_LT(Envelope::seal(Envelope::Kind::kBlob, as_bytes(even), true).size(), 200U);
  EXPECT_EQ(encoding_of(Envelope::seal(Envelope::Kind::kBlob, as_bytes(even), false)),
            Envelope::Encoding::kRaw);
  EXPECT_EQ(encoding_of(Envelope::seal(Envelope::Kind::kBlob, as_bytes(noise(3000)), true)),
            Envelope::Encoding::kRaw);
}

// The bytes are what docs and other programs rely on.
TEST(Envelope, FrozenBytes) {
  EXPECT_EQ(
      to_hex(as_bytes(Envelope::seal(Envelope::Kind::kBlob, as_bytes("hi"), false))).substr(0, 52),
      "4e434531"
      "01"
      "02"
      "00"
      "00"
      "0200000000000000"
      "0200000000000000"
      "6869");
}

TEST(Envelope, EveryTruncationAndExtensionIsRefused) {
  for (const bool compress : {false, true}) {
    const std::string sealed = Envelope::seal(
        Envelope::Kind::kBlob, as_bytes(std::string(300, 'a') + noise(40)), compress);
    for (std::size_t size = 0; size < sealed.size(); ++size) {
      ASSERT_TRUE(Envelope::unseal(as_bytes(sealed).first(size), kLimit).is(Code::kCorrupt))
          << size;
    }
    EXPECT_TRUE(Envelope::unseal(as_bytes(sealed + '\0'), kLimit).is(Code::kCorrupt));
  }
}

TEST(Envelope, EveryFlippedBitIsRefused) {
  for (const bool compress : {false, true}) {
    const std::string sealed = Envelope::seal(
        Envelope::Kind::kBlob, as_bytes(std::string(300, 'a') + noise(40)), compress);
    for (std::size_t i = 0; i < sealed.size() * 8; ++i) {
      std::string bad = sealed;
      bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
      ASSERT_FALSE(Envelope::unseal(as_bytes(bad), kLimit).ok()) << i;
    }
  }
}

TEST(Envelope, LimitIsCheckedFirst) {
  const std::string sealed =
      Envelope::seal(Envelope::Kind::kBlob, as_bytes(std::string(5000, 'a')), true);
  EXPECT_TRUE(Envelope::unseal(as_bytes(sealed), 5000).ok());
  EXPECT_TRUE(Envelope::unseal(as_bytes(sealed), 4999).is(Code::kTooLarge));
  EXPECT_TRUE(Envelope::sealed_size(as_bytes(sealed), 4999).is(Code::kTooLarge));
}

TEST(Envelope, BombWithARightChecksumIsCorrupt) {
  // The frame decompresses to 100000 bytes, the header says 50000.
  std::string bomb =
      Envelope::seal(Envelope::Kind::kBlob, as_bytes(std::string(100000, 'a')), true);
  std::string size;
  put_u64(size, 50000);
  bomb.replace(8, 8, size);
  EXPECT_TRUE(Envelope::unseal(as_bytes(resealed(bomb)), kLimit).is(Code::kCorrupt));
}

TEST(Envelope, UnknownVersionKindAndEncoding) {
  const std::string sealed = Envelope::seal(Envelope::Kind::kBlob, as_bytes("payload"), false);
  const auto with = [&](std::size_t at, char value) {
    std::string changed = sealed;
    changed[at] = value;
    return Envelope::unseal(as_bytes(resealed(changed)), kLimit);
  };
  EXPECT_TRUE(with(4, 2).is(Code::kUnsupported));
  EXPECT_TRUE(with(4, 0).is(Code::kCorrupt));
  EXPECT_TRUE(with(5, 0).is(Code::kCorrupt));
  EXPECT_TRUE(with(5, 7).is(Code::kCorrupt));
  EXPECT_TRUE(with(5, 6).ok());
  EXPECT_TRUE(with(6, 1).is(Code::kCorrupt));  // zstd that stores as much as it decodes to
  EXPECT_TRUE(with(6, 2).is(Code::kCorrupt));
  EXPECT_TRUE(with(7, 1).is(Code::kCorrupt));
}

TEST(Envelope, ImpossibleSizes) {
  std::string head = Envelope::seal(Envelope::Kind::kBlob, as_bytes(std::string(1000, 'a')), false);
  std::string huge;
  put_u64(huge, UINT64_MAX);
  head.replace(8, 8, huge).replace(16, 8, huge);
  EXPECT_TRUE(Envelope::sealed_size(as_bytes(head), kLimit).is(Code::kTooLarge));
  EXPECT_TRUE(Envelope::sealed_size(as_bytes(head), UINT64_MAX).is(Code::kCorrupt));
  EXPECT_TRUE(Envelope::unseal(as_bytes(head), UINT64_MAX).is(Code::kCorrupt));
}

}  // namespace
}  // namespace nc

#include "cache/tier/layout.hpp"

#include <gtest/gtest.h>

#include "cache/tier/mirror.hpp"

namespace nc::tier {
namespace {

const ActionKey kKey = Sha256::of(as_bytes("a key"));

TEST(Layout, NamesAreReadBack) {
  const auto hex = kKey.hex();
  const auto ab = hex.substr(0, 2);
  EXPECT_EQ(entry_name(kKey), "v1/entries/" + ab + "/" + hex);
  EXPECT_EQ(parse_entry(entry_name(kKey))->key, kKey);
  EXPECT_EQ(parse_entry(entry_name(kKey))->place, 0U);
  EXPECT_EQ(entry_name(kKey, 7), "v1/entries/" + ab + "/" + hex + ".7");
  EXPECT_EQ(parse_entry(entry_name(kKey, 7))->key, kKey);
  EXPECT_EQ(parse_entry(entry_name(kKey, 7))->place, 7U);
  EXPECT_EQ(parse_mark(mark_name(kKey)), kKey);
  for (const bool compressed : {false, true}) {
    const auto blob = parse_blob(blob_name(kKey, compressed));
    ASSERT_TRUE(blob);
    EXPECT_EQ(blob->digest, kKey);
    EXPECT_EQ(blob->compressed, compressed);
  }
  for (const std::uint64_t fence : {std::uint64_t{0}, std::uint64_t{42}, ~std::uint64_t{0}}) {
    const auto lease = parse_lease(lease_name(kKey, fence));
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->key, kKey);
    EXPECT_EQ(lease->fence, fence);
    EXPECT_TRUE(lease_name(kKey, fence).starts_with(lease_dir(kKey)));
  }
  EXPECT_LT(lease_name(kKey, 9), lease_name(kKey, 10));
  EXPECT_EQ(parse_lease_seen(lease_seen_name(kKey)), kKey);
  EXPECT_EQ(parse_queue(queue_name("00-a.b")), "00-a.b");
  for (const auto& name : {entry_name(kKey), blob_name(kKey, true), mark_name(kKey),
                           lease_name(kKey, 7), queue_name("x")}) {
    EXPECT_TRUE(check_name(name).ok()) << name;
  }
}

TEST(Layout, OtherNamesAreNone) {
  const auto hex = kKey.hex();
  const auto ab = hex.substr(0, 2);
  const std::string wrong = ab == "00" ? "11" : "00";
  EXPECT_FALSE(parse_entry("v1/entries/" + wrong + "/" + hex));
  EXPECT_FALSE(parse_entry("v1/entries/" + ab + "/" + hex + "0"));
  EXPECT_FALSE(parse_entry("v1/blobs/" + ab + "/" + hex));
  for (const char* place : {".", ".0", ".8", ".10", ".01", ".1.1", ".x", "1"}) {
    EXPECT_FALSE(parse_entry("v1/entries/" + ab + "/" + hex + place)) << place;
  }
  EXPECT_FALSE(parse_blob("v1/blobs/" + ab + "/" + hex + ".gz"));
  EXPECT_FALSE(parse_lease(lease_dir(kKey) + "7"));
  EXPECT_FALSE(parse_lease(lease_dir(kKey) + "99999999999999999999"));  // over 2^64
  EXPECT_FALSE(parse_lease(lease_seen_name(kKey)));
  EXPECT_FALSE(parse_lease_seen(lease_name(kKey, 1)));
  EXPECT_FALSE(parse_lease_seen(lease_seen_name(kKey) + "x"));
  EXPECT_FALSE(parse_queue("v1/queue/a/b"));
  EXPECT_FALSE(parse_queue("v1/queue/"));
}

TEST(Layout, WhatOthersKeepIsCopiedOnlyIntoTheDirectory) {
  for (const char* good : {"neuronxcc-2.20+a/MODULE_1+2/model.neff", "a", "..a/b..", ".tmp"})
    EXPECT_TRUE(is_path(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string("/etc/passwd"), std::string("../a"), std::string("a/../../b"),
        std::string("a//b"), std::string("a/"), std::string("a/."), std::string("a\0b", 3),
        std::string(256, 'x'), std::string(1'025, '/')})
    EXPECT_FALSE(is_path(bad)) << bad;
}

TEST(Layout, BadNamesAreRefused) {
  for (const std::string name : {"", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "A",
                                 "a b", "a\n", "a\\b", "é", "a:b"}) {
    EXPECT_TRUE(check_name(name).is(Code::kInvalid)) << name;
  }
  EXPECT_TRUE(check_name(std::string(512, 'a')).ok());
  EXPECT_FALSE(check_name(std::string(513, 'a')).ok());
  EXPECT_TRUE(check_name(std::string("a\0b", 3)).is(Code::kInvalid));
  for (const std::string prefix : {"", "a", "a/", "a/b", "a/.", "a/.."}) {
    EXPECT_TRUE(check_prefix(prefix).ok()) << prefix;
  }
  for (const std::string prefix : {"/", "../a", "a/../b", "A"}) {
    EXPECT_FALSE(check_prefix(prefix).ok()) << prefix;
  }
}

}  // namespace
}  // namespace nc::tier

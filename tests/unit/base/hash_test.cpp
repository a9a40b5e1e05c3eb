#include "base/hash.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace nc {
namespace {

std::string sha256_hex(std::string_view text) {
  return Sha256::of(as_bytes(text)).hex();
}

TEST(Sha256, VectorsOfFips180) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, StreamedIsTheSame) {
  const std::string text = std::string(1000, 'x') + "tail";
  for (std::size_t step : {1U, 7U, 64U, 1004U}) {
    Sha256Hasher hasher;
    for (std::size_t at = 0; at < text.size(); at += step)
      hasher.update(as_bytes(text.substr(at, step)));
    EXPECT_EQ(hasher.finish().hex(), sha256_hex(text)) << step;
  }
  Sha256Hasher hasher;
  hasher.update({});
  EXPECT_EQ(hasher.finish().hex(), sha256_hex(""));
}

TEST(Sha256, HexAndRawForms) {
  const Sha256 value = Sha256::of(as_bytes("abc"));
  EXPECT_EQ(Sha256::from_hex(value.hex()), value);
  EXPECT_EQ(value.view().size(), 32U);
  EXPECT_EQ(Sha256::from_hex(value.hex().substr(1)), std::nullopt);
  std::string upper = value.hex();
  upper[0] = 'B';
  EXPECT_EQ(Sha256::from_hex(upper), std::nullopt);
}

TEST(Xxh128, KnownValueAndStreaming) {
  // XXH3-128 of nothing, from the reference implementation's own test vectors.
  const Xxh128 empty = xxh128({});
  EXPECT_EQ(empty.low, 0x6001c324468d497fU);
  EXPECT_EQ(empty.high, 0x99aa06d3014798d8U);
  const std::string text(5000, 'q');
  Xxh128Hasher hasher;
  hasher.update(as_bytes(text.substr(0, 1)));
  hasher.update({});
  hasher.update(as_bytes(text.substr(1)));
  EXPECT_EQ(hasher.finish(), xxh128(as_bytes(text)));
  EXPECT_NE(hasher.finish(), empty);
}

// The vectors of docs/protocol.md, made with Python's hashlib.
TEST(ActionKey, VectorsOfTheProtocol) {
  EXPECT_EQ(action_key({})->hex(),
            "fc0dfd93e01e2ed2b41603183b2817bc838ced3d15065637557997cbe8c02a04");
  const KeyParts parts = {
      {"compiler", "inductor 2.13.0"},
      {"abi", ""},
      {"graph", "sha256:99e2995dbca8ca48ab1e5e0b7946ea783a9f242fb8ea1482dd8c8aca7e2805b8"}};
  EXPECT_EQ(action_key(parts)->hex(),
            "06f7a4103904ff13d442e28de079c54b8255bbbc1474cadcf141f78f05c40876");
  EXPECT_EQ(action_key({{"\xc3\xa9", "\xe2\x82\xac"}, {"z", "1"}, {"Z", "2"}})->hex(),
            "7d780bbcf0376ee12acdb1feb7f6b02b4ab21ba3916559be57d45e967bdef2b0");
}

TEST(ActionKey, OrderDoesNotMatterButBoundariesDo) {
  EXPECT_EQ(*action_key({{"a", "1"}, {"b", "2"}}), *action_key({{"b", "2"}, {"a", "1"}}));
  const KeyParts lists[] = {{},
                            {{"a", ""}},
                            {{"a", "b"}},
                            {{"ab", ""}},
                            {{"a", ""}, {"b", ""}},
                            {{"a", "1"}, {"b", "2"}},
                            {{"a", "1b"}, {"c", "2"}},
                            {{"a", "2"}, {"b", "1"}}};
  std::set<Sha256> keys;
  for (const KeyParts& list : lists) keys.insert(*action_key(list));
  EXPECT_EQ(keys.size(), std::size(lists));
}

TEST(ActionKey, RefusesNamesTwiceOrEmpty) {
  const auto twice = action_key({{"a", "1"}, {"b", "2"}, {"a", "1"}});
  ASSERT_TRUE(twice.is(Code::kInvalid));
  EXPECT_NE(twice.error().message.find("\"a\""), std::string::npos);
  EXPECT_TRUE(action_key({{"", "1"}}).is(Code::kInvalid));
}

}  // namespace
}  // namespace nc

#include "base/bytes.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace nc {
namespace {

TEST(Hex, RoundTrip) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const std::string hex = to_hex(as_bytes(all));
  EXPECT_EQ(hex.substr(0, 8), "00010203");
  EXPECT_EQ(hex.substr(hex.size() - 4), "feff");
  EXPECT_EQ(from_hex(hex), all);
  EXPECT_EQ(from_hex(""), "");
}

TEST(Hex, RefusesEverythingElse) {
  for (const char* bad : {"a", "AB", "0g", "0x", " 0", "00 "})
    EXPECT_EQ(from_hex(bad), std::nullopt) << bad;
  EXPECT_TRUE(is_hex("00ff", 4));
  EXPECT_FALSE(is_hex("00ff", 2));
  EXPECT_FALSE(is_hex("00fF", 4));
}

TEST(Utf8, ABeginningEndsWithAWholeCharacter) {
  const std::string text = "a\xe2\x82\xac\xe2\x82\xac";  // a and two euro signs
  EXPECT_EQ(utf8_head(text, 100), text);
  EXPECT_EQ(utf8_head(text, 6), text.substr(0, 4));
  EXPECT_EQ(utf8_head(text, 2), "a");
  EXPECT_EQ(utf8_head("\xff", 5), "");
  EXPECT_EQ(utf8_head("", 0), "");
}

TEST(Base64, VectorsOfRfc4648) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"},
                                                         {"\xfb\xff", "+/8="}};
  for (const auto& [plain, text] : vectors) {
    EXPECT_EQ(to_base64(as_bytes(plain)), text);
    EXPECT_EQ(from_base64(text), plain);
  }
}

TEST(Base64, OneTextPerValue) {
  for (const char* bad :
       {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "=g==", "====", "Zm 9", "Zm-v", "Z==="}) {
    EXPECT_EQ(from_base64(bad), std::nullopt) << bad;
  }
}

TEST(Utf8, WellFormedOnly) {
  for (const char* good : {"", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                           "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc3(", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xf8\x88\x80\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82", "\xff"}) {
    EXPECT_FALSE(is_utf8(bad)) << to_hex(as_bytes(bad));
  }
}

TEST(Integers, LittleEndian) {
  std::string out;
  put_u32(out, 0x01020304);
  put_u64(out, 0x1112131415161718);
  EXPECT_EQ(to_hex(as_bytes(out)), "040302011817161514131211");
  EXPECT_EQ(get_u32(as_bytes(out).data()), 0x01020304U);
  EXPECT_EQ(get_u64(as_bytes(out).data() + 4), 0x1112131415161718U);
}

TEST(NearestName, FindsSlipsOnly) {
  const std::vector<std::string> names = {"dir", "max_bytes", "max_entries", "log_level"};
  EXPECT_EQ(nearest_name("max_byte", names), "max_bytes");
  EXPECT_EQ(nearest_name("amx_bytes", names), "max_bytes");
  EXPECT_EQ(nearest_name("loglevel", names), "log_level");
  EXPECT_EQ(nearest_name("dri", names), "dir");
  EXPECT_EQ(nearest_name("colour", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
  EXPECT_EQ(nearest_name("dir", {}), std::nullopt);
}

}  // namespace
}  // namespace nc

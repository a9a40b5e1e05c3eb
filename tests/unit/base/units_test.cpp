#include <gtest/gtest.h>

#include "base/bytes.hpp"

namespace nc {
namespace {

TEST(Size, Parses) {
  const std::pair<const char*, std::uint64_t> cases[] = {
      {"0", 0},
      {"4096", 4096},
      {"10GiB", 10ULL << 30},
      {"10G", 10ULL << 30},
      {"10gib", 10ULL << 30},
      {"1.5 MB", 1'500'000},
      {"0.1KB", 100},
      {"7 B", 7},
      {" 2 TiB ", 2ULL << 40},
      {"18446744073709551615", UINT64_MAX},
  };
  for (const auto& [text, bytes] : cases) {
    const auto parsed = parse_size(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(Size, RefusesAndSaysWhatIsRight) {
  for (const char* bad : {"", " ", "-1", "+1", "1e3", "GiB", "1 XB", "1 GiB x", "1.", ".5", "0x10",
                          "1,5 MB", "18446744073709551616", "17179869184 GiB", "nan", "1 2"}) {
    const auto parsed = parse_size(bad);
    ASSERT_TRUE(parsed.is(Code::kInvalid)) << bad;
    EXPECT_NE(parsed.error().message.find("\"" + std::string(bad) + "\""), std::string::npos);
    EXPECT_NE(parsed.error().action.find("10GiB"), std::string::npos);
  }
}

TEST(Duration, Parses) {
  const std::pair<const char*, double> cases[] = {
      {"0s", 0},       {"90s", 90},    {"2h30m", 9000}, {"2h 30min", 9000}, {"7d", 604800},
      {"250ms", 0.25}, {"1.5h", 5400}, {"60", 60},      {"1w2d", 777600},   {"1m 250ms", 60.25},
  };
  for (const auto& [text, seconds] : cases) {
    const auto parsed = parse_duration_s(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_DOUBLE_EQ(*parsed, seconds) << text;
  }
}

TEST(Duration, Refuses) {
  for (const char* bad : {"", "s", "-1s", "30m2h", "1h1h", "1h30", "5 parsecs", "1e3s", "inf",
                          "99999999999999999s"}) {
    EXPECT_TRUE(parse_duration_s(bad).is(Code::kInvalid)) << bad;
  }
}

TEST(Size, Formats) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.0 KiB");
  EXPECT_EQ(format_size((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_size(1288490189), "1.2 GiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16.0 EiB");
}

TEST(Duration, Formats) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(-5), "0 s");
  EXPECT_EQ(format_duration(0.0004), "0.4 ms");
  EXPECT_EQ(format_duration(0.012), "12 ms");
  EXPECT_EQ(format_duration(3.44), "3.4 s");
  EXPECT_EQ(format_duration(59.97), "1m 0s");
  EXPECT_EQ(format_duration(7500), "2h 5m");
  EXPECT_EQ(format_duration(273600), "3d 4h");
  EXPECT_EQ(format_duration(1e300), "forever");
}

}  // namespace
}  // namespace nc

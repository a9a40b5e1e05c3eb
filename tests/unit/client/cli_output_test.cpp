#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <gtest/gtest.h>

#include "client/cli/output.hpp"

namespace nc::cli {
namespace {

using Align = Table::Align;

TEST(Output, ATableIsAlignedAndHasNoTrailingSpace) {
  Table table({{"NAME", "name"}, {"SIZE", "bytes", Align::kRight}, {"STATE", "state"}});
  table.add({"a", size_cell(1536), ""});
  table.add({"größer", size_cell(10), "pinned"});
  EXPECT_EQ(table.text(0),
            "NAME       SIZE  STATE\n"
            "a       1.5 KiB\n"
            "größer     10 B  pinned\n");
  EXPECT_EQ(table.tab(), "name\tbytes\tstate\na\t1536\t\ngrößer\t10\tpinned\n");
}

TEST(Output, ANarrowTerminalCutsOnlyWhatMayBeCut) {
  Table table({{"KEY", "key"}, {"LABEL", "label", Align::kLeft, true}, {"N", "n"}});
  table.add({"0123456789", "a very long label indeed", "7"});
  EXPECT_EQ(table.text(26), "KEY         LABEL        N\n0123456789  a very lon…  7\n");
  EXPECT_NE(table.text(0).find("a very long label indeed"), std::string::npos);
}

TEST(Output, TabFieldsNeverBreakTheLine) {
  Table table({{"", "a"}, {"", "b"}});
  table.add({"x\ty\nz", "\x1b[31mred"});
  EXPECT_EQ(table.tab(), "a\tb\nx y z\t [31mred\n");
}

TEST(Output, JsonNumbersAreReadable) {
  const bj::value value = bj::object{{"whole", 2.0},
                                     {"part", 0.5},
                                     {"big", 1e15},
                                     {"none", nullptr},
                                     {"pair", bj::array{"a", 1}},
                                     {"empty", bj::array{}},
                                     {"quote", "a\"b"}};
  EXPECT_EQ(json_text(value),
            "{\n  \"whole\": 2,\n  \"part\": 0.5,\n  \"big\": 1000000000000000,\n  \"none\": "
            "null,\n  \"pair\": [\"a\", 1],\n"
            "  \"empty\": [],\n  \"quote\": \"a\\\"b\"\n}\n");
}

TEST(Output, CountsAndAges) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1000), "-1,000");
  constexpr Millis kNow = 1'800'000'000'000;
  EXPECT_EQ(format_ago(0, kNow), "-");
  EXPECT_EQ(format_ago(kNow - 3'000, kNow), "just now");
  EXPECT_EQ(format_ago(kNow - 30'000, kNow), "30 s ago");
  EXPECT_EQ(counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(counted(1200, "entry", "entries"), "1,200 entries");
  EXPECT_EQ(format_ago(kNow - 119'000, kNow), "1 min ago");
  EXPECT_EQ(format_ago(kNow - 7'200'000, kNow), "2 h ago");
  EXPECT_EQ(format_ago(kNow - 3 * 86'400'000LL, kNow), "3 d ago");
  EXPECT_EQ(format_ago(kNow + 1'000, kNow), "in the future");
}

}  // namespace
}  // namespace nc::cli

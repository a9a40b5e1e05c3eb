#include "client/cli/csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/length_column.hpp"
#include "client/cli/simulation.hpp"

namespace nc::cli {
namespace {

using testing::HasSubstr;
using Records = std::vector<std::pair<std::uint64_t, CsvReader::Record>>;

struct Reading {
  Status status;
  Records records;
};

Reading read(std::string_view text, std::size_t piece = 1 << 20) {
  Reading out;
  CsvReader reader([&](std::uint64_t line, const CsvReader::Record& record) {
    out.records.emplace_back(line, record);
    return Status();
  });
  for (std::size_t at = 0; at < text.size() && out.status.ok(); at += piece) {
    out.status = reader.feed(text.substr(at, piece));
  }
  if (out.status.ok()) out.status = reader.finish();
  return out;
}

TEST(Csv, ReadsWhatProgramsWrite) {
  const Records expected{{1, {"a", "b"}}, {2, {"1", "2"}}};
  for (const char* text : {"a,b\n1,2\n", "a,b\n1,2", "a,b\r\n1,2\r\n", "a,b\r1,2\r",
                           "\xef\xbb\xbf"
                           "a,b\n1,2\n",
                           "a;b\n1;2\n", "a\tb\n1\t2\n", "\"a\",\"b\"\n\"1\",2\n"}) {
    for (const std::size_t piece : {1U, 2U, 3U, 100U}) {
      const Reading reading = read(text, piece);
      ASSERT_TRUE(reading.status.ok()) << text;
      EXPECT_EQ(reading.records, expected) << text;
    }
  }
}

TEST(Csv, QuotesHoldEverything) {
  const Reading reading = read("\"a \"\"b\"\", c\nd\",e\n\n\"\"\n,\n");
  ASSERT_TRUE(reading.status.ok());
  const Records expected{{1, {"a \"b\", c\nd", "e"}}, {4, {""}}, {5, {"", ""}}};
  EXPECT_EQ(reading.records, expected);
}

TEST(Csv, ADifferentSeparatorIsText) {
  EXPECT_EQ(read("a;b\n1,5;2\n").records[1].second, (CsvReader::Record{"1,5", "2"}));
}

TEST(Csv, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(read("a\n\"b\"c\n").status.error().message, HasSubstr("line 2: text follows"));
  EXPECT_THAT(read("a\n\n\"b\n\n").status.error().message, HasSubstr("line 3: a quote is not"));
  const std::string huge(CsvReader::kMaxRecord + 1, 'x');
  EXPECT_TRUE(read("a\n" + huge).status.is(Code::kTooLarge));
  EXPECT_TRUE(read("a\n" + std::string(CsvReader::kMaxRecord + 1, ',')).status.is(Code::kTooLarge));
  EXPECT_TRUE(read("").records.empty());
}

Result<LengthColumn> lengths(std::string_view text, const std::string& weight = "",
                             std::uint64_t first = 0) {
  LengthColumn column("n", weight);
  column.split_at(first);
  CsvReader reader([&](std::uint64_t line, const CsvReader::Record& record) {
    return column.add(line, record);
  });
  NC_TRY(reader.feed(text));
  NC_TRY(reader.finish());
  NC_TRY(column.finish());
  return column;
}

TEST(LengthColumn, CountsLengths) {
  const auto column = lengths("x,n\n0,5\n0,7.0\n0, 5 \n0,0\n");
  ASSERT_TRUE(column.ok());
  const buckets::SizeCounts expected{{5, 2 * kWeightUnit}, {7, kWeightUnit}};
  EXPECT_EQ(column->all().sizes, expected);
  EXPECT_EQ(column->all().rows, 3U);
  EXPECT_EQ(column->all().zeros, 1U);
}

TEST(LengthColumn, WeightsMayHaveDecimals) {
  const auto column = lengths("n,w\n5,0.5\n5,2\n9,0\n", "w");
  ASSERT_TRUE(column.ok());
  EXPECT_EQ(column->all().sizes, (buckets::SizeCounts{{5, 2500}}));
}

TEST(LengthColumn, SplitsByRow) {
  const auto column = lengths("n\n1\n2\n3\n", "", 2);
  ASSERT_TRUE(column.ok());
  EXPECT_EQ(column->part(0).rows, 2U);
  EXPECT_EQ(column->part(1).sizes, (buckets::SizeCounts{{3, kWeightUnit}}));
}

TEST(LengthColumn, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the file is empty"},
      {"n\n", "no row with a length above 0"},
      {"n\n0\n", "no row with a length above 0"},
      {"length,m\n1,2\n", "there is no column 'n'; there are 'length', 'm'"},
      {"n\n1\nabc\n", "line 3, column 'n': 'abc' is not a number"},
      {"n\n-3\n", "line 2, column 'n': '-3' is negative"},
      {"n\n1.5\n", "'1.5' is not a whole number"},
      {"n\n3000000000\n", "is too large"},
      {"n\n1e999\n", "is too large"},
      {"n\nnan\n", "is not a number"},
      {"n\n12 tokens\n", "is not a number"},
      {"a,n\n1,\n", "line 2, column 'n': is empty"},
      {"a,n\n1\n", "line 2 has 1 fields"},
  };
  for (const auto& [text, message] : cases) {
    const auto column = lengths(text);
    ASSERT_TRUE(column.is(Code::kInvalid)) << text;
    EXPECT_THAT(column.error().message, HasSubstr(message));
  }
  EXPECT_THAT(lengths("n,w\n1,1\n", "v").error().message, HasSubstr("no column 'v'"));
  EXPECT_THAT(lengths("n,weight\n1,1\n", "wieght").error().action, HasSubstr("'weight'"));
}

TEST(Simulation, ComparesPlans) {
  SimulationInput input;
  input.learned = input.evaluated = {{10, 100}, {100, 100}, {110, 100}, {1000, 1}};
  input.largest = 1000;
  input.max_buckets = 3;
  const Simulation found = simulate(input);
  EXPECT_EQ(found.plan.buckets, (std::vector<buckets::Size>{10, 110, 1000}));
  EXPECT_EQ(found.plan.used, 3U);
  EXPECT_NEAR(found.plan.waste, 1000.0 / 23'000, 1e-12);
  EXPECT_EQ(found.optimum.buckets, found.plan.buckets);
  EXPECT_EQ(found.powers.buckets.back(), 1024U);
  EXPECT_EQ(found.powers.used, 3U);
  EXPECT_EQ(found.tiles.waste, 0);
  EXPECT_EQ(found.optimum_by_count.size(), 3U);
  EXPECT_NEAR(found.optimum_by_count[2], found.plan.waste, 1e-12);
}

TEST(Simulation, TheLargestLengthIsAlwaysCovered) {
  SimulationInput input;
  input.learned = {{10, 1}};
  input.evaluated = {{5000, 1}};
  input.largest = 5000;
  input.tile = 128;
  input.max_buckets = 2;
  const Simulation found = simulate(input);
  EXPECT_EQ(found.plan.buckets, (std::vector<buckets::Size>{128, 5120}));
  EXPECT_EQ(found.plan.used, 1U);
}

}  // namespace
}  // namespace nc::cli

#include "daemon/peak_book.hpp"

#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGB = 1'000'000'000;
const std::string kNeuron = "neuronx-cc 2.27.5334.0";

PeakBook::Estimate estimate(const PeakBook& book, std::uint64_t input, std::uint64_t guess = 0,
                            const std::string& compiler = kNeuron) {
  return book.estimate(PeakClass::of(compiler, input), guess);
}

TEST(PeakBook, FirstGuessesAreThoseThatWereMeasured) {
  const PeakBook book;
  EXPECT_EQ(estimate(book, 300'000).bytes, 10'600'000'000U);
  EXPECT_EQ(estimate(book, kMiB - 1).bytes, 10'600'000'000U);
  EXPECT_EQ(estimate(book, kMiB).bytes, 14'400'000'000U);
  EXPECT_EQ(estimate(book, 3 * kMiB).bytes, 22'900'000'000U);
  EXPECT_EQ(estimate(book, 6 * kMiB).bytes, 30'000'000'000U);
  EXPECT_EQ(estimate(book, 9 * kMiB).bytes, 45'000'000'000U);
  EXPECT_EQ(estimate(book, 1024 * kMiB).bytes, 107'000'000'000U);
  EXPECT_FALSE(estimate(book, 1).learned);
  EXPECT_EQ(estimate(book, 6 * kMiB, 0, "iree 3").bytes, PeakBook::kOtherGuess);
  EXPECT_EQ(estimate(book, 6 * kMiB, 77, "iree 3").bytes, 77U);
  EXPECT_EQ(estimate(book, 6 * kMiB, 77).bytes, 77U) << "what the user says wins";
}

TEST(PeakBook, FewSamplesGetALargeMargin) {
  PeakBook book;
  book.add(PeakClass::of(kNeuron, kMiB), 10 * kGB, 1);
  EXPECT_EQ(estimate(book, kMiB).bytes, 16'500'000'000U);
  EXPECT_TRUE(estimate(book, kMiB).learned);
  for (int i = 0; i < 49; ++i) book.add(PeakClass::of(kNeuron, kMiB), 10 * kGB, 1);
  const auto settled = estimate(book, kMiB).bytes;
  EXPECT_GT(settled, 11'600'000'000U);
  EXPECT_LT(settled, 11'700'000'000U);
}

TEST(PeakBook, OutliersDoNotDecide) {
  // As measured: most under 15 GB, one of 107 and one of 175.
  std::vector<std::uint64_t> peaks(30, 12 * kGB);
  peaks.push_back(107 * kGB);
  peaks.push_back(175 * kGB);
  EXPECT_LT(expected_peak(peaks), 15 * kGB);
  // One among few as well, but not one of two.
  EXPECT_LT(expected_peak({10 * kGB, 11 * kGB, 12 * kGB, 100 * kGB}), 16 * kGB);
  EXPECT_GT(expected_peak({10 * kGB, 100 * kGB}), 100 * kGB);
}

TEST(PeakBook, MostBuildsStayWithinTheirEstimate) {
  std::vector<std::uint64_t> peaks;
  for (std::uint64_t i = 1; i <= 32; ++i) peaks.push_back(i * kGB);
  const std::uint64_t expected = expected_peak(peaks);
  EXPECT_GE(expected, 32 * kGB);
  EXPECT_LE(expected, 40 * kGB);
}

TEST(PeakBook, OldSamplesAreForgotten) {
  PeakBook book;
  const PeakClass of = PeakClass::of(kNeuron, kMiB);
  for (std::size_t i = 0; i < PeakRow::kSamples; ++i) book.add(of, 50 * kGB, 1);
  for (std::size_t i = 0; i < PeakRow::kSamples; ++i) book.add(of, kGB, 2);
  EXPECT_LT(estimate(book, kMiB).bytes, 2 * kGB);
  EXPECT_EQ(book.learned().at(0).samples, PeakRow::kSamples);
}

TEST(PeakBook, ANearClassHelpsOut) {
  PeakBook book;
  for (int i = 0; i < 50; ++i) book.add(PeakClass::of(kNeuron, kMiB), 2 * kGB, 1);
  const auto own = estimate(book, kMiB).bytes;
  EXPECT_EQ(estimate(book, kMiB / 2).bytes, own) << "never scaled down";
  EXPECT_EQ(estimate(book, 2 * kMiB).bytes,
            static_cast<std::uint64_t>(static_cast<double>(own) * 22.9 / 14.4));
  EXPECT_FALSE(estimate(book, 64 * kMiB).learned) << "too far away";
}

TEST(PeakBook, AnotherVersionOfTheCompilerIsBetterThanAGuess) {
  PeakBook book;
  for (int i = 0; i < 50; ++i) book.add(PeakClass::of(kNeuron, kMiB), 2 * kGB, 1);
  EXPECT_LT(estimate(book, kMiB, 0, "neuronx-cc 2.28.1.0").bytes, 3 * kGB);
  EXPECT_EQ(estimate(book, kMiB, 0, "iree 3").bytes, PeakBook::kOtherGuess);
}

TEST(PeakBook, RowsAreWrittenAndRead) {
  PeakBook book;
  const PeakClass of = PeakClass::of(kNeuron, kMiB);
  book.add(of, 5 * kGB, 7);
  const auto changes = book.add(of, 6 * kGB, 8);
  ASSERT_EQ(changes.size(), 1U);
  PeakBook again;
  ASSERT_TRUE(again.load(changes[0].first, *changes[0].second));
  EXPECT_EQ(estimate(again, kMiB).bytes, estimate(book, kMiB).bytes);
  EXPECT_FALSE(again.load("x", *changes[0].second));
  EXPECT_FALSE(again.load(changes[0].first, "{}"));
  EXPECT_FALSE(again.load(changes[0].first, R"({"v":2,"peaks":[1],"used_ms":1})"));
  EXPECT_FALSE(again.load(changes[0].first, R"({"v":1,"peaks":[0],"used_ms":1})"));
  EXPECT_FALSE(again.load(changes[0].first, R"({"v":1,"peaks":[],"used_ms":1})"));
}

TEST(PeakBook, ItIsBounded) {
  PeakBook book;
  std::string first;
  for (std::size_t i = 0; i <= PeakBook::kMaxRows; ++i) {
    const auto changes =
        book.add(PeakClass::of("c" + std::to_string(i), 1), kGB, static_cast<Millis>(i));
    if (i == 0) first = changes[0].first;
    if (i == PeakBook::kMaxRows) {
      ASSERT_EQ(changes.size(), 2U);
      EXPECT_EQ(changes[1].first, first);
      EXPECT_FALSE(changes[1].second);
    }
  }
  EXPECT_EQ(book.learned().size(), PeakBook::kMaxRows);
}

}  // namespace
}  // namespace nc::daemon

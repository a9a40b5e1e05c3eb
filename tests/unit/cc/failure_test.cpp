#include "client/cc/failure.hpp"

#include <csignal>

#include <gtest/gtest.h>

namespace nc::cc {
namespace {

struct Case {
  int exit_code;
  int signal;
  const char* text;
  const char* expected;
};

TEST(Failure, Classes) {
  const Case cases[] = {
      {70, 0, "ERROR: [NCC_EVRF009] too much memory", "deterministic"},
      {70, 0, "[TEN404] Internal tensorizer error", "deterministic"},
      {1, 0, "[XCG815] peak HBM exceeds 16 GB", "deterministic"},
      {70, 0, "[XYZ123] some other code", "deterministic"},
      {2, 0, "usage: neuronx-cc\nerror: unrecognized arguments: --x", "deterministic"},
      {70, 0, "[F137] neuronx-cc was forcibly killed [NCC_X]", "out_of_memory"},
      {1, 0, "MemoryError", "out_of_memory"},
      {1, 0, "OSError: [Errno 28] No space left on device", "disk_full"},
      {70, 0, "[F134] neuronx-cc terminated abnormally", "killed"},
      {1, 0, "ModuleNotFoundError: No module named 'neuronxcc'", "environment"},
      {70, 0, "internal error, nobody knows", "environment"},
      {137, 0, "", "killed"},
      {143, 0, "", "killed"},
      {0, SIGKILL, "", "killed"},
      {0, SIGSEGV, "[NCC_ABCD] said before", "killed"},
  };
  for (const Case& c : cases) {
    ChildResult result;
    result.exit_code = c.exit_code;
    result.signal = c.signal;
    result.err = c.text;
    EXPECT_EQ(classify(result, "").failure_class, c.expected) << c.exit_code << " " << c.text;
    result.err.clear();
    EXPECT_EQ(classify(result, c.text).failure_class, c.expected) << "in the log: " << c.text;
  }
  ChildResult killed;
  killed.signal = SIGKILL;
  killed.oom_kill = true;
  EXPECT_EQ(classify(killed, "").failure_class, "out_of_memory");
  ChildResult slow;
  slow.timed_out = true;
  slow.err = "[NCC_ABCD]";
  EXPECT_EQ(classify(slow, "").failure_class, "timeout");
}

TEST(Failure, SaysWhatHappened) {
  ChildResult result;
  result.exit_code = 70;
  result.err = "INFO fine\nERROR: [NCC_EVRF009] too much\nINFO more\n";
  const auto report = classify(result, "");
  EXPECT_EQ(report.message, "status 70: ERROR: [NCC_EVRF009] too much");
  EXPECT_EQ(report.exit_code, 70);
}

TEST(Failure, StreamsComeApartAgain) {
  const Streams streams = split_streams(join_streams("a\n[standard error, 1 bytes]\nb", "err"));
  EXPECT_EQ(streams.out, "a\n[standard error, 1 bytes]\nb");
  EXPECT_EQ(streams.err, "err");
  EXPECT_EQ(split_streams("of another making").err, "of another making");
  EXPECT_EQ(split_streams("[standard output, 99999999999999999999 bytes]\n").out, "");
  EXPECT_EQ(split_streams("[standard output, 5 bytes]\nabc").out, "");
  const std::string much(3 << 20, 'x');
  EXPECT_LT(join_streams(much, much).size(), 1U << 20);
}

}  // namespace
}  // namespace nc::cc

#include "client/cli/warm_report.hpp"

#include <gtest/gtest.h>

#include "client/cli/command_run.hpp"
#include "client/cli/parse.hpp"
#include "client/cli/warm_run.hpp"

namespace nc::cli {
namespace {

client::ActionOutcome outcome(const std::string& key, const std::string& what) {
  client::ActionOutcome o;
  o.key = std::string(64 - key.size(), '0') + key;
  o.outcome = what;
  o.kind = "neff";
  o.label = "model<" + key + ">";
  return o;
}

WarmReport report_of(const std::vector<std::string>& outcomes) {
  WarmReport report;
  report.verb = "warmup";
  report.recording = "run";
  report.status = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i)
    report.outcomes.push_back(outcome(std::to_string(i), outcomes[i]));
  return report;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(WarmReport, CountsWhatBecameOfWhatWasNeeded) {
  const WarmCounts c =
      report_of({"hit", "hit", "built", "waited", "failed", "unfinished"}).counts();
  EXPECT_EQ(c.needed, 6U);
  EXPECT_EQ(c.there, 2U);
  EXPECT_EQ(c.misses(), 4U);
  EXPECT_FALSE(c.whole());
  EXPECT_EQ(counts_text(c),
            "6 needed, 1 built, 2 already there, 1 built by others, 1 failed, 1 left undone");
  EXPECT_TRUE(report_of({"hit", "built", "waited"}).counts().whole());
  EXPECT_FALSE(report_of({"unfinished"}).counts().whole());
}

TEST(WarmReport, WhatWasCompiledWithoutTheCacheIsNotWhole) {
  WarmReport report = report_of({"hit"});
  report.uncached = uncached_of("a.pb\tno daemon\nb.pb\tno_cache\na.pb\tno daemon\ngarbage\n");
  ASSERT_EQ(report.uncached.size(), 2U);
  EXPECT_EQ(report.uncached[0].times, 2U);
  EXPECT_EQ(report.counts().uncached, 2U) << "no_cache was asked for";
  EXPECT_FALSE(report.counts().whole());
  EXPECT_EQ(report.counts().misses(), 2U);
  EXPECT_TRUE(has(warm_text(report, 0), "a.pb  no daemon (2 times)"));
  EXPECT_TRUE(has(warm_text(report, 0), "2 compiled without the cache"));
  EXPECT_TRUE(has(warm_junit(report), "failures=\"1\""));
  report.uncached = uncached_of("b.pb\tno_cache\n");
  EXPECT_TRUE(report.counts().whole());
}

TEST(WarmReport, TextNamesFailuresWithClassAndLog) {
  WarmReport report = report_of({"hit", "failed"});
  report.outcomes[1].failure_class = "deterministic";
  report.outcomes[1].message = "status 70";
  report.outcomes[1].log_line = "ERROR: \x1b[2J no such op";
  const std::string text = warm_text(report, 0);
  EXPECT_TRUE(has(text, "deterministic: status 70")) << text;
  EXPECT_TRUE(has(text, "no such op")) << text;
  EXPECT_FALSE(has(text, "\x1b")) << "a log cannot drive the terminal";
  EXPECT_TRUE(has(text, "2 needed, 0 built, 1 already there, 1 failed")) << text;
}

TEST(WarmReport, AReplayNamesMissesWithWhatDiffers) {
  WarmReport report = report_of({"built", "hit"});
  report.verb = "replay";
  report.outcomes[0].miss.cause = "parts_differ";
  report.outcomes[0].miss.nearest = {
      std::string(64, 'b'), 0, "", {{"flag.target", "trn2", "trn1"}}};
  const std::string text = warm_text(report, 0);
  EXPECT_TRUE(has(text, "parts_differ; nearest bbbbbbbb")) << text;
  EXPECT_TRUE(has(text, "flag.target")) << text;
  EXPECT_TRUE(has(text, "trn1")) << text;
  EXPECT_FALSE(has(text, "model<1>")) << "what was there is not listed: " << text;
}

TEST(WarmReport, JunitEscapesAndCounts) {
  WarmReport report = report_of({"hit", "failed", "built"});
  report.outcomes[1].message = "a < b & \"c\"\n\x01";
  std::string xml = warm_junit(report);
  EXPECT_TRUE(has(xml, R"(tests="3" failures="1")")) << xml;
  EXPECT_TRUE(has(xml, "a &lt; b &amp; &quot;c&quot;&#10;?")) << xml;
  EXPECT_TRUE(has(xml, "model&lt;0&gt;")) << xml;
  report.misses_fail = true;
  report.status = 3;
  xml = warm_junit(report);
  EXPECT_TRUE(has(xml, R"(tests="4" failures="3")")) << xml;
  EXPECT_TRUE(has(xml, "the command ended with status 3")) << xml;
}

TEST(WarmReport, NamesOfRecordings) {
  for (const char* good : {"a", "nightly-2.28_x"}) EXPECT_TRUE(check_recording_name(good).ok());
  for (const char* bad : {"", ".", "..", "a/b", "a b", "\xc3\xa9"})
    EXPECT_FALSE(check_recording_name(bad).ok()) << bad;
  EXPECT_FALSE(check_recording_name(std::string(65, 'a')).ok());
}

TEST(Parse, ACommandBehindTwoDashesIsNotOurs) {
  const auto parsed =
      parse({"warmup", "--recording", "r", "--", "stats", "--format", "json", "--"});
  ASSERT_TRUE(parsed.ok()) << parsed.error().text();
  EXPECT_EQ(parsed->verb, &kWarmupVerb);
  EXPECT_EQ(parsed->values.at("COMMAND"),
            (std::vector<std::string>{"stats", "--format", "json", "--"}));
  EXPECT_EQ(parsed->values.at("recording").back(), "r");
  EXPECT_EQ(format_of(*parsed), Format::kText);
  EXPECT_FALSE(parse({"warmup", "--recordin", "r", "--", "a"}).ok());
}

TEST(RunCommand, StatusSignalAndPath) {
  CommandSpec spec;
  spec.env = {"PATH=/nowhere:/usr/bin:/bin"};
  spec.argv = {"sh", "-c", "exit 7"};
  auto end = run_command(spec, 1000, [] {});
  ASSERT_TRUE(end.ok()) << end.error().text();
  EXPECT_EQ(end->status(), 7);
  spec.argv = {"sh", "-c", "kill -9 $$"};
  end = run_command(spec, 1000, [] {});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->status(), 137);
  spec.argv = {"no-such-program-here"};
  EXPECT_EQ(run_command(spec, 1000, [] {}).error().code, Code::kNotFound);
}

TEST(RunCommand, VariablesAreReplaced) {
  std::vector<std::string> env = {"A=1", "AB=2", "A=3"};
  set_variable(env, "A", "x=y");
  EXPECT_EQ(env, (std::vector<std::string>{"AB=2", "A=x=y"}));
  EXPECT_EQ(variable_of(env, "A"), "x=y");
  EXPECT_EQ(variable_of(env, "C"), "");
}

}  // namespace
}  // namespace nc::cli

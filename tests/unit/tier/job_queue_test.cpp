#include "cache/tier/job_queue.hpp"

#include <gtest/gtest.h>

#include "cache/tier/layout.hpp"
#include "cache/tier/survey.hpp"
#include "tests/unit/tier/tier_box.hpp"

namespace nc::tier {
namespace {

using Added = JobQueue::Added;

// ---- Notes ----

TEST(JobNoteTest, IsReadAsItIsWritten) {
  JobNote note;
  note.state = JobNote::State::kAgain;
  note.attempts = 2;
  note.host = "host-b";
  note.compiler = "neuronx-cc 2.21";
  note.failure_class = "disk_full";
  note.message = "No space left";
  note.log = "line\n\x1b[0mline\n";
  const auto again = JobNote::parse(note.to_text());
  ASSERT_TRUE(again.ok()) << again.error().text();
  EXPECT_EQ(again->state, note.state);
  EXPECT_EQ(again->attempts, 2U);
  EXPECT_EQ(again->host + again->compiler + again->failure_class + again->message + again->log,
            note.host + note.compiler + note.failure_class + note.message + note.log);
}

TEST(JobNoteTest, OfALogTheEndStaysAndTextsAreCutAtACharacter) {
  JobNote note;
  note.log = std::string(40'000, 'x') + "the end";
  note.message = std::string(JobNote::kMaxText - 1, 'm') + "\u00e9";
  const auto read = JobNote::parse(note.to_text()).value();
  EXPECT_EQ(read.log.size(), JobNote::kMaxLog);
  EXPECT_TRUE(read.log.ends_with("the end"));
  EXPECT_EQ(read.message, std::string(JobNote::kMaxText - 1, 'm'));
  note.log = "bad \xff byte";
  EXPECT_EQ(JobNote::parse(note.to_text()).value().log, "bad ? byte");
  note.log = std::string(JobNote::kMaxLog, '\x01');  // six bytes each
  EXPECT_TRUE(JobNote::parse(note.to_text()).value().log.empty());
}

TEST(JobNoteTest, WhatIsNoNoteIsRefused) {
  EXPECT_TRUE(JobNote::parse(R"({"v":2,"state":"again","attempts":1})").is(Code::kUnsupported));
  EXPECT_TRUE(JobNote::parse(std::string(JobNote::kMaxBytes + 1, ' ')).is(Code::kTooLarge));
  for (const char* text :
       {"", "[]", "{}", R"({"v":1})", R"({"v":1,"state":"again"})",
        R"({"v":1,"state":"done","attempts":1})", R"({"v":1,"state":"again","attempts":-1})",
        R"({"v":1,"state":"again","attempts":1001})", R"({"v":1,"state":"again","attempts":"1"})",
        R"({"v":1,"state":"again","attempts":1,"host":7})"}) {
    EXPECT_FALSE(JobNote::parse(text).ok()) << text;
  }
  EXPECT_TRUE(JobNote::parse(R"({"v":1,"state":"failed","attempts":3,"later":[]})").ok());
}

// ---- The queue, seen by two hosts ----

struct JobQueueTest : testing::Test {
  JobQueueTest() {
    near = &a.add(objects, "file:///shared");
    far = &b.add(objects, "file:///shared");
    a.connect();
    b.connect();
    EXPECT_TRUE(a.put(action));
  }
  JobQueue queue(TierBox& box) {
    Link* link = box.chain->link("").value();
    return JobQueue(link->engine(), *link, box.chain->transfer());
  }
  Survey survey() {
    Link* link = a.chain->link("").value();
    return Survey({*link, a.chain->transfer(), *a.store, a.clock, a.random});
  }
  Added add() { return queue(a).add(key, action.manifest.key).value(); }
  std::string seen() {
    std::string out;
    const auto jobs = queue(b).list().value();
    for (const auto& job : jobs) {
      out += job.failed ? "failed " : job.tried ? "tried " : "queued ";
    }
    return out;
  }
  bool begin() { return queue(b).begin(key, "host-b", "cc").value(); }
  std::size_t left() { return objects->list(std::string(kQueue), "", 100).objects.size(); }

  FakeClock server;
  std::shared_ptr<MemoryObjects> objects = std::make_shared<MemoryObjects>(server);
  TierBox a, b;
  MemoryEngine* near = nullptr;
  MemoryEngine* far = nullptr;
  // What a recorded action is to the tier: an entry with inputs. The action's own key is another.
  TestEntry action = make_entry("action", {words(9000, 1), "small"});
  ActionKey key = Sha256::of(as_bytes("key of the action"));
};

TEST_F(JobQueueTest, WhatOneQueuesAnotherTakesAndRemoves) {
  EXPECT_EQ(seen(), "");
  EXPECT_EQ(add(), Added::kQueued);
  EXPECT_EQ(add(), Added::kAlready);
  EXPECT_EQ(seen(), "queued ");
  auto theirs = queue(b);
  const auto job = theirs.job(key, action.manifest.key);
  ASSERT_TRUE(job.ok()) << job.error().text();
  EXPECT_EQ(b.get(action), "miss");
  ASSERT_TRUE(theirs.bring(*job, {}).ok());
  EXPECT_EQ(b.get(action), "hit");
  EXPECT_TRUE(begin());
  EXPECT_EQ(seen(), "tried ");
  EXPECT_EQ(theirs.note(key, false).value().host, "host-b");
  EXPECT_EQ(add(), Added::kAlready);
  EXPECT_EQ(seen(), "tried ");
  ASSERT_TRUE(theirs.remove(key).ok());
  EXPECT_EQ(left(), 0U);
  EXPECT_TRUE(theirs.job(key, action.manifest.key).is(Code::kNotFound));
}

TEST_F(JobQueueTest, BuildersThatDieAreCountedAndThoseThatGiveBackAreNot) {
  add();
  EXPECT_TRUE(begin());
  ASSERT_TRUE(queue(b).given_back(key).ok());
  EXPECT_EQ(seen(), "queued ");
  for (unsigned i = 0; i < JobQueue::kMaxAttempts; ++i) EXPECT_TRUE(begin()) << i;  // and is killed
  EXPECT_FALSE(begin());
  EXPECT_EQ(seen(), "failed ");
  const auto note = queue(b).note(key, true).value();
  EXPECT_EQ(note.failure_class, "killed");
  EXPECT_EQ(note.attempts, 3U);
  // Queued anew it begins from nothing.
  EXPECT_EQ(add(), Added::kQueued);
  EXPECT_EQ(seen(), "queued ");
  EXPECT_TRUE(begin());
  EXPECT_EQ(queue(b).note(key, false).value().attempts, 1U);
}

TEST_F(JobQueueTest, BadLuckIsTriedAgainAndWhatFailsTheSameWayIsNot) {
  add();
  JobNote why;
  why.failure_class = "disk_full";
  why.log = "the log";
  EXPECT_TRUE(begin());
  ASSERT_TRUE(queue(b).failed(key, why, true).ok());
  EXPECT_EQ(seen(), "tried ");
  EXPECT_EQ(queue(b).note(key, false).value().failure_class, "disk_full");
  EXPECT_TRUE(begin());
  ASSERT_TRUE(queue(b).failed(key, why, true).ok());
  EXPECT_TRUE(begin());
  ASSERT_TRUE(queue(b).failed(key, why, true).ok());
  EXPECT_EQ(seen(), "failed ");
  add();
  EXPECT_TRUE(begin());
  why.failure_class = "deterministic";
  ASSERT_TRUE(queue(b).failed(key, why, false).ok());
  EXPECT_EQ(seen(), "failed ");
  const auto note = queue(b).note(key, true).value();
  EXPECT_EQ(note.attempts, 1U);
  EXPECT_EQ(note.failure_class + note.log, "deterministicthe log");
}

TEST_F(JobQueueTest, WhoMayNotSignQueuesNothingAndWhatIsUnsignedIsNotTaken) {
  TierBox stranger;
  stranger.trust.sign = [](Manifest&) { return Error{Code::kDenied, "no key", ""}; };
  stranger.add(objects, "file:///shared");
  stranger.connect();
  ASSERT_TRUE(stranger.put(action));
  EXPECT_TRUE(queue(stranger).add(key, action.manifest.key).is(Code::kDenied));
  EXPECT_EQ(left(), 0U);
  // Written past us, and another's job under a name that is not its own.
  objects->put(queue_name(key.hex()), action.manifest.to_json());
  bool refused = false;
  EXPECT_TRUE(queue(b).job(key, action.manifest.key, &refused).is(Code::kDenied));
  EXPECT_TRUE(refused);
  EXPECT_TRUE(queue(b).job(key, key, &refused).is(Code::kKeyMismatch));
  objects->put(queue_name(key.hex()), "garbage");
  EXPECT_FALSE(queue(b).job(key, action.manifest.key, &refused).ok());
  EXPECT_TRUE(refused);
  // It masks no good one.
  EXPECT_EQ(add(), Added::kQueued);
  EXPECT_TRUE(queue(b).job(key, action.manifest.key).ok());
}

TEST_F(JobQueueTest, NotesThatCannotBeReadCountForNothing) {
  add();
  EXPECT_TRUE(begin());
  objects->put(queue_name(key.hex() + ".tried"), "garbage");
  EXPECT_TRUE(begin());
  EXPECT_EQ(queue(b).note(key, false).value().attempts, 1U);
  objects->put(queue_name("other.note"), "garbage");
  objects->put(queue_name(Sha256::of(as_bytes("none")).hex() + ".failed"), "{}");
  EXPECT_EQ(seen(), "tried ");
}

TEST_F(JobQueueTest, ATierThatFailsSaysSoAndAJobIsWholeOrNotThere) {
  near->script(Call::kStore, {.code = Code::kUnavailable});
  EXPECT_TRUE(queue(a).add(key, action.manifest.key).is(Code::kUnavailable));
  EXPECT_EQ(left(), 0U);
  near->script(Call::kPut, {.kind = Fault::Kind::kLost, .code = Code::kTimeout});
  EXPECT_TRUE(queue(a).add(key, action.manifest.key).is(Code::kTimeout));
  EXPECT_EQ(add(), Added::kAlready);
  far->script(Call::kList, {.code = Code::kDenied});
  EXPECT_TRUE(queue(b).list().is(Code::kDenied));
  far->script(Call::kGet, {.code = Code::kTimeout});
  EXPECT_TRUE(queue(b).begin(key, "host-b", "cc").is(Code::kTimeout));
  far->script(Call::kPut, {.code = Code::kNoSpace});
  EXPECT_TRUE(queue(b).begin(key, "host-b", "cc").is(Code::kNoSpace));
  EXPECT_EQ(seen(), "queued ");
}

TEST_F(JobQueueTest, WhatAJobNeedsIsNotCollectedAndIsVerified) {
  add();
  const Millis grace = 24 * 3'600'000;
  EXPECT_EQ(survey().collect(grace, false).value().unused, 0U);
  a.clock.advance(grace * 2);
  EXPECT_EQ(survey().collect(grace, false).value().removed, 0U);
  EXPECT_EQ(survey().verify("", 10, true, Survey::Repair::kDamaged).value().checked, 3U);
  EXPECT_EQ(seen(), "queued ");
  // One whose input is gone is removed, and then nothing needs its inputs; one that nobody has
  // signed only where that is asked for.
  objects->remove(blob_name(action.manifest.outputs[1].digest, false));
  const auto bad = survey().verify("", 10, true, Survey::Repair::kDamaged).value().bad;
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_NE(bad[0].action.find("queue it again"), std::string::npos);
  EXPECT_EQ(left(), 0U);
  EXPECT_EQ(survey().collect(grace, false).value().marked, 1U);
  objects->put(queue_name(key.hex()), action.manifest.to_json());
  const auto unsigned_job = survey().verify("", 10, false, Survey::Repair::kDamaged).value();
  EXPECT_EQ(unsigned_job.untrusted.size(), 1U);
  EXPECT_EQ(left(), 1U) << "others may trust it";
  survey().verify("", 10, false, Survey::Repair::kUntrusted).value();
  EXPECT_EQ(left(), 0U);
}

}  // namespace
}  // namespace nc::tier

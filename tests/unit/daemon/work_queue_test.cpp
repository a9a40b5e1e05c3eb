#include "daemon/work_queue.hpp"

#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

ActionKey key_of(std::string_view text) {
  return Sha256::of(as_bytes(text));
}

class Queue : public testing::Test {
 protected:
  WorkQueue::Added add(std::string_view name) {
    return queue.add(key_of(name), std::string(name), "cc 1", changes);
  }
  std::string order() {
    std::string out;
    for (const Job& job : queue.next(100)) out += job.label;
    return out;
  }
  Job job(std::string_view name) {
    for (const Job& one : queue.list(std::nullopt, 0, 1000)) {
      if (one.key == key_of(name)) return one;
    }
    ADD_FAILURE() << name << " is not there";
    return {};
  }
  // What a restart would begin with.
  std::map<std::string, std::string> written() {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : changes) {
      if (value) {
        out[key] = *value;
      } else {
        out.erase(key);
      }
    }
    return out;
  }

  FakeClock clock;
  WorkQueue queue{clock};
  WorkQueue::Changes changes;
};

TEST_F(Queue, ActionsAreTakenInOrderAndAreInItOnce) {
  EXPECT_EQ(add("a"), WorkQueue::Added::kQueued);
  EXPECT_EQ(add("b"), WorkQueue::Added::kQueued);
  EXPECT_EQ(add("a"), WorkQueue::Added::kAlready);
  EXPECT_EQ(order(), "ab");
  EXPECT_TRUE(queue.take(key_of("a"), "lease", changes));
  EXPECT_FALSE(queue.take(key_of("a"), "other", changes));
  EXPECT_EQ(add("a"), WorkQueue::Added::kAlready);
  EXPECT_EQ(order(), "b");
  queue.built(key_of("a"), changes);
  EXPECT_EQ(job("a").state, JobState::kBuilt);
  EXPECT_EQ(add("a"), WorkQueue::Added::kQueued) << "it may be wanted again";
  EXPECT_EQ(order(), "ba");
  EXPECT_EQ(queue.counts().queued, 2U);
  EXPECT_EQ(queue.counts().built, 0U);
}

TEST_F(Queue, WhatSomebodyElseBuiltIsDone) {
  add("a");
  queue.built(key_of("a"), changes);
  queue.built(key_of("never queued"), changes);
  EXPECT_EQ(queue.counts().built, 1U);
  EXPECT_EQ(order(), "");
}

TEST_F(Queue, ABuilderThatDiesIsFollowedByAnother) {
  add("a");
  for (unsigned i = 1; i <= WorkQueue::kMaxAttempts; ++i) {
    EXPECT_EQ(job("a").state, JobState::kQueued);
    const std::string lease = "l" + std::to_string(i);
    EXPECT_TRUE(queue.take(key_of("a"), lease, changes));
    queue.lease_ended("another", changes);
    EXPECT_EQ(job("a").state, JobState::kBuilding);
    queue.lease_ended(lease, changes);
  }
  EXPECT_EQ(job("a").state, JobState::kFailed);
  EXPECT_EQ(job("a").failure_class, "killed");
  EXPECT_EQ(add("a"), WorkQueue::Added::kQueued);
  EXPECT_EQ(job("a").attempts, 0U);
}

TEST_F(Queue, WhatIsGivenBackWasNotTried) {
  add("a");
  for (unsigned i = 0; i <= WorkQueue::kMaxAttempts; ++i) {
    const std::string lease = "l" + std::to_string(i);
    EXPECT_TRUE(queue.take(key_of("a"), lease, changes));
    queue.given_back("another", changes);
    EXPECT_EQ(job("a").state, JobState::kBuilding);
    queue.given_back(lease, changes);
    queue.lease_ended(lease, changes);  // follows
    EXPECT_EQ(job("a").state, JobState::kQueued);
    EXPECT_EQ(job("a").attempts, 0U);
  }
}

TEST_F(Queue, AnErrorEndsItAndBadLuckDoesNot) {
  add("a");
  queue.failed(key_of("a"), "out_of_memory", "not ours", true, changes);
  EXPECT_EQ(job("a").message, "") << "another's bad luck";
  queue.take(key_of("a"), "l", changes);
  queue.failed(key_of("a"), "out_of_memory", "killed", true, changes);
  EXPECT_EQ(job("a").state, JobState::kQueued);
  EXPECT_EQ(job("a").message, "killed");
  queue.lease_ended("l", changes);  // follows each failure
  EXPECT_EQ(job("a").attempts, 1U);
  EXPECT_EQ(job("a").message, "killed");
  queue.take(key_of("a"), "m", changes);
  queue.failed(key_of("a"), "deterministic", "syntax", false, changes);
  EXPECT_EQ(job("a").state, JobState::kFailed);
  queue.built(key_of("a"), changes);
  EXPECT_EQ(job("a").state, JobState::kBuilt) << "forced elsewhere";
  EXPECT_EQ(job("a").message, "");
}

TEST_F(Queue, ARestartGoesOn) {
  add("a");
  add("b");
  add("c");
  add("d");
  queue.take(key_of("a"), "dead", changes);
  queue.take(key_of("b"), "lives", changes);
  queue.take(key_of("c"), "l", changes);
  queue.failed(key_of("c"), "deterministic", "syntax", false, changes);
  WorkQueue again(clock);
  for (const auto& [key, text] : written()) {
    auto job = Job::decode(text);
    ASSERT_TRUE(job) << text;
    EXPECT_EQ(job->key.hex(), key);
    const bool lives = job->key == key_of("b");
    again.restore(*job, lives ? std::optional<std::string>("lives") : std::nullopt);
  }
  EXPECT_EQ(again.counts().queued, 2U);
  EXPECT_EQ(again.counts().building, 1U);
  EXPECT_EQ(again.counts().failed, 1U);
  EXPECT_EQ(again.next(1).at(0).key, key_of("a")) << "it keeps its place";
  again.lease_ended("lives", changes);
  EXPECT_EQ(again.counts().queued, 3U);
  EXPECT_EQ(again.add(key_of("e"), "e", "", changes), WorkQueue::Added::kQueued);
  EXPECT_EQ(again.list(std::nullopt, 4, 10).at(0).key, key_of("e")) << "numbers go on";
}

TEST_F(Queue, DamagedRecordsAreRefused) {
  add("a");
  const std::string good = written().begin()->second;
  EXPECT_TRUE(Job::decode(good));
  EXPECT_FALSE(Job::decode("{}"));
  EXPECT_FALSE(Job::decode("x"));
  std::string bad = good;
  bad.replace(bad.find("queued\""), 6, "quequd");
  EXPECT_FALSE(Job::decode(bad));
  bad = good;
  bad.replace(bad.find("\"v\":1"), 5, "\"v\":2");
  EXPECT_FALSE(Job::decode(bad));
}

TEST_F(Queue, TheWaitingAreClearedAndTheEndedForgotten) {
  add("a");
  add("b");
  add("c");
  queue.take(key_of("a"), "l", changes);
  queue.built(key_of("b"), changes);
  EXPECT_EQ(queue.clear(changes), 1U);
  EXPECT_EQ(queue.counts().building, 1U);
  clock.advance(WorkQueue::kKeepMs - 1);
  queue.forget_old(changes);
  EXPECT_EQ(queue.counts().built, 1U);
  clock.advance(1);
  queue.forget_old(changes);
  EXPECT_EQ(queue.counts().built, 0U);
  EXPECT_EQ(written().size(), 1U);
}

TEST_F(Queue, ItIsBounded) {
  for (std::size_t i = 0; i < WorkQueue::kMaxJobs; ++i) {
    ASSERT_EQ(add(std::to_string(i)), WorkQueue::Added::kQueued);
  }
  EXPECT_EQ(add("one more"), WorkQueue::Added::kFull);
  EXPECT_EQ(add("7"), WorkQueue::Added::kAlready);
  queue.built(key_of("9"), changes);
  EXPECT_EQ(add("one more"), WorkQueue::Added::kQueued) << "of those that ended the oldest goes";
  EXPECT_EQ(queue.counts().built, 0U);
}

}  // namespace
}  // namespace nc::daemon

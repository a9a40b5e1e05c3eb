#include "daemon/leases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nc::daemon {
namespace {

using Kind = LeaseTable::Answer::Kind;
using testing::ElementsAre;
using testing::IsEmpty;

ActionKey key_of(std::string_view text) {
  return Sha256::of(as_bytes(text));
}

class Leases : public testing::Test {
 protected:
  struct Client {
    std::vector<Wake> wakes;
  };

  LeaseTable::Ask make_ask(std::uint64_t connection, Client* client = nullptr,
                           Millis wait_ms = 2000, std::string ticket = "",
                           std::string_view key = "k") {
    LeaseTable::Ask ask;
    ask.request.key = key_of(key);
    ask.request.name_space = "ns";
    ask.request.program = "train.py";
    ask.who = {{static_cast<pid_t>(connection), 7}, "host"};
    ask.connection = connection;
    ask.ticket = std::move(ticket);
    ask.wait_ms = wait_ms;
    ask.wake = [client](Wake wake) {
      if (client != nullptr) client->wakes.push_back(std::move(wake));
    };
    return ask;
  }

  void run(Effects effects) {
    for (auto& wake : effects.wakes) wake();
    for (auto& name : effects.abandoned) abandoned.push_back(name);
    for (auto& id : effects.ended) ended.push_back(id);
    takeovers += effects.takeovers.size();
  }

  Lease grant(std::uint64_t connection, std::string_view key = "k") {
    auto answer = table.ask(make_ask(connection, nullptr, 0, "", key));
    EXPECT_EQ(answer.kind, Kind::kGranted);
    return answer.lease;
  }

  void advance(Millis ms) {
    clock.advance(ms);
    run(table.tick());
  }

  FakeClock clock;
  FakeRandom random;
  LeaseTable table{clock, random, {}};
  std::vector<std::string> abandoned;
  std::vector<std::string> ended;
  std::size_t takeovers = 0;
};

TEST_F(Leases, TheFirstThatAsksGetsTheLease) {
  const Lease lease = grant(1);
  EXPECT_TRUE(is_hex(lease.id, 32));
  EXPECT_EQ(lease.fence, 1U);
  EXPECT_EQ(lease.request.key, key_of("k"));
  EXPECT_EQ(table.leases(), 1U);
  EXPECT_EQ(table.find(lease.id)->id, lease.id);
  EXPECT_FALSE(table.find("another"));
}

TEST_F(Leases, DifferentKeysAreIndependent) {
  grant(1, "a");
  const Lease second = grant(1, "b");
  EXPECT_EQ(second.fence, 2U);
  EXPECT_EQ(table.leases(), 2U);
}

TEST_F(Leases, SixtyFourWaitersOneBuild) {
  const Lease lease = grant(1);
  std::vector<Client> clients(64);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(table.ask(make_ask(2 + i, &clients[i])).kind, Kind::kParked);
  }
  EXPECT_EQ(table.list().at(0).waiters, 64U);
  run(table.settled(key_of("k")));
  for (const Client& client : clients) {
    ASSERT_EQ(client.wakes.size(), 1U);
    EXPECT_EQ(client.wakes[0].kind, Wake::Kind::kEnded);
  }
  EXPECT_EQ(table.leases(), 0U);
  EXPECT_EQ(table.tickets(), 0U);
  EXPECT_THAT(ended, ElementsAre(lease.id));
}

TEST_F(Leases, WithoutWaitingTheAnswerIsWhoBuilds) {
  grant(1);
  clock.advance(1500);
  auto answer = table.ask(make_ask(2, nullptr, 0));
  ASSERT_EQ(answer.kind, Kind::kBusy);
  EXPECT_TRUE(is_hex(answer.progress.ticket, 32));
  EXPECT_EQ(answer.progress.lease.builder.process.pid, 1);
  EXPECT_EQ(answer.progress.lease.request.program, "train.py");
  EXPECT_DOUBLE_EQ(answer.progress.elapsed_s, 1.5);
  EXPECT_EQ(answer.progress.waiters, 1U);
}

TEST_F(Leases, AWaitEndsInTimeAndTheTicketKeepsThePlace) {
  const Lease lease = grant(1);
  Client first;
  Client second;
  EXPECT_EQ(table.ask(make_ask(2, &first, 1000)).kind, Kind::kParked);
  EXPECT_EQ(table.ask(make_ask(3, &second, 60'000)).kind, Kind::kParked);
  advance(999);
  EXPECT_THAT(first.wakes, IsEmpty());
  advance(1);
  ASSERT_EQ(first.wakes.size(), 1U);
  ASSERT_EQ(first.wakes[0].kind, Wake::Kind::kStillBusy);
  const std::string ticket = first.wakes[0].progress.ticket;
  EXPECT_EQ(table.ask(make_ask(2, &first, 60'000, ticket)).kind, Kind::kParked);
  EXPECT_EQ(table.tickets(), 2U);
  run(table.end(lease.id, LeaseTable::End::kReleased));
  ASSERT_EQ(first.wakes.size(), 2U);
  EXPECT_EQ(first.wakes[1].kind, Wake::Kind::kGranted);
  EXPECT_THAT(second.wakes, IsEmpty());
}

TEST_F(Leases, TakeOverIsFirstComeFirstServed) {
  Lease lease = grant(1);
  std::vector<Client> clients(5);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    table.ask(make_ask(10 + i, &clients[i], 60'000));
  }
  std::uint64_t fence = lease.fence;
  for (Client& client : clients) {
    run(table.end(lease.id, LeaseTable::End::kDied));
    ASSERT_EQ(client.wakes.size(), 1U);
    ASSERT_EQ(client.wakes[0].kind, Wake::Kind::kGranted);
    lease = client.wakes[0].lease;
    EXPECT_GT(lease.fence, fence);
    fence = lease.fence;
  }
  EXPECT_EQ(takeovers, 5U);
  run(table.end(lease.id, LeaseTable::End::kDied));
  EXPECT_EQ(table.leases(), 0U);
}

TEST_F(Leases, WhenNobodyIsParkedTheNextThatAsksBuilds) {
  const Lease lease = grant(1);
  auto waiter = table.ask(make_ask(2, nullptr, 0));
  run(table.end(lease.id, LeaseTable::End::kReleased));
  EXPECT_EQ(table.leases(), 0U);
  auto answer = table.ask(make_ask(2, nullptr, 0, waiter.progress.ticket));
  EXPECT_EQ(answer.kind, Kind::kGranted);
  EXPECT_EQ(table.tickets(), 0U);
}

TEST_F(Leases, AParkedOneComesBeforeALongerWaitingOneThatIsAway) {
  const Lease lease = grant(1);
  auto away = table.ask(make_ask(2, nullptr, 0));
  Client parked;
  table.ask(make_ask(3, &parked));
  run(table.end(lease.id, LeaseTable::End::kFailed));
  ASSERT_EQ(parked.wakes.size(), 1U);
  EXPECT_EQ(parked.wakes[0].kind, Wake::Kind::kGranted);
  auto again = table.ask(make_ask(2, nullptr, 0, away.progress.ticket));
  EXPECT_EQ(again.kind, Kind::kBusy);
  EXPECT_EQ(again.progress.ticket, away.progress.ticket);
}

TEST_F(Leases, HeartbeatsKeepALeaseAndSilenceEndsIt) {
  const Lease lease = grant(1);
  for (int i = 0; i < 10; ++i) {
    advance(14'999);
    EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, "step"),
              LeaseTable::Beat::kExtended);
  }
  EXPECT_EQ(table.find(lease.id)->progress, "step");
  Client waiter;
  table.ask(make_ask(2, &waiter, 60'000));
  advance(15'000);
  ASSERT_EQ(waiter.wakes.size(), 1U);
  EXPECT_EQ(waiter.wakes[0].kind, Wake::Kind::kGranted);
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, ""), LeaseTable::Beat::kLost);
}

TEST_F(Leases, UploadsKeepALeaseToo) {
  const Lease lease = grant(1);
  advance(14'000);
  table.touch(lease.id);
  table.touch("unknown");
  advance(14'000);
  EXPECT_TRUE(table.find(lease.id));
}

TEST_F(Leases, AJumpOfTheWallClockEndsNothing) {
  const Lease lease = grant(1);
  clock.jump_wall(3'600'000);
  run(table.tick());
  clock.jump_wall(-7'200'000);
  run(table.tick());
  EXPECT_TRUE(table.find(lease.id));
}

TEST_F(Leases, ALateHeartbeatBringsTheLeaseBackWhenNobodyTookIt) {
  const Lease lease = grant(1);
  advance(20'000);
  EXPECT_EQ(table.leases(), 0U);
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, ""), LeaseTable::Beat::kUnknown);
  EXPECT_TRUE(table.adopt(lease));
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, ""), LeaseTable::Beat::kExtended);
  EXPECT_FALSE(table.adopt(lease)) << "it is there already";
}

TEST_F(Leases, AHeartbeatCannotBringBackWhatWasGivenBack) {
  const Lease lease = grant(1);
  run(table.end(lease.id, LeaseTable::End::kReleased));
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, ""), LeaseTable::Beat::kLost);
  EXPECT_FALSE(table.adopt(lease));
}

TEST_F(Leases, AWrongFenceIsNoHeartbeat) {
  const Lease lease = grant(1);
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence + 1, ""), LeaseTable::Beat::kLost);
  EXPECT_EQ(table.heartbeat("other", key_of("k"), lease.fence, ""), LeaseTable::Beat::kLost);
}

TEST_F(Leases, AdoptionLosesAgainstAHolder) {
  const Lease old = grant(1);
  advance(20'000);
  grant(2);
  EXPECT_FALSE(table.adopt(old));
  EXPECT_EQ(table.heartbeat(old.id, key_of("k"), old.fence, ""), LeaseTable::Beat::kLost);
}

TEST_F(Leases, FencesGrowOverAdoptionAndRestart) {
  Lease lease;
  lease.id = std::string(32, 'a');
  lease.fence = 1000;
  lease.request.key = key_of("k");
  EXPECT_TRUE(table.adopt(lease));
  EXPECT_EQ(grant(1, "other").fence, 1001U);
  table.raise_fence(5000);
  table.raise_fence(10);
  EXPECT_EQ(grant(1, "third").fence, 5000U);
}

TEST_F(Leases, OnlyAnotherHoldersLeaseForbidsACommit) {
  const Lease lease = grant(1);
  EXPECT_TRUE(table.may_commit(key_of("k"), lease.id).ok());
  EXPECT_TRUE(table.may_commit(key_of("nobody's"), lease.id).ok());
  advance(20'000);
  EXPECT_TRUE(table.may_commit(key_of("k"), lease.id).ok());
  grant(2);
  EXPECT_TRUE(table.may_commit(key_of("k"), lease.id).is(Code::kLeaseLost));
}

TEST_F(Leases, ACommitThatIsUnderWayKeepsTheLease) {
  const Lease lease = grant(1);
  advance(14'000);
  ASSERT_TRUE(table.may_commit(key_of("k"), lease.id).ok());
  advance(14'000);
  EXPECT_TRUE(table.find(lease.id));
}

TEST_F(Leases, AnUnusedTicketIsAbandoned) {
  grant(1);
  table.ask(make_ask(2, nullptr, 0));
  for (int i = 0; i < 6; ++i) {
    advance(9'999);
    for (const auto& listed : table.list()) table.touch(listed.lease.id);
  }
  EXPECT_THAT(abandoned, IsEmpty());
  advance(6);
  EXPECT_THAT(abandoned, ElementsAre("ns"));
  EXPECT_EQ(table.tickets(), 0U);
  EXPECT_EQ(table.leases(), 1U);
}

TEST_F(Leases, AClosedConnectionAbandonsItsTicketsAndParkedRequests) {
  const Lease lease = grant(1);
  Client parked;
  Client other;
  table.ask(make_ask(2, &parked));
  table.ask(make_ask(2, nullptr, 0, "", "k"));
  table.ask(make_ask(3, &other));
  run(table.connection_closed(2));
  EXPECT_THAT(abandoned, ElementsAre("ns", "ns"));
  ASSERT_EQ(parked.wakes.size(), 1U);
  EXPECT_EQ(parked.wakes[0].kind, Wake::Kind::kGone);
  run(table.end(lease.id, LeaseTable::End::kDied));
  EXPECT_EQ(other.wakes.at(0).kind, Wake::Kind::kGranted);
}

TEST_F(Leases, ALeaseOutlivesTheConnectionItCameOver) {
  const Lease lease = grant(1);
  run(table.connection_closed(1));
  EXPECT_TRUE(table.find(lease.id));
}

TEST_F(Leases, ATicketThatIsGivenUpIsNotAbandonedToo) {
  grant(1);
  auto busy = table.ask(make_ask(2, nullptr, 0));
  run(table.forget_ticket(busy.progress.ticket));
  run(table.forget_ticket(busy.progress.ticket));
  run(table.connection_closed(2));
  EXPECT_THAT(abandoned, IsEmpty());
}

TEST_F(Leases, AParkedRequestIsAnsweredWhenItsTicketIsUsedElsewhere) {
  grant(1);
  Client first;
  Client second;
  auto busy = table.ask(make_ask(2, nullptr, 0));
  table.ask(make_ask(2, &first, 60'000, busy.progress.ticket));
  auto again = table.ask(make_ask(3, &second, 60'000, busy.progress.ticket));
  run(std::move(again.effects));
  ASSERT_EQ(first.wakes.size(), 1U);
  EXPECT_EQ(first.wakes[0].kind, Wake::Kind::kStillBusy);
  run(table.connection_closed(2));
  EXPECT_THAT(abandoned, IsEmpty()) << "the ticket moved to the other connection";
  run(table.settled(key_of("k")));
  EXPECT_EQ(second.wakes.at(0).kind, Wake::Kind::kEnded);
}

TEST_F(Leases, ATicketIsOfOneKey) {
  grant(1, "a");
  auto busy = table.ask(make_ask(2, nullptr, 0, "", "a"));
  auto answer = table.ask(make_ask(2, nullptr, 0, busy.progress.ticket, "b"));
  EXPECT_EQ(answer.kind, Kind::kRefused);
  EXPECT_EQ(answer.error.code, Code::kInvalid);
}

TEST_F(Leases, ATicketFromBeforeARestartIsTaken) {
  grant(1);
  const std::string ticket(32, 'c');
  EXPECT_EQ(table.ask(make_ask(2, nullptr, 0, ticket)).progress.ticket, ticket);
  EXPECT_NE(table.ask(make_ask(3, nullptr, 0, "no ticket")).progress.ticket, "no ticket");
}

TEST_F(Leases, ThereIsABoundOnTickets) {
  LeaseTable small(clock, random, {15'000, 60'000, 2});
  small.ask(make_ask(1));
  EXPECT_EQ(small.ask(make_ask(2, nullptr, 0)).kind, Kind::kBusy);
  EXPECT_EQ(small.ask(make_ask(3, nullptr, 0)).kind, Kind::kBusy);
  auto refused = small.ask(make_ask(4, nullptr, 0));
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error.code, Code::kBusy);
}

TEST_F(Leases, DrainingGrantsNothingAndLetsNobodyWait) {
  const Lease lease = grant(1);
  Client parked;
  table.ask(make_ask(2, &parked));
  run(table.drain());
  ASSERT_EQ(parked.wakes.size(), 1U);
  EXPECT_EQ(parked.wakes[0].kind, Wake::Kind::kStillBusy);
  EXPECT_EQ(table.ask(make_ask(3, nullptr, 5000)).kind, Kind::kBusy);
  auto refused = table.ask(make_ask(4, nullptr, 0, "", "other"));
  EXPECT_EQ(refused.kind, Kind::kRefused);
  EXPECT_EQ(refused.error.code, Code::kDraining);
  EXPECT_EQ(table.heartbeat(lease.id, key_of("k"), lease.fence, ""), LeaseTable::Beat::kExtended);
}

TEST_F(Leases, TheNextDeadlineIsTheNearest) {
  EXPECT_FALSE(table.next_deadline());
  grant(1);
  EXPECT_EQ(table.next_deadline(), 15'000);
  Client parked;
  table.ask(make_ask(2, &parked, 2000));
  EXPECT_EQ(table.next_deadline(), 2000);
}

TEST_F(Leases, WhatIsAttachedLivesAsLongAsTheLease) {
  const Lease lease = grant(1);
  auto hold = std::make_shared<int>(1);
  std::weak_ptr<int> seen = hold;
  table.attach(lease.id, std::move(hold));
  EXPECT_FALSE(seen.expired());
  run(table.end(lease.id, LeaseTable::End::kReleased));
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace nc::daemon

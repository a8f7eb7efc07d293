#include "cell/client/session/table_asker.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cell/base/crc64.h"
#include "cell/client/session/session_test.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr char kUuid[] = "9c0a";

class TableAskerTest : public ConnectionsFixture, public ::testing::Test {
 protected:
  TableAskerTest() {
    cluster_.uuid = kUuid;
    cluster_.servers = {{"server", {{"server", 8}}, ""}};
    cluster_.revision = 1;
    service_.answer = [this](const IncomingCall&, MutableBytes to) {
      Store(to.data(), reply_);
      return sizeof(reply_);
    };
    reply_.cluster = Crc64(kUuid);
    reply_.version = 7;
    reply_.age_ns = 1'000;
  }
  absl::StatusOr<TableAsker::Answer> Ask(TableAsker* asker) {
    return Wait(asker->Ask(&cluster_, 0, loop_.NowNs() + 1'000'000));
  }

  ClusterState cluster_;
  TableVersionReply reply_ = ReplyOf<TableVersionReply>(MessageKind::kTableVersion);
  TableAsker asker_{&loop_, &connections_, &metrics_, 1};
};

TEST_F(TableAskerTest, AnAnswerHoldsAsOfTheQuestionLessItsAge) {
  ASSERT_TRUE(Wait(connections_.Connect(connections_.To({"server", 0}, "server"))).ok());
  const int64_t asked_ns = loop_.NowNs();
  const absl::StatusOr<TableAsker::Answer> answer = Ask(&asker_);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->version, 7u);
  EXPECT_EQ(answer->as_of_ns, asked_ns - 1'000);
  EXPECT_GT(loop_.NowNs(), asked_ns);
  EXPECT_EQ(metrics_.table_questions, 1u);
  EXPECT_EQ(metrics_.calls, 0u);
}

TEST_F(TableAskerTest, WhatIsNoAnswer) {
  reply_.age_ns = UINT64_MAX;
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(&asker_).status()));
  reply_.age_ns = uint64_t{1} << 63;
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(&asker_).status()));
  reply_.age_ns = 0;
  reply_.cluster = Crc64("another");
  EXPECT_TRUE(absl::IsFailedPrecondition(Ask(&asker_).status()));
  reply_.cluster = Crc64(kUuid);
  EXPECT_TRUE(Ask(&asker_).ok());
  reply_.header.kind = MessageKind::kTime;
  EXPECT_TRUE(absl::IsDataLoss(Ask(&asker_).status()));
  cluster_.servers.clear();
  ++cluster_.revision;
  EXPECT_TRUE(absl::IsUnavailable(Ask(&asker_).status()));
}

// A server that is not there, or does not answer, costs one question.
TEST_F(TableAskerTest, WhatFailsIsAskedNoMore) {
  for (int i = 0; i < 3; ++i) cluster_.servers.push_back({fmt::format("other-{}", i), {{"nowhere", 8}}, ""});
  int failed = 0;
  while (!Ask(&asker_).ok()) ++failed;
  EXPECT_LE(failed, 3);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Ask(&asker_).ok());
}

// The other workers still know the table when the one that this client asks has just stopped.
TEST_F(TableAskerTest, AnotherWorkerIsAskedWhenOneDoesNotAnswer) {
  cluster_.servers.push_back({"stopped", {{"stopped", 8}}, ""});
  const std::unique_ptr<SimFabric> stopped = network_.NewEndpoint();
  StoppedService service;
  ASSERT_TRUE(stopped->Listen("stopped", &service).ok());
  for (const char* const name : {"server", "stopped"}) {
    ASSERT_TRUE(Wait(connections_.Connect(connections_.To({name, 0}, name))).ok());
  }
  for (uint64_t seed = 0; seed < 4; ++seed) {
    TableAsker asker(&loop_, &connections_, &metrics_, seed);
    EXPECT_TRUE(Ask(&asker).ok());
    const uint64_t questions = metrics_.table_questions;
    EXPECT_TRUE(Ask(&asker).ok());
    EXPECT_EQ(metrics_.table_questions, questions + 1);
  }
  EXPECT_GT(metrics_.table_questions, 8u);  // Some have asked the stopped one first.
}

TEST_F(TableAskerTest, AllClientsAskTheSameFewWorkers) {
  std::map<std::string, std::unique_ptr<SimFabric>> endpoints;
  std::map<std::string, std::unique_ptr<AnsweringService>> services;
  cluster_.servers.clear();
  std::set<std::string> asked;
  for (int i = 0; i < 50; ++i) {
    const std::string name = fmt::format("server-{}", i);
    endpoints[name] = network_.NewEndpoint();
    services[name] = std::make_unique<AnsweringService>(endpoints[name].get());
    services[name]->answer = [this, name, &asked](const IncomingCall&, MutableBytes to) {
      asked.insert(name);
      Store(to.data(), reply_);
      return sizeof(reply_);
    };
    ASSERT_TRUE(endpoints[name]->Listen(name, services[name].get()).ok());
    cluster_.servers.push_back({name, {{name, 8}}, ""});
  }
  ++cluster_.revision;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TableAsker asker(&loop_, &connections_, &metrics_, seed);
    ASSERT_TRUE(Ask(&asker).ok());
  }
  EXPECT_GE(asked.size(), 2u);
  EXPECT_LE(asked.size(), 4u);
  // A server that leaves is replaced, and the others stay.
  const std::string gone = *asked.begin();
  std::erase_if(cluster_.servers, [&gone](const ClusterState::Server& server) { return server.name == gone; });
  ++cluster_.revision;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    TableAsker asker(&loop_, &connections_, &metrics_, seed);
    ASSERT_TRUE(Ask(&asker).ok());
  }
  EXPECT_LE(asked.size(), 5u);
}

}  // namespace
}  // namespace cell

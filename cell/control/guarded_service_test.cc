#include "cell/control/guarded_service.h"

#include <gtest/gtest.h>

#include <vector>

#include "cell/base/json.h"
#include "cell/io/exec/system_clock.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

class Sink : public AuditSink {
 public:
  absl::Status Append(std::string_view line, bool sync) override {
    if (full) return absl::UnavailableError("cannot write the audit log f: No space left on device");
    lines.push_back(*ParseJson(line));
    synced.push_back(sync);
    return absl::OkStatus();
  }
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    for (const auto& line : lines) events.push_back(line["event"]);
    return events;
  }

  bool full = false;
  std::vector<nlohmann::json> lines;
  std::vector<bool> synced;
};

// Counts what reaches it.
class Behind : public control::Control::Service {
 public:
  explicit Behind(Sink* sink) : sink_(sink) {}
  grpc::Status Status(grpc::ServerContext*, const control::StatusRequest*, control::StatusReply*) override {
    ++reads;
    return grpc::Status::OK;
  }
  grpc::Status DropTable(grpc::ServerContext*, const control::DropTableRequest*, control::DropTableReply*) override {
    ++changes;
    lines_before = sink_->lines.size();
    sink_->full |= fills_disk;
    return result;
  }

  int reads = 0, changes = 0;
  size_t lines_before = 0;
  bool fills_disk = false;
  grpc::Status result;

 private:
  Sink* const sink_;
};

class GuardedServiceTest : public testing::Test {
 protected:
  grpc::Status Drop(const std::string& table) {
    control::DropTableRequest request;
    request.set_table(table);
    control::DropTableReply reply;
    grpc::ServerContext context;
    return service_.DropTable(&context, &request, &reply);
  }
  grpc::Status Look() {
    const control::StatusRequest request;
    control::StatusReply reply;
    grpc::ServerContext context;
    return service_.Status(&context, &request, &reply);
  }

  Sink sink_;
  Behind behind_{&sink_};
  Auditor auditor_{"server-0", &sink_, SystemClock::Get()};
  Caller caller_{Role::kOperator, "uid/1000", "unix"};
  GuardedService service_{&behind_, &auditor_,
                          [this](const grpc::ServerContext&, std::shared_ptr<void>*) { return caller_; },
                          [](const std::string& client, const ControlledWorker::Scope& scope) {
                            return (client == "shop" || client == "bar") && scope.table == "its" && !scope.everything;
                          }};
};

TEST_F(GuardedServiceTest, AChangeIsOnDiskBeforeItIsMade) {
  behind_.result = {grpc::StatusCode::NOT_FOUND, "no table \"t\""};
  EXPECT_EQ(Drop("t").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(behind_.lines_before, 1u);
  ASSERT_EQ(sink_.Events(), (std::vector<std::string>{"begin", "end"}));
  EXPECT_EQ(sink_.synced, (std::vector<bool>{true, true}));
  EXPECT_EQ(sink_.lines[0]["id"], sink_.lines[1]["id"]);
  EXPECT_EQ(sink_.lines[0]["arguments"], "table: \"t\"");
  EXPECT_EQ(sink_.lines[1]["code"], "NOT_FOUND");
  EXPECT_EQ(sink_.lines[1]["message"], "no table \"t\"");
  Drop("u");
  EXPECT_NE(sink_.lines[0]["id"], sink_.lines[2]["id"]);
}

TEST_F(GuardedServiceTest, WhatCannotBeWrittenDownIsNotDone) {
  sink_.full = true;
  const grpc::Status status = Drop("t");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("nothing was changed"), std::string::npos) << status.error_message();
  EXPECT_NE(status.error_message().find("No space left"), std::string::npos) << status.error_message();
  EXPECT_EQ(behind_.changes, 0);
  EXPECT_TRUE(Look().ok());
  EXPECT_EQ(behind_.reads, 1);
}

TEST_F(GuardedServiceTest, AChangeThatWasMadeIsReportedAsMade) {
  behind_.fills_disk = true;
  EXPECT_TRUE(Drop("t").ok());
  EXPECT_EQ(behind_.changes, 1);
}

TEST_F(GuardedServiceTest, ReadsAreNotWrittenDown) {
  EXPECT_TRUE(Look().ok());
  EXPECT_EQ(sink_.Events(), std::vector<std::string>());
}

TEST_F(GuardedServiceTest, OthersReachNothing) {
  for (const std::optional<Role> role :
       {std::optional<Role>(), std::optional(Role::kClient), std::optional(Role::kServer)}) {
    caller_ = {role, "client/shop", "10.0.0.9:1"};
    EXPECT_EQ(Drop("t").error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(Look().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(behind_.changes + behind_.reads, 0);
  EXPECT_EQ(sink_.Events(), std::vector<std::string>(6, "refused"));
  EXPECT_EQ(sink_.lines[0]["rpc"], "DropTable");
  EXPECT_EQ(sink_.lines[0]["who"], "client/shop");
  EXPECT_EQ(sink_.lines[0]["from"], "10.0.0.9:1");
}

TEST_F(GuardedServiceTest, AClientAdministersWhatItHasAGrantFor) {
  caller_ = {Role::kClient, "client/shop", "10.0.0.9:1"};
  EXPECT_TRUE(Drop("its").ok());
  EXPECT_EQ(behind_.changes, 1);
  EXPECT_EQ(sink_.Events(), (std::vector<std::string>{"begin", "end"}));
  EXPECT_EQ(sink_.lines[0]["who"], "client/shop");
  EXPECT_EQ(Drop("another").error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Look().error_code(), grpc::StatusCode::PERMISSION_DENIED);  // It is about everything.
  const auto grant = [this](auto fill) {
    control::ChangeGrantRequest request;
    fill(&request);
    control::ChangeGrantReply reply;
    grpc::ServerContext context;
    return service_.ChangeGrant(&context, &request, &reply).error_code();
  };
  using Code = grpc::StatusCode;  // What is behind does not implement the others.
  EXPECT_EQ(grant([](auto* request) { request->set_table("its"); }), Code::UNIMPLEMENTED);
  EXPECT_EQ(grant([](auto* request) { request->set_prefix("its"); }), Code::PERMISSION_DENIED);
  EXPECT_EQ(grant([](auto* request) {
              request->set_table("its");
              request->set_everything(true);
            }),
            Code::PERMISSION_DENIED);
  control::CreateTableRequest create;
  create.set_table("its");
  control::CreateTableReply created;
  grpc::ServerContext context;
  EXPECT_EQ(service_.CreateTable(&context, &create, &created).error_code(), Code::PERMISSION_DENIED);
  // Other roles have no grants, whatever they are named.
  for (const Role role : {Role::kServer, Role::kOperator}) {
    caller_ = {role, "client/shop", "10.0.0.9:1"};
    EXPECT_EQ(Drop("its").ok(), role == Role::kOperator);
  }
}

TEST_F(GuardedServiceTest, RefusalsDoNotFillTheLog) {
  caller_ = {Role::kClient, "client/shop", "10.0.0.9:1"};
  for (int i = 0; i < 500; ++i) EXPECT_EQ(Look().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_LT(sink_.lines.size(), 200u);  // A burst, and then one a second.
}

// Each of their changes is two lines, even if it changes nothing.
TEST_F(GuardedServiceTest, ChangesOfClientsDoNotFillTheLog) {
  caller_ = {Role::kClient, "client/shop", "10.0.0.9:1"};
  behind_.result = {grpc::StatusCode::INVALID_ARGUMENT, std::string(5000, 'x')};
  int limited = 0;
  for (int i = 0; i < 500; ++i) limited += Drop("its").error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
  EXPECT_GT(limited, 300);
  EXPECT_LT(behind_.changes, 200);
  EXPECT_LT(sink_.lines.size(), 500u);
  EXPECT_LT(sink_.lines[1]["message"].get<std::string>().size(), 300u);
  caller_.name = "client/bar";  // Another one is not held up by that.
  EXPECT_EQ(Drop("its").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  caller_ = {Role::kOperator, "operator/alice", "10.0.0.9:1"};
  for (int i = 0; i < 500; ++i) EXPECT_EQ(Drop("its").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace cell

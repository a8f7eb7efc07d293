#include "cell/control/authorization.h"

#include <gtest/gtest.h>

#include "cell/control/control.pb.h"

namespace cell {
namespace {

TEST(Authorization, ACertificateIsWhoItsOneUriSays) {
  const struct {
    std::vector<std::string> uris;
    Role role;
    std::string name;
  } kCases[] = {
      {{"cell://operator/alice"}, Role::kOperator, "operator/alice"},
      {{"cell://server/server-0"}, Role::kServer, "server/server-0"},
      {{"cell://client/shop"}, Role::kClient, "client/shop"},
      {{"https://example.org/", "cell://operator/alice"}, Role::kOperator, "operator/alice"},
      {{}, Role::kNobody, ""},
      {{"https://example.org/"}, Role::kNobody, ""},
      {{"spiffe://operator/alice"}, Role::kNobody, ""},
      {{"cell://operator/alice", "cell://client/shop"}, Role::kNobody, ""},
      {{"cell://client/shop", "cell://operator/alice"}, Role::kNobody, ""},
      {{"cell://client/", "cell://operator/alice"}, Role::kNobody, ""},
      {{"cell://"}, Role::kNobody, ""},
      {{"cell://operator"}, Role::kNobody, ""},
      {{"cell://operator/"}, Role::kNobody, ""},
      {{"cell://operator/a/b"}, Role::kNobody, ""},
      {{"cell://operator/a b"}, Role::kNobody, ""},
      {{"cell://operator/a\n"}, Role::kNobody, ""},
      {{"cell://Operator/alice"}, Role::kNobody, ""},
      {{"cell://operators/alice"}, Role::kNobody, ""},
      {{"cell:///operator/alice"}, Role::kNobody, ""},
      {{"cell://operator/" + std::string(64, 'x')}, Role::kOperator, "operator/" + std::string(64, 'x')},
      {{"cell://operator/" + std::string(65, 'x')}, Role::kNobody, ""},
  };
  for (const auto& one : kCases) {
    const Caller caller = CallerOfCertificate(one.uris);
    const std::string uris = one.uris.empty() ? "" : one.uris[0];
    EXPECT_EQ(caller.role, one.role) << uris;
    EXPECT_EQ(caller.name, one.name) << uris;
  }
  EXPECT_EQ(CallerOfCertificate({ServerUri("server-0")}).name, "server/server-0");
}

// A request that is added to control.proto needs a line in the table before anyone may make it.
TEST(Authorization, EveryRequestIsInTheTableAndForOperatorsAlone) {
  const auto* const service = control::StatusRequest::descriptor()->file()->FindServiceByName("Control");
  ASSERT_NE(service, nullptr);
  ASSERT_GT(service->method_count(), 0);
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string name = service->method(i)->name();
    const Rpc* const rpc = FindRpc(name);
    ASSERT_NE(rpc, nullptr) << name;
    EXPECT_EQ(rpc->changes, name != "Status" && name != "Regions") << name;
    for (const Role role : {Role::kNobody, Role::kClient, Role::kServer}) {
      EXPECT_FALSE(May({role, "", ""}, rpc)) << name << " for role " << static_cast<int>(role);
    }
    EXPECT_TRUE(May({Role::kOperator, "", ""}, rpc)) << name;
  }
}

TEST(Authorization, NobodyMayMakeAnUnknownRequest) {
  for (const char* const name : {"", "status", "Status2", "Shutdown"}) {
    EXPECT_FALSE(May({Role::kOperator, "operator/alice", ""}, FindRpc(name))) << name;
  }
}

}  // namespace
}  // namespace cell

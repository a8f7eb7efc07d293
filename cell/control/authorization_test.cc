#include "cell/control/authorization.h"

#include <gtest/gtest.h>

#include "cell/control/control.pb.h"

namespace cell {
namespace {

TEST(Authorization, ACertificateIsWhoItsOneUriSays) {
  const struct {
    std::vector<std::string> uris;
    std::optional<Role> role;
    std::string name;
  } kCases[] = {
      {{"cell://operator/alice"}, Role::kOperator, "operator/alice"},
      {{"cell://server/server-0"}, Role::kServer, "server/server-0"},
      {{"cell://client/shop"}, Role::kClient, "client/shop"},
      {{"https://example.org/", "cell://operator/alice"}, Role::kOperator, "operator/alice"},
      {{}, std::nullopt, ""},
      {{"https://example.org/"}, std::nullopt, ""},
      {{"spiffe://operator/alice"}, std::nullopt, ""},
      {{"cell://operator/alice", "cell://client/shop"}, std::nullopt, ""},
      {{"cell://client/shop", "cell://operator/alice"}, std::nullopt, ""},
      {{"cell://client/", "cell://operator/alice"}, std::nullopt, ""},
      {{"cell://"}, std::nullopt, ""},
      {{"cell://operator"}, std::nullopt, ""},
      {{"cell://operator/"}, std::nullopt, ""},
      {{"cell://operator/a/b"}, std::nullopt, ""},
      {{"cell://operator/a b"}, std::nullopt, ""},
      {{"cell://operator/a\n"}, std::nullopt, ""},
      {{"cell://Operator/alice"}, std::nullopt, ""},
      {{"cell://operators/alice"}, std::nullopt, ""},
      {{"cell:///operator/alice"}, std::nullopt, ""},
      {{"cell://operator/" + std::string(64, 'x')}, Role::kOperator, "operator/" + std::string(64, 'x')},
      {{"cell://operator/" + std::string(65, 'x')}, std::nullopt, ""},
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
    for (const std::optional<Role> role :
         {std::optional<Role>(), std::optional(Role::kClient), std::optional(Role::kServer)}) {
      EXPECT_FALSE(May({role, "", ""}, rpc)) << name << " for " << (role.has_value() ? ToString(*role) : "nobody");
    }
    EXPECT_TRUE(May({Role::kOperator, "", ""}, rpc)) << name;
    EXPECT_EQ(rpc->of_admins, name == "DropTable" || name == "SetEviction" || name == "ChangeGrant") << name;
  }
}

TEST(Authorization, NobodyMayMakeAnUnknownRequest) {
  for (const char* const name : {"", "status", "Status2", "Shutdown"}) {
    EXPECT_FALSE(May({Role::kOperator, "operator/alice", ""}, FindRpc(name))) << name;
  }
}

}  // namespace
}  // namespace cell

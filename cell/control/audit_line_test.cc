#include "cell/control/audit_line.h"

#include <gtest/gtest.h>

#include "cell/base/json.h"
#include "cell/base/random.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

AuditEntry Entry() {
  AuditEntry entry;
  entry.time_ns = 1'700'000'000'123'456'789;
  entry.event = "end";
  entry.id = 7;
  entry.caller = {Role::kOperator, "operator/alice", "10.0.0.9:4711"};
  entry.rpc = "DropTable";
  entry.arguments = R"(table: "users")";
  entry.code = "NOT_FOUND";
  entry.message = "there is no table users";
  entry.ms = 1.5;
  return entry;
}

TEST(AuditLine, SaysWhoDidWhatFromWhereAndHowItWent) {
  EXPECT_EQ(AuditLine("server-0", Entry()),
            R"({"time":"2023-11-14T22:13:20.123456Z","server":"server-0","event":"end","id":7,"who":"operator/alice",)"
            R"("from":"10.0.0.9:4711","rpc":"DropTable","arguments":"table: \"users\"","code":"NOT_FOUND",)"
            R"("message":"there is no table users","ms":1.5})"
            "\n");
}

TEST(AuditLine, LeavesOutWhatThereIsNot) {
  AuditEntry entry;
  entry.event = "kept_out";
  entry.caller = {std::nullopt, "uid/65534", "unix"};
  entry.left_out = 3;
  EXPECT_EQ(AuditLine("server-0", entry),
            R"({"time":"1970-01-01T00:00:00.000000Z","server":"server-0","event":"kept_out","who":"uid/65534",)"
            R"("from":"unix","left_out":3})"
            "\n");
}

TEST(AuditLine, IsOneLineOfJsonWhateverItIsGiven) {
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    AuditEntry entry = Entry();
    for (std::string* const text : {&entry.arguments, &entry.message, &entry.caller.name, &entry.rpc, &entry.code}) {
      text->resize(1 + random.Below(40));
      for (char& byte : *text) byte = static_cast<char>(random.Below(256));
    }
    const std::string line = AuditLine("server-0", entry);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    for (const char byte : line) ASSERT_TRUE(byte == '\n' || (byte >= 0x20 && byte < 0x7f)) << line;
    const auto json = ParseJson(line);
    ASSERT_TRUE(json.ok()) << line;
    EXPECT_EQ((*json)["event"], "end");
    EXPECT_EQ((*json)["id"], 7);
  }
}

TEST(AuditLine, CutsWhatIsLong) {
  AuditEntry entry = Entry();
  entry.arguments = std::string(1 << 20, '\xff');
  entry.message = std::string(kAuditTextBytesMax, 'x');
  const std::string line = AuditLine("server-0", entry);
  EXPECT_LT(line.size(), 10 * kAuditTextBytesMax);
  EXPECT_NE(line.find("... (1048576 bytes)"), std::string::npos);
  EXPECT_EQ((*ParseJson(line))["message"], entry.message);
}

TEST(AuditLimit, LetsABurstThroughAndThenOneASecond) {
  constexpr int64_t kSecond = 1'000'000'000;
  AuditLimit limit;
  uint64_t left_out = 9;
  int taken = 0;
  for (int i = 0; i < 1000; ++i) taken += limit.Take(5 * kSecond, &left_out);
  EXPECT_EQ(taken, 100);
  EXPECT_EQ(left_out, 0u);
  EXPECT_FALSE(limit.Take(6 * kSecond - 1, &left_out));
  EXPECT_TRUE(limit.Take(6 * kSecond, &left_out));
  EXPECT_EQ(left_out, 901u);
  EXPECT_FALSE(limit.Take(6 * kSecond, &left_out));
  taken = 0;
  for (int i = 0; i < 1000; ++i) taken += limit.Take(1'000'000 * kSecond, &left_out);
  EXPECT_EQ(taken, 100);
}

}  // namespace
}  // namespace cell

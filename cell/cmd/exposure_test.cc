#include "cell/cmd/exposure.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

TEST(Exposure, NamesAllThatIsOpenAndNothingElse) {
  const std::string zk = "zk://10.0.0.1:2181/cell";
  const struct {
    const char* what;
    Exposure exposure;
    std::vector<std::string> open;  // Parts of the sentences.
  } kCases[] = {
      {"a cluster in a directory, over shm", {}, {}},
      {"control with TLS", {.control = "10.0.0.1:7100", .control_tls = true}, {}},
      {"control without TLS", {.control = "10.0.0.1:7100"}, {"the control plane at 10.0.0.1:7100"}},
      {"control without TLS on loopback", {.control = "127.0.0.1:0"}, {"the control plane at 127.0.0.1:0"}},
      {"tcp with a secret", {.data = {"10.0.0.1:7000"}, .secret = true}, {}},
      {"tcp without a secret", {.data = {"10.0.0.1:7000"}}, {"10.0.0.1:7000 can read and change"}},
      {"tcp with certificates", {.data = {"10.0.0.1:7000"}, .certificate = true}, {}},
      {"verbs with certificates alone",
       {.data = {"10.0.0.1:7000"}, .data_rdma = true, .certificate = true},
       {"10.0.0.1:7000 can read and change"}},
      {"verbs with a secret", {.data = {"10.0.0.1:7000"}, .data_rdma = true, .secret = true}, {}},
      {"tcp on loopback",
       {.data = {"127.0.0.1:7000", "127.1.2.3", "localhost:1", "localhost", "[::1]:7000", "::1"}},
       {}},
      {"hosts that only look like loopback",
       {.data = {"127.example.org:7000", "localhost.example.org:1", "128.0.0.1:1", "[::11]:1", "fe80::1", "0.0.0.0:1"}},
       {"127.example.org:7000", "localhost.example.org:1", "128.0.0.1:1", "[::11]:1", "fe80::1", "0.0.0.0:1"}},
      {"one of two addresses", {.data = {"127.0.0.1:1", "10.0.0.1:2"}}, {"10.0.0.1:2"}},
      {"ZooKeeper with a digest", {.zookeeper = zk, .zookeeper_digest = true}, {}},
      {"ZooKeeper without", {.zookeeper = zk}, {"the ZooKeeper of zk://10.0.0.1:2181/cell"}},
      {"ZooKeeper on loopback",
       {.zookeeper = "zk://127.0.0.1:2181/cell"},
       {"the ZooKeeper of zk://127.0.0.1:2181/cell"}},
      {"all of it",
       {.control = "10.0.0.1:7100", .data = {"10.0.0.1:7000"}, .zookeeper = zk},
       {"the control plane at", "10.0.0.1:7000", "the ZooKeeper of"}},
      {"a secret closes neither of the others",
       {.control = "10.0.0.1:7100", .data = {"10.0.0.1:7000"}, .secret = true, .zookeeper = zk},
       {"the control plane at", "the ZooKeeper of"}},
  };
  for (const auto& one : kCases) {
    const std::vector<Opening> open = OpenToStrangers(one.exposure);
    ASSERT_EQ(open.size(), one.open.size()) << one.what;
    for (size_t i = 0; i < open.size(); ++i) {
      EXPECT_NE(open[i].what.find(one.open[i]), std::string::npos) << one.what << ": " << open[i].what;
      EXPECT_NE(open[i].close.find("give --"), std::string::npos) << one.what;
    }
  }
}

TEST(Exposure, IsRefusedAndWarnedOfInOneLine) {
  const std::vector<Opening> open = OpenToStrangers({.control = "10.0.0.1:7100", .zookeeper = "zk://a:1/b"});
  const std::string refusal = RefusalOf(open);
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
  EXPECT_NE(refusal.find("10.0.0.1:7100"), std::string::npos);
  EXPECT_NE(refusal.find("zk://a:1/b"), std::string::npos);
  EXPECT_NE(refusal.find("--insecure"), std::string::npos);
  EXPECT_NE(refusal.find("--tls-certificate, --tls-key and --tls-authority"), std::string::npos);
  EXPECT_NE(refusal.find("--zookeeper-digest-file"), std::string::npos);
  const std::string warning = WarningOf(open);
  EXPECT_EQ(warning.find('\n'), std::string::npos);
  EXPECT_NE(warning.find("10.0.0.1:7100"), std::string::npos);
  EXPECT_NE(warning.find("zk://a:1/b"), std::string::npos);
}

}  // namespace
}  // namespace cell

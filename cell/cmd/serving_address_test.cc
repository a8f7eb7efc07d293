#include "cell/cmd/serving_address.h"

#include <gtest/gtest.h>

#include "fmt/format.h"

namespace cell {
namespace {

std::string Kinds(const absl::StatusOr<ServingAddress>& chosen) {
  if (!chosen.ok()) return std::string(absl::StatusCodeToString(chosen.status().code()));
  std::string kinds;
  const auto addresses = ParseAddresses(chosen->address);
  for (const FabricAddress& one : *addresses) kinds += fmt::format("{} ", ToString(one.kind));
  return kinds;
}

TEST(ServingAddress, AutoTakesWhatItCan) {
  EXPECT_EQ(Kinds(ChooseServingAddress({"auto", "", "/run/s"}, 0)), "shm ");
  EXPECT_EQ(Kinds(ChooseServingAddress({"auto", "127.0.0.1", "/run/s"}, 0)), "tcp shm ");
  EXPECT_EQ(Kinds(ChooseServingAddress({"shm", "127.0.0.1", "/run/s"}, 0)), "shm ");
  EXPECT_EQ(Kinds(ChooseServingAddress({"tcp", "127.0.0.1", "/run/s"}, 0)), "tcp ");
  EXPECT_EQ(ChooseServingAddress({"shm", "", "/run/s"}, 0)->address, "shm://" + ThisMachine() + "/run/s");
}

TEST(ServingAddress, SaysWhatIsMissing) {
  EXPECT_EQ(Kinds(ChooseServingAddress({"tcp", "", "/run/s"}, 0)), "INVALID_ARGUMENT");
  EXPECT_EQ(Kinds(ChooseServingAddress({"pigeon", "", "/run/s"}, 0)), "INVALID_ARGUMENT");
  EXPECT_EQ(Kinds(ChooseServingAddress({"tcp", "0.0.0.0:7000", "/run/s"}, 0)), "INVALID_ARGUMENT");
  EXPECT_EQ(Kinds(ChooseServingAddress({"tcp", "127.0.0.1:65535", "/run/s"}, 1)), "INVALID_ARGUMENT");
  EXPECT_NE(ChooseServingAddress({"auto", "", "/run/s"}, 0)->why.find("without --listen"), std::string::npos);
}

TEST(ServingAddress, WorkersTakePortsOneAfterTheOther) {
  EXPECT_EQ(ChooseServingAddress({"tcp", "10.0.0.1:7000", "/run/s"}, 2)->address, "tcp://10.0.0.1:7002");
  EXPECT_EQ(ChooseServingAddress({"tcp", "[fe80::1]:7000", "/run/s"}, 1)->address, "tcp://[fe80::1]:7001");
  const std::string free = ChooseServingAddress({"tcp", "127.0.0.1:0", "/run/s"}, 0)->address;
  EXPECT_NE(free, "tcp://127.0.0.1:0");
  EXPECT_EQ(free.rfind("tcp://127.0.0.1:", 0), 0u);
}

TEST(ServingAddress, OfWhatTheClusterLists) {
  const std::string listed = "tcp://10.0.0.1:7,shm:///run/s";
  EXPECT_EQ(ChooseOfListed("auto", listed)->address, listed);
  EXPECT_EQ(ChooseOfListed("tcp", listed)->address, "tcp://10.0.0.1:7");
  EXPECT_EQ(Kinds(ChooseOfListed("verbs", listed)), "INVALID_ARGUMENT");
}

}  // namespace
}  // namespace cell

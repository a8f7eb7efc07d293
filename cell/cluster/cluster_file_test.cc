#include "cell/cluster/cluster_file.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

constexpr char kGood[] = R"({"format": 1, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 4096,
  "servers": [{"name": "server-0", "workers": [{"socket": "a.sock", "regions": [2]}, {"socket": "b.sock", "regions": [1, 3]}]}]})";

std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  return text.replace(text.find(from), from.size(), to);
}

TEST(ClusterFile, SaysWhereTheRootIsAndWhoOwnsIt) {
  const auto cluster = ClusterFile::Parse(kGood, "/d");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->tree_root(), Pointer(1, kRegionHeaderBytes));
  EXPECT_EQ(cluster->OwnerOf(1)->socket, "/d/b.sock");
  EXPECT_EQ(cluster->OwnerOf(2)->socket, "/d/a.sock");
  EXPECT_EQ(cluster->OwnerOf(9), nullptr);
  EXPECT_NE(cluster->FindServer("server-0"), nullptr);
}

TEST(ClusterFile, RefusesWhatItCannotTrust) {
  const auto code = [](const std::string& text) { return ClusterFile::Parse(text, "/d").status().code(); };
  EXPECT_EQ(code(""), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code("[1]"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(std::string(kGood).substr(0, 100)), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("\"format\": 1", "\"format\": 2")), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code(With("1024", "\"many\"")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("1024", "1000")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("[1, 3]", "[2]")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(With("[1, 3]", "[0]")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ClusterFile::Read("/nowhere").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cell

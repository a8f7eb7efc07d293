#include "cell/cmd/zookeeper_digest.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/status/statusor.h"
#include "cell/cluster/zookeeper/digest_file.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr char kEnvironment[] = "CELL_ZOOKEEPER_DIGEST";

}  // namespace

absl::Status CheckMayChange(const std::string& digest) {
  if (!IsReader(digest)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "the ZooKeeper credentials of {} are those for clients, which only read (cellctl secret reader): give "
      "the file that they were made from",
      digest.substr(0, digest.find(':'))));
}

void AddZooKeeperDigest(CLI::App* app, std::string* digest) {
  const auto given_by = std::make_shared<std::string>();  // Which of the two, so that both are not taken for one.
  const auto take = [digest, given_by](const char* flag, std::string value) {
    if (!given_by->empty() && *given_by != flag) {
      throw CLI::ValidationError(
          "--zookeeper-digest and --zookeeper-digest-file (or CELL_ZOOKEEPER_DIGEST and "
          "CELL_ZOOKEEPER_DIGEST_FILE)",
          "give only one of them");
    }
    *given_by = flag;
    *digest = std::move(value);
  };
  app->add_option_function<std::string>(
         "--zookeeper-digest-file",
         [take](const std::string& path) {
           if (path.empty()) return;  // The environment variable is set, and empty: no file was given.
           absl::StatusOr<std::string> read = ReadZooKeeperDigest(path);
           if (!read.ok()) {
             throw CLI::ValidationError("--zookeeper-digest-file", std::string(read.status().message()));
           }
           take("--zookeeper-digest-file", *std::move(read));
         },
         "File with ZooKeeper credentials, one line USER:PASSWORD, not readable by others; only clients and servers "
         "with "
         "them can use the cluster's znodes")
      ->envname("CELL_ZOOKEEPER_DIGEST_FILE");
  app->add_option_function<std::string>(
         "--zookeeper-digest",
         [take](const std::string& value) {
           if (value.empty()) return;
           const char* const environment = std::getenv(kEnvironment);
           if (environment == nullptr || value != environment) {
             fmt::print(stderr,
                        "warning: every user of this machine can read --zookeeper-digest: use --zookeeper-digest-file "
                        "or the variable {}\n",
                        kEnvironment);
           }
           take("--zookeeper-digest", value);
         },
         "Deprecated on a command line, which every user of the machine can read: ZooKeeper credentials, USER:PASSWORD")
      ->envname(kEnvironment);
}

}  // namespace cell

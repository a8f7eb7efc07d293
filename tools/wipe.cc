// wipe deletes a cluster that has ended, with all of its keys.

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/base/status_macros.h"
#include "cell/cluster/open/open_membership.h"
#include "cell/cmd/zookeeper_digest.h"
#include "cell/io/exec/invocation.h"
#include "cell/log/place/log_place.h"
#include "fmt/format.h"
#include "tools/cluster_remains.h"

namespace cell {
namespace {

constexpr int kDone = 0, kAbsent = 1, kError = 2;

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  fmt::print(stderr, "wipe: {}\n", std::string(status.message()));
  return absl::IsNotFound(status) ? kAbsent : kError;
}

// Confirms with the cluster's name, typed here or given by --confirm.
bool Confirmed(const std::string& name, std::string typed) {
  if (typed.empty() && ::isatty(STDIN_FILENO) != 0) {
    fmt::print("Type the cluster's name, {}, to delete all of it: ", name);
    std::fflush(stdout);
    std::getline(std::cin, typed);
  }
  return typed == name;
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  EnterCallersDirectory();
  std::string dir, cluster, digest, log_dir, log_store, confirm;
  bool dry_run = false, keep_logs = false;
  CLI::App app{
      "Delete a cluster whose servers have all ended: its region table, its logs, and so its keys. Lists what will be "
      "deleted, and asks for the cluster's name first.\nExit status: 0 deleted, 1 no such cluster, 2 refused or "
      "failed."};
  CLI::Option* const in_dir = app.add_option("--dir", dir, "Directory of the cluster, as //tools:up created it");
  app.add_option("--cluster", cluster, "Cluster whose membership is in ZooKeeper: zk://HOST:PORT[,HOST:PORT...]/NAME")
      ->excludes(in_dir);
  AddZooKeeperDigest(&app, &digest);
  CLI::Option* const in_store =
      app.add_option("--log-store", log_store,
                     "Place of the cluster's logs, as cell_server's: dir:PATH, rados:POOL, rados:POOL@CEPH.CONF. By "
                     "default what up has "
                     "noted in DIR, or dir:DIR/log; with --cluster there is no default, and the logs are kept");
  CLI::Option* const in_log_dir =
      app.add_option("--log-dir", log_dir, "The same as --log-store dir:PATH")->excludes(in_store);
  app.add_flag("--keep-logs", keep_logs,
               "Delete the rest, and keep the logs: for example if their place is lost. No cluster can use them then")
      ->excludes(in_store)
      ->excludes(in_log_dir);
  app.add_option("--confirm", confirm, "Name of the cluster, for scripts; wipe then does not ask");
  app.add_flag("--dry-run", dry_run, "List what would be deleted, and exit");
  try {
    app.parse(argc, argv);
    if (dir.empty() == cluster.empty()) throw CLI::RequiredError("One of --dir and --cluster");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kError;
  }
  if (const absl::Status status = CheckMayChange(digest); !status.ok()) return Fail(status);
  std::optional<LogPlace> logs;
  if (!log_dir.empty()) logs = LogPlace::Directory(log_dir);
  if (!log_store.empty()) {
    const absl::StatusOr<LogPlace> place = LogPlace::Parse(log_store);
    if (!place.ok()) return Fail(place.status());
    logs = *place;
  }
  absl::StatusOr<ClusterRemains> remains = dir.empty() ? ClusterRemains::InZooKeeper(cluster, digest, logs)
                                                       : ClusterRemains::InDirectory(dir, digest, logs, keep_logs);
  if (!remains.ok()) return Fail(remains.status());
  fmt::print("Cluster {}{}:\n", remains->name(), remains->uuid().empty() ? "" : " (" + remains->uuid() + ")");
  for (const std::string& line : remains->listed()) fmt::print("  {}\n", line);
  if (dry_run) return kDone;
  if (!Confirmed(remains->name(), confirm)) {
    return Fail(absl::FailedPreconditionError(
        fmt::format("nothing was deleted: the cluster's name is {} (--confirm)", remains->name())));
  }
  if (const absl::Status status = remains->Delete(); !status.ok()) return Fail(status);
  fmt::print("cluster {} was deleted\n", remains->name());
  return kDone;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

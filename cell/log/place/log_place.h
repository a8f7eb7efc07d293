// Where the logs of a cluster are: in a directory, or in a pool of Ceph RADOS.
//
//   dir:PATH             a directory, on a local disk or on a file system that all servers share
//   (directory_log_store.h) rados:POOL           a pool of the Ceph cluster of CEPH_CONF or /etc/ceph/ceph.conf
//   (object_log_store.h) rados:POOL@PATH      a pool of the Ceph cluster whose ceph.conf is PATH rados:...?user=NAME as
//   Ceph's user client.NAME instead of client.admin
//
// A place belongs to one cluster, which is named there by its UUID: two clusters that wrote to one place would read
// each other's logs, because their regions have the same numbers. In a directory the file `cluster` has the UUID
// (log_directory.h), and in a pool the object `cluster`.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/log/log_store.h"

namespace cell {

struct LogPlace {
  std::string directory = {};  // Empty: a pool.
  std::string pool = {};
  std::string ceph_conf = {};  // Empty: the usual places.
  std::string ceph_user = {};  // Without "client.". Empty: admin.

  // Returns InvalidArgument if the text is none of the above.
  static absl::StatusOr<LogPlace> Parse(std::string_view text);
  static LogPlace Directory(std::string path) { return {std::move(path), {}, {}, {}}; }

  bool in_rados() const { return directory.empty(); }
  std::string ToText() const;
};

// Opens the logs there, and claims the place for the cluster `uuid` if it has no logs. Several servers may do it at the
// same time. Blocks, for at most some ten seconds if a Ceph cluster does not answer. Returns FailedPrecondition if the
// logs there belong to another cluster, or if another release has written them; and the errors of the store.
absl::StatusOr<std::shared_ptr<LogStore>> OpenLogs(const LogPlace& place, const std::string& uuid);

// Opens the logs there to look at them, whichever cluster's they are.
absl::StatusOr<std::shared_ptr<LogStore>> ViewLogs(const LogPlace& place);

// Returns OK if the logs there are those of the cluster `uuid`, or if there are none.
absl::Status CheckLogs(const LogPlace& place, const std::string& uuid);

// Removes all logs of the cluster `uuid` there, and its claim. Returns the errors of CheckLogs.
absl::Status RemoveLogs(const LogPlace& place, const std::string& uuid);

}  // namespace cell

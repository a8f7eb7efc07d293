// EmbeddedMembership keeps the membership of a cluster on one machine in a directory.
//
//   cluster.json   written by //tools:up before the servers start: the constants that all must agree on. It is replaced
//                  as a whole when the cluster gets more servers; the rest of it stays
//     {"format": 2, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 268435456,
//      "servers": [{"name": "server-0", "workers": [{"socket": "server-0.0.sock", "regions_max": 16}]}]}
//     A worker has a socket, or addresses "tcp": "HOST:PORT", "verbs": "HOST:PORT", or several of them.
//     and "durability": "none" (default), "async" or "sync", and then the regions' logs are in DIR/log
//     and "uuid", which tells this cluster from any other with the same name (cell/log/log_directory.h)
//   NAME.lock      locked by server NAME while it runs, so that all others notice its end
//   NAME.control   address of a server's control plane
//   regions.json   the region table; replaced as a whole (rename) by the holder of the lock on regions.lock
//
// Refresh works synchronously: it reads a small file. Change works in a thread of its own, because another process may
// hold the lock for long, when it is stopped or its disk is slow. This process continues to serve meanwhile. All errors
// except the change's own error are reported as Unavailable.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/cluster/membership.h"
#include "cell/cluster/wake_function.h"
#include "cell/io/exec/system_clock.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/net/fd.h"

namespace cell {

class EmbeddedMembership : public Membership {
 public:
  static constexpr uint32_t kFormat = 2;
  struct Options {
    std::chrono::milliseconds lock_wait{5000};  // For the region table's lock, until a change is Unavailable.
    const Clock* clock = SystemClock::Get();
    // For all files of the directory. Locks do not go through it (docs/decisions/locks-beside-the-file-seam.md).
    std::shared_ptr<Files> files = std::make_shared<PosixFiles>(/*reserve=*/0);
  };

  // Opens the cluster in `directory`. Returns NotFound if there is no cluster, FailedPrecondition if another release
  // made it, and InvalidArgument if it is damaged or its values are invalid. Every message says what to do.
  static absl::StatusOr<std::unique_ptr<EmbeddedMembership>> Open(const std::string& directory, Options options);
  static absl::StatusOr<std::unique_ptr<EmbeddedMembership>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  ~EmbeddedMembership() override;
  // Parses the content of cluster.json.
  static absl::StatusOr<ClusterState> ParseConfig(const std::string& json, const std::string& directory);

  const ClusterState& state() const override { return state_; }
  void Refresh(Done done) override;
  void Change(TableChange change, Done done) override;
  size_t Poll() override;
  bool pending() const override { return pending_ > 0; }
  bool SetWake(std::function<void()> wake) override {
    wake_owner_.Set(std::move(wake));
    return true;
  }
  bool IsGone(const WorkerId& worker) const override;
  // Returns the path of the file that server NAME locks.
  static std::string LockPath(const std::string& directory, const std::string& server) {
    return directory + "/" + server + ".lock";
  }

 private:
  struct Told {
    Done done;
    absl::Status status;
    std::optional<RegionTable> table;  // Nullopt: it was not read.
  };

  struct Job {
    TableChange change;
    Done done;
  };

  EmbeddedMembership(std::string directory, Options options, ClusterState state)
      : directory_(std::move(directory)), options_(std::move(options)), state_(std::move(state)) {}

  // Reads cluster.json into servers_. Returns Unavailable if the cluster is gone or was replaced by another one.
  absl::Status ReadServers();
  void ReadControls();
  absl::StatusOr<RegionTable> ReadTable();
  // Returns the text of regions.json, or "" if no server has started yet. Returns Unavailable if it cannot be read or
  // is gone.
  absl::StatusOr<std::string> ReadText();
  absl::StatusOr<RegionTable> ParseText(const std::string& text) const;
  // Takes the table's lock, which is held until the descriptor is closed. Returns Unavailable if others hold it for too
  // long.
  absl::StatusOr<Fd> Lock();
  // Makes changes, and sets the result of each in *results. Returns the table afterwards.
  absl::StatusOr<RegionTable> ChangeTable(absl::Span<const TableChange* const> changes,
                                          std::vector<absl::Status>* results);
  absl::Status WriteTable(const std::string& text);
  void Tell(Done done, absl::Status status, std::optional<RegionTable> table);
  void Run();

  const std::string directory_;
  const Options options_;
  // Only the owner's thread uses the members from here on.
  ClusterState state_;
  std::string config_text_;                    // Text of cluster.json as last read.
  std::vector<ClusterState::Server> servers_;  // The servers that it lists.
  uint64_t servers_version_ = 0;               // Counts the versions of servers_.
  uint64_t servers_seen_ = 0;                  // The version that state_ has.
  std::map<std::string, FileStamp> controls_;  // The files of control planes, as last read.
  std::string table_text_;                     // Text of regions.json as last read.
  RegionTable table_;                          // The table in that text.
  size_t pending_ = 0;

  WakeFunction wake_owner_;
  std::atomic<bool> seen_table_ = false;  // A regions.json existed.
  std::thread thread_;                    // Makes changes; started with the first one.
  std::mutex mutex_;                      // Guards the members below.
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::vector<Told> told_;
  bool stopping_ = false;
};

}  // namespace cell

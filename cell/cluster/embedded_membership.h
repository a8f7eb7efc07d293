// The embedded membership: a cluster on one machine is a directory.
//
//   cluster.json   written by //tools:up, before the servers start: what all must agree on. It is replaced as a whole when
//                  the cluster gets more servers; the rest of it stays
//     {"format": 2, "node_bytes": 1024, "meganode_bytes": 67108864, "extents_bytes": 268435456,
//      "servers": [{"name": "server-0", "workers": [{"socket": "server-0.0.sock", "regions_max": 16}]}]}
//     A worker has a socket, or addresses "tcp": "HOST:PORT", "verbs": "HOST:PORT", or several of them.
//     and "durability": "none" (default), "async" or "sync", and then the regions' logs are in DIR/log
//     and "uuid", which tells this cluster from any other that is called the same (cell/log/log_directory.h)
//   NAME.lock      locked by server NAME as long as it runs: so that it is gone, all others know
//   NAME.control   where a server's control plane listens
//   regions.json   the region table; replaced as a whole (rename) by who holds the lock on regions.lock
//
// Refresh does its work at once: it reads a small file. Change works in a thread of its own: another process may hold the
// lock for long, when it is stopped or its disk is slow, and then this one goes on serving. What it meets besides the
// change's own error is Unavailable.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"
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
    // Where the region table is written.
    std::shared_ptr<Files> files = std::make_shared<PosixFiles>(/*reserve=*/0);
  };

  // Of `directory`. NotFound: no cluster there. FailedPrecondition: another release's. InvalidArgument: damaged, or its
  // values make no sense. Every message says what to do.
  static absl::StatusOr<std::unique_ptr<EmbeddedMembership>> Open(const std::string& directory, Options options);
  static absl::StatusOr<std::unique_ptr<EmbeddedMembership>> Open(const std::string& directory) {
    return Open(directory, Options());
  }
  ~EmbeddedMembership() override;
  // cluster.json's content.
  static absl::StatusOr<ClusterState> ParseConfig(const std::string& json, const std::string& directory);

  const ClusterState& state() const override { return state_; }
  void Refresh(Done done) override;
  void Change(TableChange change, Done done) override;
  size_t Poll() override;
  bool pending() const override { return pending_ > 0; }
  bool IsGone(const WorkerId& worker) const override;
  // What server NAME locks.
  static std::string LockPath(const std::string& directory, const std::string& server) {
    return directory + "/" + server + ".lock";
  }

 private:
  struct Told {
    Done done;
    absl::Status status;
    RegionTable table;  // If it is ok.
  };

  struct Job {
    TableChange change;
    Done done;
  };

  EmbeddedMembership(std::string directory, Options options, ClusterState state)
      : directory_(std::move(directory)), options_(std::move(options)), state_(std::move(state)) {}

  // What is in cluster.json now, into servers_. Unavailable: the cluster is gone, or another one is there.
  absl::Status ReadServers();
  void ReadControls();
  absl::StatusOr<RegionTable> ReadTable();
  // regions.json's text; empty, if no server has started yet. Unavailable: it cannot be read, or is gone.
  absl::StatusOr<std::string> ReadText();
  absl::StatusOr<RegionTable> ParseText(const std::string& text) const;
  // Until it is closed. Unavailable: others have it locked for too long.
  absl::StatusOr<Fd> Lock();
  absl::StatusOr<RegionTable> ChangeTable(const TableChange& change);
  absl::Status WriteTable(const std::string& text);
  void Tell(Done done, absl::StatusOr<RegionTable> table);
  void Run();

  const std::string directory_;
  const Options options_;
  // The owner's thread's.
  ClusterState state_;
  std::string config_text_;                    // Of cluster.json, as it was read last...
  std::vector<ClusterState::Server> servers_;  // ...with the servers that it lists...
  uint64_t servers_version_ = 0;               // ...which of them this is...
  uint64_t servers_seen_ = 0;                  // ...and which state_ has.
  std::map<std::string, std::tuple<ino_t, int64_t, int64_t>> controls_;  // Files of control planes: inode, and when made.
  std::string table_text_;  // What was read last...
  RegionTable table_;       // ...and what it says.
  size_t pending_ = 0;

  std::atomic<bool> seen_table_ = false;  // There was a regions.json.
  std::thread thread_;                    // Makes changes; begun with the first.
  std::mutex mutex_;                      // Held for what follows.
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::vector<Told> told_;
  bool stopping_ = false;
};

}  // namespace cell

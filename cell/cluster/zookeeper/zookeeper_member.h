// ZooKeeperMember is one member of a cluster in ZooKeeper: a connection, the sessions that it has one after the other,
// and a thread that makes all calls. It reads the state of the cluster whenever that changes, makes changes, and renews
// the lease of a worker.
//
// A worker has a member of its own. All clients of a cluster in one process share one, so that any number of them takes
// one connection, and reads what has changed once. Clients learn from workers what has changed, as long as these
// answer. So a member of clients disconnects when it was not asked for some seconds, and connects again when it is.
//
// Thread-safety: any thread may use it, once Open or Join has returned. Delete is called instead of all others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cell/base/repeats.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/membership.h"
#include "cell/cluster/zookeeper/session_lease.h"
#include "cell/cluster/zookeeper/told_states.h"
#include "cell/cluster/zookeeper/zookeeper_connection.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/cluster/zookeeper/zookeeper_options.h"
#include "cell/cluster/zookeeper/zookeeper_table.h"

namespace cell {

class ZooKeeperMember {
 public:
  using Config = ZooKeeperMembership::Config;
  using Done = Membership::Done;
  using TableChange = Membership::TableChange;

  explicit ZooKeeperMember(ZooKeeperOptions options);
  ~ZooKeeperMember();

  // Return like the functions of ZooKeeperMembership with these names.
  absl::Status Open();
  absl::Status Join(Config wanted, const WorkerId& self, const ClusterState::Worker& worker,
                    const std::string& control);
  absl::Status Delete(const std::string& uuid);

  // From now on tells a membership each new state, until Remove.
  void Add(std::shared_ptr<ToldStates> to);
  void Remove(const std::shared_ptr<ToldStates>& to);
  // Read and change the state like the functions of Membership with these names. The answer is told to `to`, with all
  // that was seen until then.
  void Refresh(std::shared_ptr<ToldStates> to, Done done);
  void Change(std::shared_ptr<ToldStates> to, TableChange change, Done done);
  // Refreshes, and returns FailedPrecondition if the cluster is not the one any more that this member has opened.
  void CheckCluster(std::shared_ptr<ToldStates> to, Done done);
  // Tells the other memberships what one has learned from a worker.
  void Learn(const std::shared_ptr<ToldStates>& from, const std::shared_ptr<const ClusterState>& state);

  bool is_worker() const { return !self_.empty(); }
  int64_t lease_until_ns() const { return lease_.until_ns(); }
  uint64_t session() const { return session_.load(std::memory_order_acquire); }

 private:
  struct Job {
    std::shared_ptr<ToldStates> to;
    Done done;
    TableChange change = nullptr;  // Null: a refresh.
    bool check = false;            // Also checks that the cluster is the one that this member has opened.
  };

  void Ask(Job job);
  void OnChange();
  // Creates our ephemeral znode. One of an earlier session disappears when that session expires.
  absl::Status Announce();

  // Makes a request that ZooKeeper's leader answers: a change, or a sync. It renews the lease if our znode exists.
  int Confirmed(const std::function<int()>& call) {
    return announced_ ? lease_.Renew(connection_.session_ns(), call, ZooKeeperConnection::Answered) : call();
  }
  int ConfirmedSync(const std::string& path) {
    return Confirmed([&] { return connection_.Sync(path); });
  }
  // Renews the lease between other requests, of which there may be many: whoever may change znodes can keep this thread
  // reading.
  void RenewIfDue();
  void Renew();

  // Reads into read_ what has changed. Watches report the next change.
  absl::Status Read();
  // Reads the state with all changes that were made before the call. Otherwise a following ZooKeeper server may lag
  // behind.
  absl::Status ReadNewest();
  // Returns whether read_ is what ZooKeeper has. Takes two small requests, however large the cluster is.
  bool IsCurrent();
  absl::Status ReadConfig();
  // Returns the constants of the cluster that has this name now.
  absl::StatusOr<Config> ConfigOf();
  absl::Status ReadTable();
  absl::Status ReadWorkers();
  // Returns the workers whose znodes are to be read: if there are too many, those that are known or own regions, so
  // that whoever adds others does not displace them.
  std::vector<WorkerId> WorkersAmong(const std::vector<std::string>& children);
  // Parses a worker's znode. An invalid text still belongs to a worker that is alive and serves. In that case the
  // former values stay, or the worker has an unusable address and gets no regions.
  WorkerText WorkerOf(const WorkerId& id, const std::string& text);
  // Checks the identity: the cluster may have been deleted meanwhile, and another may have its name.
  absl::Status StillTheCluster();

  // Makes changes, and sets the result of each. Returns an error that is not a change's own: then the outcome of all is
  // unknown.
  absl::Status ChangeTable(absl::Span<const TableChange* const> changes, absl::Span<absl::Status> results);
  // Makes changes that there is no room for together.
  absl::Status ChangeInHalves(absl::Span<const TableChange* const> changes, absl::Span<absl::Status> results,
                              const absl::Status& why);

  void Run();
  // Does all of `jobs`, and answers them.
  void Do(std::vector<Job> jobs);
  // Begins a new session after the last one has expired or was ended, and creates our znode again.
  void Rejoin();
  // Ends the session of a client's member that was not asked for some time.
  void DisconnectIfIdle();
  // Tells the state, with an answer or without one.
  void Tell(ToldStates* to, Done done, absl::Status status);
  void TellAll();
  std::vector<std::shared_ptr<ToldStates>> AllTold();
  // Limits the warnings of a kind, because the attempts repeat several times a second, perhaps for long, and because
  // whoever may change znodes can cause any number.
  void Warn(const std::string& kind, const std::string& what);

  const ZooKeeperOptions options_;
  const std::string root_;
  const std::string id_;
  std::string self_;  // Empty: a client.
  std::string announcement_;

  // For the thread.
  uint64_t changes_ = 0;
  ClusterState read_;                          // State as last read.
  std::shared_ptr<const ClusterState> state_;  // The same, as it is told; null if it has changed since.
  int64_t asked_ns_ = 0;                       // When it last had something to do for somebody.
  bool watching_ = false;                      // Watches report changes of what was read.
  uint64_t read_in_ = 1;                       // Session in which it was read.
  int workers_version_ = -1;                   // Version of its servers; -1: none yet.
  int64_t workers_made_zxid_ = 0;  // ZooKeeper's count of all its changes when the znode of its servers was made.
  int64_t read_zxid_ = 0;          // Those of its table (ZooKeeperTable::zxid, made_zxid); 0: none yet.
  int64_t read_made_zxid_ = 0;
  Repeats repeats_;
  bool announced_ = false;
  SessionLease lease_{options_.clock};
  std::atomic<uint64_t> session_ = 1;

  std::thread thread_;
  std::mutex mutex_;  // Guards the members below.
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  std::vector<std::shared_ptr<ToldStates>> told_;  // The memberships that use this member.
  bool changed_ = false;                           // A watch has fired.
  bool stopping_ = false;

  ZooKeeperConnection connection_{options_, [this] { OnChange(); }};  // Calls OnChange until it is gone.
  ZooKeeperTable table_{&connection_, root_ + "/table", [this] { RenewIfDue(); }};
};

}  // namespace cell

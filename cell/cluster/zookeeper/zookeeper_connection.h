// ZooKeeperConnection makes calls to ZooKeeper, in one session after the other, and translates the errors.
//
// Functions that return an int return a code of ZooKeeper's C client. Lost, Answered and Expired classify that code,
// and Failed turns it into a status.
//
// Thread-safety: one thread at a time calls it; only Stop may be called meanwhile by another one. `on_change` is called
// by a thread of the C client, until the destructor has returned.
#pragma once

#include <zookeeper/zookeeper.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/cluster/zookeeper/zookeeper_options.h"

namespace cell {

class ZooKeeperConnection {
 public:
  // `on_change` is called when data that was read with a watch has changed.
  ZooKeeperConnection(const ZooKeeperOptions& options, std::function<void()> on_change);
  // Ends the session, so that its ephemeral znodes are gone at once.
  ~ZooKeeperConnection();
  ZooKeeperConnection(const ZooKeeperConnection&) = delete;
  ZooKeeperConnection& operator=(const ZooKeeperConnection&) = delete;

  static bool Lost(int rc);
  // Returns whether ZooKeeper answered, so that the session existed.
  static bool Answered(int rc);
  static bool Expired(int rc);
  static absl::Status ToStatus(int rc, const std::string& what);

  // Begins a new session. Returns Unavailable if ZooKeeper does not answer in time, or after Stop.
  absl::Status Connect();
  // Ends the session. It counts as expired until the next one is complete.
  void Disconnect();
  bool connected() const { return handle_ != nullptr; }
  int64_t session_ns() const;
  // Makes Connect and Retry give up.
  void Stop();

  // Returns ToStatus, and notes it if the session has expired.
  absl::Status Failed(int rc, const std::string& what);
  // Returns whether the session has expired and the new one is not complete. The caller resets it, once the new session
  // has all that the former one had.
  bool expired() const { return expired_; }
  void set_expired(bool expired) { expired_ = expired; }

  // Repeats a call until ZooKeeper answers it. Only for calls that may be made twice.
  int Retry(const std::function<int()>& call);

  // Return the data or the children of a znode. They repeat the call until ZooKeeper answers it. `stat` may be null.
  absl::StatusOr<std::string> Get(const std::string& path, Stat* stat, bool watch);
  absl::StatusOr<std::vector<std::string>> WatchChildren(const std::string& path, Stat* stat);

  // Returns what ZooKeeper notes about a znode. Repeats the call like Get.
  absl::StatusOr<Stat> StatOf(const std::string& path);

  // Make one call each. `flags` are those of zoo_create.
  int Create(const std::string& path, const std::string& data, int flags);
  int Set(const std::string& path, const std::string& data, int version);
  // A change of one znode. kSet needs the znode's version, or -1 for any.
  struct Op {
    enum class Kind : uint8_t { kSet, kCreate, kDelete };
    Kind kind;
    std::string path;
    std::string data;
    int version;
  };
  // Makes all of these changes or none of them. `*stat` is that of the first znode afterwards, if it was set; it may be
  // null.
  int Multi(const std::vector<Op>& ops, Stat* stat);
  // Returns ZOK if the ephemeral znode is this session's, and ZNODEEXISTS if it is another session's.
  int IsOurs(const std::string& path);
  // Makes a request that the leader answers itself.
  int Sync(const std::string& path);

 private:
  static int Size(const std::string& text) { return static_cast<int>(text.size()); }
  // Returns who may do what with znodes that we make: we everything, and readers (digest_file.h) read.
  const ACL_vector* acl() const { return options_.digest.empty() ? &ZOO_OPEN_ACL_UNSAFE : &acl_vector_; }
  static void Watch(zhandle_t*, int type, int state, const char*, void* context);
  // Waits until the session is connected, and knows our credentials, or has failed, Stop, or `until_ns`. Returns its
  // state.
  int AwaitSession(int64_t until_ns);
  // Waits until a call that was lost may be made again. Returns false after `until_ns` or Stop.
  bool AwaitRetry(int64_t until_ns);

  const ZooKeeperOptions options_;
  // The ACL that acl() returns, and what it refers to.
  std::string reader_;
  std::array<ACL, 2> acls_{};
  ACL_vector acl_vector_{};

  const std::function<void()> on_change_;
  zhandle_t* handle_ = nullptr;
  bool expired_ = false;
  std::string buffer_;                       // For Get: a member reads many small znodes, and none has more.
  std::mutex mutex_;                         // Guards stopping_ and told_state_.
  std::condition_variable session_changed_;  // The session's state has changed, or stopping_ has.
  bool stopping_ = false;
  int told_state_ = 0;  // The session's state that Watch was last called with; 0: none yet.
};

}  // namespace cell

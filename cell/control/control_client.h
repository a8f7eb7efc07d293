// ControlClient makes requests to a server's control plane (control.proto). Blocks. One call at a time; Cancel may be
// called from another thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/control/tls_files.h"

namespace cell {

class ControlClient {
 public:
  // Opens a client of `server`, whose control plane listens at `address`, as the membership has it. `tls`: all of its
  // files or none; only a server with the right certificate is talked to then. With a `timeout`, each call ends after
  // it with DeadlineExceeded. Without one, questions (Status, ListRegions, SetLogLevel) have 10 s, and orders ten
  // minutes unless they take as long as necessary. Returns InvalidArgument if a file cannot be read, and
  // FailedPrecondition if the address is a Unix socket of another machine. Only the calls tell whether the server is
  // there.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Open(
      const std::string& server, const std::string& address, const TlsFiles& tls,
      std::optional<std::chrono::nanoseconds> timeout = std::nullopt);
  ~ControlClient();

  struct Region {
    uint32_t region, worker, tier;
    uint64_t epoch, keys;
    double fill;
    bool busy;
    std::string table, state;
    uint32_t right;  // Its right neighbour in its tier, or the part above it; 0: none.
  };
  struct Owner {
    uint32_t region;
    std::string server;
    uint32_t worker;
    uint64_t epoch;
    bool recovering, in_making;
  };
  struct Regions {
    std::vector<Region> regions;
    uint32_t free;
    std::vector<Owner> owners;  // Owners of all regions of the cluster, as the server sees the table...
    uint64_t table_version;     // ...of this version.
  };

  // Ends the call that another thread is in, if any, with Cancelled. The request itself continues.
  void Cancel();

  absl::StatusOr<std::vector<std::string>> Status();
  absl::StatusOr<Regions> ListRegions();
  // Returns for how many regions there is prepared memory afterwards.
  absl::StatusOr<uint32_t> Allocate(uint32_t count);
  absl::Status Split(uint32_t region);
  absl::Status Join(uint32_t region);
  absl::Status Move(uint32_t region, const std::string& server, uint32_t worker);
  // These three take as long as necessary, unless there is a timeout. Status tells whether anything progresses.
  absl::Status Drain(bool cancel);
  absl::StatusOr<uint64_t> Rebalance();
  struct Checkpoints {
    uint64_t regions, bytes;
  };
  absl::StatusOr<Checkpoints> Checkpoint();
  absl::Status CreateTable(const std::string& table, uint32_t bucket_bytes, uint32_t parts);
  absl::Status DropTable(const std::string& table);
  // For a Pilaf table or, if `table` is empty, for the keys of the tree with a prefix. `evict`: none, ttl, lru-sampled
  // or, to remove the rule, default.
  absl::Status SetEviction(const std::string& table, const std::string& prefix, const std::string& evict);
  struct GrantChange {
    std::string user, rights;  // As in control.proto.
    bool everything = false;   // For the tree and all tables,
    std::string table = {};    // or for this Pilaf table,
    std::string prefix = {};   // or for the keys of the tree that begin with this.
    bool revoke = false;
  };
  absl::Status ChangeGrant(const GrantChange& change);
  absl::Status EnforceGrants(bool enforce);
  absl::Status SetLogLevel(const std::string& level);

 private:
  class Connection;
  explicit ControlClient(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace cell

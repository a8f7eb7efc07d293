// ControlClient: asks a server's control plane (control.proto). Blocking; one call at a time, but for Cancel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cell {

struct ControlTls {
  // Files in PEM; all empty: no TLS.
  std::string authority;    // Who signs servers' certificates.
  std::string certificate;  // Our own, if servers ask for it.
  std::string key;
};

class ControlClient {
 public:
  // InvalidArgument: a file cannot be read. Whether anybody is there, the calls tell.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Open(const std::string& address, const ControlTls& tls);
  ~ControlClient();

  struct Region {
    uint32_t region, worker, tier;
    uint64_t epoch, keys;
    double fill;
    bool busy;
    std::string table, state;
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
    std::vector<Owner> owners;  // Of all regions of the cluster, as the server sees the table...
    uint64_t table_version;     // ...of this version.
  };

  // Ends with Cancelled the call that another thread is in, if there is one. What it asked for goes on.
  void Cancel();

  absl::StatusOr<std::vector<std::string>> Status();
  absl::StatusOr<Regions> ListRegions();
  // The number of regions' memory that is ready then.
  absl::StatusOr<uint32_t> Allocate(uint32_t count);
  absl::Status Split(uint32_t region);
  absl::Status Move(uint32_t region, const std::string& server, uint32_t worker);
  // These three take as long as they take. Whether anything moves, Status tells.
  absl::Status Drain(bool cancel);
  absl::StatusOr<uint64_t> Rebalance();
  struct Checkpoints {
    uint64_t regions, bytes;
  };
  absl::StatusOr<Checkpoints> Checkpoint();
  absl::Status CreateTable(const std::string& table, uint32_t bucket_bytes, uint32_t parts);
  absl::Status DropTable(const std::string& table);
  absl::Status SetLogLevel(const std::string& level);

 private:
  class Connection;
  explicit ControlClient(std::unique_ptr<Connection> connection);
  std::unique_ptr<Connection> connection_;
};

}  // namespace cell

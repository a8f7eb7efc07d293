// ControlledWorker is a worker as the control plane sees it: what operators may ask it, and order it to do.
//
// Thread-safe. Each method returns at once; the worker's thread does the work and then calls `answer` once. A worker
// that does not run, or has ended, never calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cell {

class ControlledWorker {
 public:
  template <typename T>
  using Answer = std::function<void(T)>;

  virtual ~ControlledWorker() = default;

  // Questions, which a worker answers at once.

  // Answers with its state and statistics as JSON.
  virtual void Status(Answer<std::string> answer) = 0;

  struct Region {
    uint32_t region = 0;
    uint64_t epoch = 0;  // 0 if the region table does not have the region.
    uint32_t tier = 0;
    uint64_t keys = 0;
    double fill = 0;
    bool busy = false;   // It is being split, migrated, joined or cleared.
    std::string table;   // The Pilaf table that it is part of; empty if it is part of the tree.
    std::string state;   // Why it is not served in full, or soon will not be; empty if it is.
    uint32_t right = 0;  // Its right neighbour in its tier, or the part above it; 0: none.
  };
  struct Holding {
    std::vector<Region> regions;
    size_t room = 0;  // How many more regions it may hold.
  };
  // Answers with the regions that it holds.
  virtual void Regions(Answer<Holding> answer) = 0;
  virtual void Holds(uint32_t region, Answer<bool> answer) = 0;

  struct Owner {
    uint32_t region = 0;
    std::string server;
    uint32_t worker = 0;
    uint64_t epoch = 0;
    bool recovering = false;
    bool in_making = false;
  };
  struct Owners {
    std::vector<Owner> owners;
    uint64_t table_version = 0;
  };
  // Answers with the owners of all regions of the cluster, in the version of the region table that it has.
  virtual void RegionOwners(Answer<Owners> answer) = 0;

  struct DrainState {
    size_t regions_left = 0;
    bool draining = false;  // According to the version of the region table that it has.
    absl::Status stuck;     // Why no region could be migrated for a while, or OK.
  };
  virtual void DrainProgress(Answer<DrainState> answer) = 0;

  // The pairs that a request is about: everything, those of a Pilaf table or, if that is empty, those of the tree whose
  // keys begin with a prefix.
  struct Scope {
    bool everything = false;
    std::string table = {};
    std::string prefix = {};
  };
  // Answers whether a client of this name has a grant of admin for all of them.
  virtual void Administers(std::string client, Scope scope, Answer<bool> answer) = 0;

  // Orders, which may take long.

  // Prepares memory for `count` more regions. Answers for how many there is prepared memory then.
  virtual void Allocate(uint32_t count, Answer<absl::StatusOr<size_t>> answer) = 0;
  virtual void Split(uint32_t region, Answer<absl::Status> answer) = 0;
  // Joins a region with its left neighbour.
  virtual void Join(uint32_t region, Answer<absl::Status> answer) = 0;
  // Migrates a region to the worker of that number of `server`.
  virtual void Move(uint32_t region, std::string server, uint32_t worker, Answer<absl::Status> answer) = 0;
  // Sets in the region table whether the worker's server should hold no regions.
  virtual void SetDraining(bool draining, Answer<absl::Status> answer) = 0;
  // Migrates regions until another migration would not help. Answers with their number.
  virtual void Rebalance(Answer<absl::StatusOr<uint64_t>> answer) = 0;

  struct Checkpoints {
    uint64_t regions = 0, bytes = 0;
  };
  // Writes a checkpoint of each region.
  virtual void Checkpoint(Answer<absl::StatusOr<Checkpoints>> answer) = 0;
  // Creates a Pilaf table. `bucket_bytes` 0: it has slots; `parts` 0: one for each worker that has room.
  virtual void CreateTable(std::string table, uint32_t bucket_bytes, uint32_t parts, Answer<absl::Status> answer) = 0;
  virtual void DropTable(std::string table, Answer<absl::Status> answer) = 0;
  // Sets in the region table what is evicted of a Pilaf table or, if `table` is empty, of the keys of the tree with a
  // prefix. `evict` is a name that a user has given.
  virtual void SetEviction(std::string table, std::string prefix, std::string evict, Answer<absl::Status> answer) = 0;

  struct GrantChange {
    std::string user;
    std::string rights;  // As a user has given them: "read,write".
    Scope scope;
    bool revoke = false;
  };
  // Gives a user rights in the region table, or takes them.
  virtual void ChangeGrant(GrantChange change, Answer<absl::Status> answer) = 0;
  // Sets in the region table whether clients may do only what grants allow.
  virtual void EnforceGrants(bool enforce, Answer<absl::Status> answer) = 0;
};

}  // namespace cell

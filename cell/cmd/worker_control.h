// WorkerControl lets the control plane ask and order a Worker (controlled_worker.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/control/controlled_worker.h"

namespace cell {

class Worker;

class WorkerControl : public ControlledWorker {
 public:
  // `worker` must outlive this, and what it was asked keeps using it.
  explicit WorkerControl(Worker* worker) : worker_(worker) {}

  void Status(Answer<std::string> answer) override;
  void Regions(Answer<Holding> answer) override;
  void Holds(uint32_t region, Answer<bool> answer) override;
  void RegionOwners(Answer<Owners> answer) override;
  void DrainProgress(Answer<DrainState> answer) override;
  void Allocate(uint32_t count, Answer<absl::StatusOr<size_t>> answer) override;
  void Split(uint32_t region, Answer<absl::Status> answer) override;
  void Join(uint32_t region, Answer<absl::Status> answer) override;
  void Move(uint32_t region, std::string server, uint32_t worker, Answer<absl::Status> answer) override;
  void SetDraining(bool draining, Answer<absl::Status> answer) override;
  void Rebalance(Answer<absl::StatusOr<uint64_t>> answer) override;
  void Checkpoint(Answer<absl::StatusOr<Checkpoints>> answer) override;
  void CreateTable(std::string table, uint32_t bucket_bytes, uint32_t parts, Answer<absl::Status> answer) override;
  void DropTable(std::string table, Answer<absl::Status> answer) override;
  void Administers(std::string client, Scope scope, Answer<bool> answer) override;
  void ChangeGrant(GrantChange change, Answer<absl::Status> answer) override;
  void EnforceGrants(bool enforce, Answer<absl::Status> answer) override;
  void SetEviction(std::string table, std::string prefix, std::string evict, Answer<absl::Status> answer) override;

 private:
  Worker* const worker_;
};

}  // namespace cell

// ModelledCluster is a cluster of the real server and client code in virtual time, on machines that a MachineModel
// describes, with a tree that is built directly instead of being loaded.
//
// Each worker holds one meganode of the tree. If there are more, a meganode of routes above them is the root, which
// worker 0 holds, too. Nodes are smaller than in a real cluster, so that a meganode with thousands of keys has as many
// levels as one of 64 MB with a million. The cost of a read is the model's, whatever its size. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/server/worker.h"

namespace cell {

struct ModelledClusterOptions {
  MachineModel machine;
  int servers = 1;
  int cores = 1;           // Workers per server, which share its NIC.
  int keys_each = 20'000;  // Keys per worker.
  uint32_t node_bytes = 512;
  size_t inline_max = 0;  // See Meganode::set_inline_max. As in the thesis, all pairs are outside.
  uint64_t seed = 1;
  double service_spread = 0.5;  // A call takes its time plus or minus up to this fraction.
};

class ModelledCluster {
 public:
  explicit ModelledCluster(const ModelledClusterOptions& options);
  ~ModelledCluster();

  SimNetwork* network() { return &network_; }
  int64_t now_ns() const { return network_.now_ns(); }
  uint64_t keys() const { return static_cast<uint64_t>(options_.keys_each) * workers_.size(); }
  static std::string Key(uint64_t i);
  // Returns the levels of a meganode of pairs.
  int levels() const { return levels_; }

  // A client on a machine of its own, driven by the network.
  struct DrivenClient {
    std::unique_ptr<Client> client;
    SimFabric* fabric;
  };
  // With `warm` it knows which meganode has which keys, as after some time of use.
  std::unique_ptr<DrivenClient> NewClient(const ClientOptions& options, bool warm = false);

  // Makes the cores of server `i` this many times slower from now on.
  void SlowServer(size_t i, double slowdown) { hosts_[i]->set_slowdown(slowdown); }
  // Returns how long all workers' cores have worked on calls.
  int64_t busy_ns() const;

 private:
  struct Membership;

  void Build(Worker* worker, uint32_t region, size_t index);
  void BuildRoot();
  int64_t CallCost(Worker* worker, ConstBytes request);
  void TakeTurns(size_t worker);

  const ModelledClusterOptions options_;
  SimNetwork network_;
  Random random_;
  int levels_ = 0;
  std::shared_ptr<ClusterState> state_;
  std::vector<SimHost*> hosts_;
  std::vector<SimFabric*> fabrics_;  // The workers' fabrics.
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace cell

// Floods lets strangers flood servers: clients that send all kinds of requests that cost much, wait for nothing, and
// are killed in the middle.
//
// They are a user's, who may do what grants allow, if there are users.
//
// What they send changes nothing of what the simulation's clients have written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "tests/simulation/world.h"

namespace cell {

class Floods {
 public:
  // `world` must outlive this.
  explicit Floods(World* world) : world_(world) {}

  // Begins to flood a server. Everything that it does follows from `seed`.
  void Begin(size_t server, uint64_t seed, int64_t until_ns);
  // Kills all strangers that are left.
  void End();

 private:
  struct Stranger final : Completion {
    void Done(const absl::Status& status, ConstBytes) override { connected |= status.ok(); }

    std::unique_ptr<SimFabric> fabric;
    ConnectionId connection = 0;
    Random random{0};
    bool connected = false;
    int left = 400;  // Requests that it may still send.
  };

  void Turn(Stranger* stranger);
  // Returns a request, and what follows it.
  std::pair<std::string, std::string> Request(Random* random) const;
  static void Kill(Stranger* stranger);

  World* const world_;
  std::vector<std::unique_ptr<Stranger>> strangers_;
};

}  // namespace cell

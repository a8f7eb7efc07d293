// Gives simulations, tests and benchmarks access to clients that users do not have. Not installed. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"

namespace cell {

class ClientTesting {
 public:
  // Opens a client over a given fabric and membership. See Client::Open for its errors.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options, std::unique_ptr<Fabric> fabric,
                                                      std::unique_ptr<Membership> membership);

  // Acts as if a server had said that keys from `low` on (up to `high` if given) are in the meganode in `region`: for
  // simulated clients that have been running for long. A wrong route only costs steps.
  static void RememberRoute(Client* client, std::string_view low, std::optional<std::string_view> high,
                            uint32_t region);

  // Returns how many operations the client counts as in flight.
  static int InFlight(const Client& client);

  // Read one node at a random position, and send the cheapest request, to measure the fabric alone.
  static Task<absl::StatusOr<bool>> RawRead(Client* client, uint64_t random);
  static Task<absl::StatusOr<bool>> RawCall(Client* client);
};

}  // namespace cell

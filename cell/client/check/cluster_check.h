// Queries all workers of a cluster for their status and for checks of their regions. Internal to cell/client. Not
// thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/client/client.h"
#include "cell/client/session/session.h"

namespace cell {

// See Client::ServerStatus and Client::Check. They poll until they have all answers.
std::vector<absl::StatusOr<std::string>> StatusOfAll(Session* session);
absl::StatusOr<Client::ClusterCheck> CheckCluster(Session* session);

}  // namespace cell

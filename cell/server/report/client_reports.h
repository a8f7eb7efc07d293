// ClientReports: what clients tell a worker about themselves (kReport), for its status. One thread: the worker's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/io/fabric/fabric.h"
#include "nlohmann/json_fwd.hpp"

namespace cell {

class ClientReports {
 public:
  // Replaces the report of a client. Returns InvalidArgument if it is not a JSON object, or too long.
  absl::Status Set(ConnectionId client, std::string_view text);
  // Forgets a client that is gone, but adds its counters to those of all that are.
  void Forget(ConnectionId client);
  // Adds the fields "clients", of which it shows the first ones, and "departed_clients".
  void AddTo(nlohmann::json* status) const;

 private:
  static constexpr std::array kCounters = {"operations",   "server_path", "client_path",    "retries",     "lookups",
                                           "lookup_reads", "lookup_torn", "lookup_extents", "lookup_moved"};

  std::map<ConnectionId, std::string> reports_;  // JSON objects.
  std::array<uint64_t, kCounters.size()> departed_{};
};

}  // namespace cell

// ClientReports holds what clients report about themselves to a worker (kReport), for its status. Not thread-safe: used
// only on the worker's thread.
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
  // Forgets a client that is gone, and adds its counters to the sum of departed clients.
  void Forget(ConnectionId client);
  // Adds the fields "clients" with the first ones (64 and 24 KiB at most), "other_clients" with the number of the
  // others and the sums of their counters, and "departed_clients".
  void AddTo(nlohmann::json* status) const;

 private:
  static constexpr std::array kCounters = {"operations",  "server_path",    "client_path", "calls",   "read_rounds",
                                           "node_reads",  "extent_reads",   "retries",     "lookups", "lookup_reads",
                                           "lookup_torn", "lookup_extents", "lookup_moved"};
  using Counters = std::array<uint64_t, kCounters.size()>;
  struct Report {
    std::string text;  // A JSON object.
    Counters counters;
  };
  static void AddCounters(const Counters& counters, Counters* to);

  std::map<ConnectionId, Report> reports_;
  Counters departed_{};
};

}  // namespace cell

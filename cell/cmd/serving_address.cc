#include "cell/cmd/serving_address.h"

#include "cell/base/status_macros.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/net/tcp_socket.h"

namespace cell {
namespace {

// Returns HOST:PORT of worker `index`.
absl::StatusOr<std::string> ListenAddress(const std::string& listen, uint32_t index) {
  std::string with_port = listen;
  const bool bare_ipv6 = listen.find(':') != listen.rfind(':') && listen.front() != '[';
  if (bare_ipv6) with_port = fmt::format("[{}]", listen);
  if (bare_ipv6 || listen.find(':') == std::string::npos || listen.back() == ']') with_port += ":0";
  ASSIGN_OR_RETURN(const auto parts, ParseHostPort(with_port));
  const auto& [host, port] = parts;
  if (host == "0.0.0.0" || host == "::") {
    return absl::InvalidArgumentError(fmt::format(
        "--listen {}: clients cannot connect to a wildcard address; give the address that they should use", host));
  }
  if (port == 0) return WithFreePort(with_port);
  if (port + index > 65535) return absl::InvalidArgumentError(fmt::format("--listen: bad port {} + {}", port, index));
  return fmt::format("{}:{}", with_port.substr(0, with_port.rfind(':')), port + index);
}

}  // namespace

absl::StatusOr<std::string> WithFreePort(const std::string& host_port) {
  ASSIGN_OR_RETURN(const auto parts, ParseHostPort(host_port));
  if (parts.second != 0) return host_port;
  ASSIGN_OR_RETURN(const Fd probe, ListenTcp(host_port));
  return BoundAddress(probe.get(), host_port);
}

absl::StatusOr<ServingAddress> ChooseServingAddress(const ServingFlags& flags, uint32_t index) {
  const std::optional<FabricKind> only = ParseFabricKind(flags.fabric);
  if (!only.has_value() && flags.fabric != "auto") {
    return absl::InvalidArgumentError(fmt::format("unknown fabric \"{}\"", flags.fabric));
  }
  ServingAddress chosen{{}, fmt::format("--fabric {}", flags.fabric)};
  std::vector<FabricAddress> addresses;
  if (only.value_or(FabricKind::kShm) == FabricKind::kShm) {
    addresses.push_back({FabricKind::kShm, flags.socket, ThisMachine()});
    chosen.why += "; shm for clients on this machine";
  }
  if (flags.listen.empty() && only.has_value() && *only != FabricKind::kShm) {
    return absl::InvalidArgumentError(
        fmt::format("--fabric {} needs --listen HOST[:PORT], the address where clients can connect", flags.fabric));
  }
  if (flags.listen.empty() && !only.has_value()) {
    chosen.why += "; no tcp or verbs without --listen";
  } else if (only != FabricKind::kShm) {
    // RDMA's ports are separate from those of TCP. Both fabrics use the same number.
    ASSIGN_OR_RETURN(const std::string address, ListenAddress(flags.listen, index));
    ASSIGN_OR_RETURN(const auto parts, ParseHostPort(address));
    const std::string device = RdmaDeviceOf(parts.first);
    if (only == FabricKind::kVerbs || (!only.has_value() && !device.empty())) {
      addresses.push_back({FabricKind::kVerbs, address, {}});
      chosen.why += fmt::format("; verbs for clients with an RDMA device, on {}", device.empty() ? "none" : device);
    } else if (!only.has_value()) {
      chosen.why += fmt::format("; no verbs: {} is not the address of an RDMA device", parts.first);
    }
    if (only.value_or(FabricKind::kTcp) == FabricKind::kTcp) {
      addresses.push_back({FabricKind::kTcp, address, {}});
      chosen.why += "; tcp for all others";
    }
  }
  chosen.address = ToString(std::move(addresses));
  return chosen;
}

absl::StatusOr<ServingAddress> ChooseOfListed(const std::string& fabric, const std::string& listed) {
  ASSIGN_OR_RETURN(std::vector<FabricAddress> addresses, ParseAddresses(listed));
  if (fabric != "auto") {
    std::erase_if(addresses, [&](const FabricAddress& one) { return ToString(one.kind) != fabric; });
    if (addresses.empty()) {
      return absl::InvalidArgumentError(
          fmt::format("--fabric {}: the cluster lists this worker only at {}", fabric, listed));
    }
  }
  return ServingAddress{ToString(std::move(addresses)), fmt::format("--fabric {}; as listed in the cluster", fabric)};
}

}  // namespace cell

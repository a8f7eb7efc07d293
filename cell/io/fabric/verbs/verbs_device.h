// Lists the RDMA devices of this machine, for --list-devices and for choosing a fabric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct ibv_port_attr;

namespace cell {

struct RdmaGid {
  uint32_t index;
  std::string type;     // "IB", "RoCE v1" or "RoCE v2".
  std::string address;  // The corresponding IP address, or the GID itself.
};

struct RdmaPort {
  uint32_t port;
  bool active;
  std::string state;
  std::string link_layer;  // "InfiniBand" or "Ethernet".
  uint32_t mtu;            // In bytes.
  double gbit_per_s;       // Data rate at the link's current speed; 0: unknown.
  std::vector<RdmaGid> gids;
};

struct RdmaDevice {
  std::string name;
  std::string firmware;
  uint32_t connections_max;      // Queue pairs.
  uint32_t reads_in_flight_max;  // Per connection, in each direction.
  uint64_t region_bytes_max;     // Limit of a single registration.
  uint32_t completions_max;      // Per completion queue.
  uint32_t receives_max;         // Per shared receive queue.
  bool reads_in_order;           // The device guarantees that a read's bytes arrive in order. Cell does not rely on it.
  std::vector<RdmaPort> ports;
};

// Returns all devices that this user may use.
std::vector<RdmaDevice> ListRdmaDevices();

// Returns whether a device has a port that is up.
bool HasActiveRdmaDevice();

// Returns the device that owns an address of this machine, or "" if none does.
std::string RdmaDeviceOf(const std::string& host);

// Returns the source address for connections that use `device`, NAME or NAME:PORT, with this GID. For -1 it is the
// first RoCE v2 or InfiniBand GID of the first active port. Returns "" if there is none.
std::string RdmaSourceAddress(const std::string& device, int gid_index);

// Returns the data rate of a port.
double GbitPerSecond(const ibv_port_attr& attributes);

// Formats a table for people.
std::string Describe(const std::vector<RdmaDevice>& devices);

}  // namespace cell

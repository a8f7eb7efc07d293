// The RDMA devices of this machine, as users see them: for --list-devices, and to choose a fabric.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

struct ibv_port_attr;

namespace cell {

struct RdmaGid {
  uint32_t index;
  std::string type;     // "IB", "RoCE v1", "RoCE v2".
  std::string address;  // The IP address that it stands for, or the GID itself.
};

struct RdmaPort {
  uint32_t port;
  bool active;
  std::string state;
  std::string link_layer;  // "InfiniBand" or "Ethernet".
  uint32_t mtu;            // Bytes.
  double gbit_per_s;       // Of data, at the speed that the link has; 0: it does not say.
  std::vector<RdmaGid> gids;
};

struct RdmaDevice {
  std::string name;
  std::string firmware;
  uint32_t connections_max;      // Queue pairs.
  uint32_t reads_in_flight_max;  // Per connection, that it asks for and answers.
  uint64_t region_bytes_max;     // That can be registered at once.
  uint32_t completions_max;      // Per completion queue.
  uint32_t receives_max;         // Per shared receive queue.
  bool reads_in_order;           // It guarantees that a read's bytes arrive in order. Cell does not rely on it.
  std::vector<RdmaPort> ports;
};

// Empty: there is none, or this user may not use it.
std::vector<RdmaDevice> ListRdmaDevices();

// Whether there is one with a port that is up.
bool HasActiveRdmaDevice();

// The device that owns an address of this machine; empty: none does.
std::string RdmaDeviceOf(const std::string& host);

// The address by which connections from here use this device, NAME or NAME:PORT: of this GID, or, for -1, of the first
// active port's first RoCE v2 or InfiniBand GID. Empty: there is none.
std::string RdmaSourceAddress(const std::string& device, int gid_index);

// Of such a port.
double GbitPerSecond(const ibv_port_attr& attributes);

// A table for people.
std::string Describe(const std::vector<RdmaDevice>& devices);

}  // namespace cell

#include "cell/io/fabric/verbs/verbs_device.h"

#include <arpa/inet.h>

#include "cell/io/fabric/verbs/verbs_objects.h"
#include "cell/io/net/tcp_socket.h"

namespace cell {
namespace {

std::string TypeOf(const ibv_gid_entry& gid) {
  switch (gid.gid_type) {
    case IBV_GID_TYPE_IB:
      return "IB";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "?";
  }
}

std::string AddressOf(const ibv_gid& gid) {
  in6_addr address;
  std::memcpy(&address, gid.raw, sizeof(address));
  char text[INET6_ADDRSTRLEN] = "?";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  }
  return text;
}

RdmaPort PortOf(ibv_context* context, uint8_t number) {
  RdmaPort port{number, false, "?", "?", 0, 0, {}};
  ibv_port_attr attributes{};
  if (::ibv_query_port(context, number, &attributes) != 0) return port;
  port.active = attributes.state == IBV_PORT_ACTIVE;
  port.state = ::ibv_port_state_str(attributes.state);
  port.link_layer = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
  port.mtu = 128u << attributes.active_mtu;
  port.gbit_per_s = GbitPerSecond(attributes);
  ibv_gid_entry entries[64];
  const ssize_t count = ::ibv_query_gid_table(context, entries, 64, 0);
  for (ssize_t i = 0; i < count; ++i) {
    if (entries[i].port_num == number) {
      port.gids.push_back({entries[i].gid_index, TypeOf(entries[i]), AddressOf(entries[i].gid)});
    }
  }
  return port;
}

bool ReadsInOrder(ibv_context* context) {
  const ProtectionDomain pd(::ibv_alloc_pd(context));
  const CompletionQueue cq(::ibv_create_cq(context, 1, nullptr, nullptr, 0));
  if (pd == nullptr || cq == nullptr) return false;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq.get();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {1, 1, 1, 1, 0};
  const QueuePairOwner qp(::ibv_create_qp(pd.get(), &attributes));
  return qp != nullptr && ::ibv_query_qp_data_in_order(qp.get(), IBV_WR_RDMA_READ, 0) == 1;
}

}  // namespace

// Uses LinkSpeedActive, LinkSpeedExtActive and LinkWidthActive of PortInfo in the InfiniBand Architecture
// Specification. The first three speeds send ten bits for eight.
double GbitPerSecond(const ibv_port_attr& attributes) {
  constexpr std::pair<int, double> kLaneGbit[] = {{1, 2},   {2, 4},   {4, 8},   {8, 10},
                                                  {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  constexpr std::pair<int, double> kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto of = [](const auto& known, int code) {
    for (const auto& [one, value] : known) {
      if (one == code) return value;
    }
    return 0.0;
  };
  return of(kLaneGbit, attributes.active_speed) * of(kLanes, attributes.active_width);
}

std::vector<RdmaDevice> ListRdmaDevices() {
  std::vector<RdmaDevice> devices;
  int count = 0;
  ibv_device** list = ::ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i) {
    const std::unique_ptr<ibv_context, VerbsDeleter<ibv_close_device>> context(::ibv_open_device(list[i]));
    ibv_device_attr attributes{};
    if (context == nullptr || ::ibv_query_device(context.get(), &attributes) != 0) continue;
    RdmaDevice device{::ibv_get_device_name(list[i]),
                      attributes.fw_ver,
                      static_cast<uint32_t>(attributes.max_qp),
                      static_cast<uint32_t>(std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom)),
                      attributes.max_mr_size,
                      static_cast<uint32_t>(attributes.max_cqe),
                      static_cast<uint32_t>(attributes.max_srq_wr),
                      ReadsInOrder(context.get()),
                      {}};
    for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
      device.ports.push_back(PortOf(context.get(), port));
    }
    devices.push_back(std::move(device));
  }
  if (list != nullptr) ::ibv_free_device_list(list);
  return devices;
}

bool HasActiveRdmaDevice() {
  for (const RdmaDevice& device : ListRdmaDevices()) {
    for (const RdmaPort& port : device.ports) {
      if (port.active) return true;
    }
  }
  return false;
}

std::string RdmaDeviceOf(const std::string& host) {
  const EventChannel channel(::rdma_create_event_channel());
  if (channel == nullptr) return {};
  const auto addresses = ResolveAddress(host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0");
  if (!addresses.ok()) return {};
  rdma_cm_id* made = nullptr;
  if (::rdma_create_id(channel.get(), &made, nullptr, RDMA_PS_TCP) != 0) return {};
  const CmId id(made);
  sockaddr_storage address = addresses->front().storage;
  if (::rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address)) != 0 || id->verbs == nullptr) return {};
  return ::ibv_get_device_name(id->verbs->device);
}

std::string RdmaSourceAddress(const std::string& device, int gid_index) {
  const std::string name = device.substr(0, device.find(':'));
  const std::string number = name.size() < device.size() ? device.substr(name.size() + 1) : "";
  for (const RdmaDevice& one : ListRdmaDevices()) {
    if (!name.empty() && one.name != name) continue;
    for (const RdmaPort& port : one.ports) {
      if (!number.empty() && std::to_string(port.port) != number) continue;
      for (const RdmaGid& gid : port.gids) {
        if (gid_index >= 0 ? gid.index == static_cast<uint32_t>(gid_index)
                           : port.active && gid.type != "RoCE v1" && gid.address.rfind("fe80:", 0) != 0) {
          return gid.address;
        }
      }
    }
  }
  return {};
}

std::string Describe(const std::vector<RdmaDevice>& devices) {
  if (devices.empty()) {
    return "No RDMA device was found, or this user has no permission to open it. Is rdma-core installed, the driver "
           "loaded (rdma link), and "
           "/dev/infiniband/uverbs* readable?\n";
  }
  std::string text;
  for (const RdmaDevice& device : devices) {
    text += fmt::format(
        "{}: firmware {}\n"
        "  connections (queue pairs) at most   {}\n"
        "  reads in flight, per connection     {}\n"
        "  completions, per queue              {}\n"
        "  receives, per shared queue          {}\n"
        "  bytes that can be registered        {}\n"
        "  reads arrive in order               {}\n",
        device.name, device.firmware.empty() ? "-" : device.firmware, device.connections_max,
        device.reads_in_flight_max, device.completions_max, device.receives_max, device.region_bytes_max,
        device.reads_in_order ? "guaranteed (not relied on)" : "not guaranteed (not needed)");
    for (const RdmaPort& port : device.ports) {
      text += fmt::format("  port {}: {}, {}, MTU {}, {} Gb/s\n", port.port, port.state, port.link_layer, port.mtu,
                          port.gbit_per_s);
      for (const RdmaGid& gid : port.gids) {
        text += fmt::format("    GID {:<3} {:<8} {}\n", gid.index, gid.type, gid.address);
      }
    }
  }
  return text;
}

}  // namespace cell

#include "cell/io/fabric/open/open_fabric.h"

#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/fabric/verbs/verbs_fabric.h"

namespace cell {
absl::StatusOr<std::unique_ptr<MultiFabric>> OpenFabric(const FabricOptions& options) {
  const std::optional<FabricKind> only = ParseFabricKind(options.kind);
  if (!only.has_value() && options.kind != "auto") {
    return absl::InvalidArgumentError(fmt::format("unknown fabric \"{}\": use auto, shm, tcp or verbs", options.kind));
  }
  const auto wanted = [&](FabricKind kind) { return only.value_or(kind) == kind; };
  auto pool = std::make_shared<RegionPool>(options.huge_pages);
  pool->set_zero_freed(options.zero_freed);
  auto fabric = std::make_unique<MultiFabric>(options.polling, pool);
  bool valid = fabric->valid();
  const auto add = [&](FabricKind kind, std::unique_ptr<PollingFabric> part) {
    valid &= part->valid();
    if (valid) fabric->Add(kind, std::move(part));
  };
  if (wanted(FabricKind::kShm)) {
    add(FabricKind::kShm,
        std::make_unique<ShmFabric>(
            ShmFabricOptions{.polling = options.polling, .huge_pages = options.huge_pages, .group = options.shm_group},
            pool));
  }
  if (wanted(FabricKind::kVerbs)) {
    if (HasActiveRdmaDevice()) {
      add(FabricKind::kVerbs, std::make_unique<VerbsFabric>(VerbsFabricOptions{.polling = options.polling,
                                                                               .huge_pages = options.huge_pages,
                                                                               .credentials = options.credentials,
                                                                               .device = options.rdma_device,
                                                                               .gid_index = options.rdma_gid_index,
                                                                               .mtu_bytes = options.rdma_mtu},
                                                            pool));
    } else if (only.has_value()) {
      return absl::FailedPreconditionError("this machine has no active RDMA device; see cell_server --list-devices");
    }
  }
  if (wanted(FabricKind::kTcp)) {
    add(FabricKind::kTcp, std::make_unique<TcpFabric>(TcpFabricOptions{.polling = options.polling,
                                                                       .huge_pages = options.huge_pages,
                                                                       .credentials = options.credentials},
                                                      pool));
  }
  if (!valid) return absl::ResourceExhaustedError("this process has no descriptors left");
  return fabric;
}

}  // namespace cell

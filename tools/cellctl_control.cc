// cellctl: what is asked of the servers' control planes.
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"

namespace cell {
namespace {

absl::StatusOr<std::unique_ptr<ControlClient>> ControlOf(Client* client, const CtlFlags& flags,
                                                         const std::string& name) {
  for (const auto& server : client->Servers()) {
    if (server.name != name) continue;
    if (server.control.empty()) return absl::UnavailableError(fmt::format("{} tells of no control plane", name));
    return ControlClient::Open(server.control, flags.tls);
  }
  return absl::NotFoundError(fmt::format("no server named {} is in the cluster", name));
}

// The server that holds a region, by the servers' own word.
absl::StatusOr<std::unique_ptr<ControlClient>> ControlOfRegion(Client* client, const CtlFlags& flags) {
  for (const auto& server : client->Servers()) {
    ASSIGN_OR_RETURN(std::unique_ptr<ControlClient> control, ControlOf(client, flags, server.name));
    const absl::StatusOr<ControlClient::Regions> regions = control->ListRegions();
    if (!regions.ok()) continue;
    for (const auto& region : regions->regions) {
      if (region.region == flags.region) return control;
    }
  }
  return absl::NotFoundError(fmt::format("no server holds region {}", flags.region));
}

}  // namespace

int Regions(Client* client, const CtlFlags& flags) {
  absl::Status failed;
  if (!flags.json()) {
    fmt::print("{:<12} {:>6} {:>8} {:>6} {:>5} {:>12} {:>7}  {}\n", "server", "worker", "region", "epoch", "tier",
               "keys", "fill", "table");
  }
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto regions = control.ok() ? (*control)->ListRegions() : control.status();
    if (!regions.ok()) {
      failed = regions.status();
      continue;
    }
    for (const auto& r : regions->regions) {
      if (flags.json()) {
        fmt::print("{}\n", nlohmann::json{{"server", server.name},
                                          {"worker", r.worker},
                                          {"region", r.region},
                                          {"epoch", r.epoch},
                                          {"tier", r.tier},
                                          {"keys", r.keys},
                                          {"fill", r.fill},
                                          {"table", r.table},
                                          {"busy", r.busy}}
                               .dump());
      } else {
        fmt::print("{:<12} {:>6} {:>8} {:>6} {:>5} {:>12} {:>6.1f}%  {}{}\n", server.name, r.worker, r.region, r.epoch,
                   r.table.empty() ? fmt::format("{}", r.tier) : "-", r.keys, 100 * r.fill, r.table,
                   r.busy ? "  busy" : "");
      }
    }
  }
  return failed.ok() ? kDone : Fail(failed);
}

int Allocate(Client* client, const CtlFlags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::StatusOr<uint32_t> ready = control.ok() ? (*control)->Allocate(flags.allocate) : control.status();
  if (!ready.ok()) return Fail(ready.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"ready", *ready}}.dump());
  } else {
    fmt::print("{} has memory for {} more regions ready\n", flags.server, *ready);
  }
  return kDone;
}

int Split(Client* client, const CtlFlags& flags) {
  const auto control = ControlOfRegion(client, flags);
  const absl::Status status = control.ok() ? (*control)->Split(flags.region) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Move(Client* client, const CtlFlags& flags) {
  const auto control = ControlOfRegion(client, flags);
  const absl::Status status = control.ok() ? (*control)->Move(flags.region, flags.server, 0) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Drain(Client* client, const CtlFlags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::Status status = control.ok() ? (*control)->Drain(flags.cancel) : control.status();
  return status.ok() ? kDone : Fail(status);
}

int Checkpoint(Client* client, const CtlFlags& flags) {
  uint64_t regions = 0, bytes = 0;
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto its = control.ok() ? (*control)->Checkpoint() : control.status();
    if (!its.ok()) return Fail(its.status());
    regions += its->regions;
    bytes += its->bytes;
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"regions", regions}, {"bytes", bytes}}.dump());
  } else {
    fmt::print("checkpoints of {} regions, {:.1f} MB\n", regions, static_cast<double>(bytes) / 1e6);
  }
  return kDone;
}

int Rebalance(Client* client, const CtlFlags& flags) {
  uint64_t moved = 0;
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto its = control.ok() ? (*control)->Rebalance() : control.status();
    if (!its.ok()) return Fail(its.status());
    moved += *its;
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"moved", moved}}.dump());
  } else {
    fmt::print("{} regions moved\n", moved);
  }
  return kDone;
}

int LogLevel(Client* client, const CtlFlags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::Status status = control.ok() ? (*control)->SetLogLevel(flags.level) : control.status();
  return status.ok() ? kDone : Fail(status);
}

}  // namespace cell

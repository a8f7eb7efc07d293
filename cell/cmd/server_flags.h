// The flags of cell_server.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "cell/control/control_server.h"
#include "cell/layout/region.h"

namespace cell {

inline constexpr uint32_t kRegionsMax = 65'536;  // Per worker.

struct ServerFlags {
  std::string dir;
  std::string cluster;
  std::string zookeeper_digest;
  std::string name = "server-0";
  uint32_t workers = 1;
  uint32_t regions_max = 16;
  std::optional<uint64_t> memory_max;
  RegionShape shape;
  std::string fabric = "auto";
  std::string listen;
  std::string secret_file;
  std::string shm_group;
  std::optional<gid_t> shm_group_id;  // Not a flag: the group of that name.
  std::string rdma_device;
  int rdma_gid_index = -1;
  uint32_t rdma_mtu = 0;
  std::string poll = "adaptive";
  bool batching = true;
  bool huge_pages = true;
  bool zero_freed = false;
  std::optional<size_t> inline_max;
  uint64_t snapshot_bytes = uint64_t{256} << 20;  // Per worker.
  double split_at = 0.75;
  uint64_t sync_wait_percent = 25;
  bool balance = true;
  bool join = true;
  std::string durability = "async";
  std::string log_dir;
  std::string log_store;
  std::string log_key;
  bool log_plain_ok = false;
  double sync_bound_ms = 10;
  uint64_t checkpoint_mb = 64;
  double takeover_after_s = 1;
  ControlOptions control;
  std::string audit_log;
  bool insecure = false;
  std::string stop_at;
  std::string log_level = "info";
  std::string log_file;
  uint64_t log_file_mb = 16;
  int log_files = 4;
};

// Declares the flags, with their help. Parsing sets *flags, which must outlive the parsing.
void DeclareFlags(CLI::App* app, ServerFlags* flags);

}  // namespace cell

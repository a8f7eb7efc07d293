#include "cell/io/fabric/open/open_fabric.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "cell/base/status_macros.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/io/fabric/tcp/tcp_fabric.h"
#include "cell/io/fabric/verbs/verbs_device.h"
#include "cell/io/fabric/verbs/verbs_fabric.h"

namespace cell {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr size_t kSecretBytesMax = 4096;

}  // namespace

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  struct stat info;
  std::ifstream file(path, std::ios::binary);
  if (!file || ::stat(path.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(fmt::format("cannot read the secret file {}", path));
  }
  if ((info.st_mode & S_IRWXO) != 0) {
    return absl::InvalidArgumentError(fmt::format("the secret can be read by other users: chmod o= {}", path));
  }
  std::string secret(kSecretBytesMax + 1, 0);
  file.read(secret.data(), static_cast<std::streamsize>(secret.size()));
  secret.resize(static_cast<size_t>(file.gcount()));
  if (secret.size() > kSecretBytesMax) {
    return absl::InvalidArgumentError(fmt::format("{} is larger than {} bytes", path, kSecretBytesMax));
  }
  secret.resize(secret.find_last_not_of(" \t\r\n") + 1);
  if (secret.size() < kSecretBytesMin) {
    return absl::InvalidArgumentError(
        fmt::format("the secret in {} has {} bytes, but must have at least {} (openssl rand -hex 32)", path,
                    secret.size(), kSecretBytesMin));
  }
  return secret;
}

absl::StatusOr<std::unique_ptr<MultiFabric>> OpenFabric(const FabricOptions& options) {
  std::string secret;
  if (!options.secret_file.empty()) {
    ASSIGN_OR_RETURN(secret, ReadSecret(options.secret_file));
  }
  const std::optional<FabricKind> only = ParseFabricKind(options.kind);
  if (!only.has_value() && options.kind != "auto") {
    return absl::InvalidArgumentError(fmt::format("unknown fabric \"{}\": use auto, shm, tcp or verbs", options.kind));
  }
  const auto wanted = [&](FabricKind kind) { return only.value_or(kind) == kind; };
  auto pool = std::make_shared<RegionPool>(options.huge_pages);
  auto fabric = std::make_unique<MultiFabric>(options.polling, pool);
  if (wanted(FabricKind::kShm)) {
    fabric->Add(FabricKind::kShm, std::make_unique<ShmFabric>(ShmFabricOptions{.polling = options.polling,
                                                                               .huge_pages = options.huge_pages,
                                                                               .only_this_user = !secret.empty()},
                                                              pool));
  }
  if (wanted(FabricKind::kVerbs)) {
    if (HasActiveRdmaDevice()) {
      fabric->Add(FabricKind::kVerbs,
                  std::make_unique<VerbsFabric>(VerbsFabricOptions{.polling = options.polling,
                                                                   .huge_pages = options.huge_pages,
                                                                   .secret = secret,
                                                                   .device = options.rdma_device,
                                                                   .gid_index = options.rdma_gid_index,
                                                                   .mtu_bytes = options.rdma_mtu},
                                                pool));
    } else if (only.has_value()) {
      return absl::FailedPreconditionError("this machine has no active RDMA device; see cell_server --list-devices");
    }
  }
  if (wanted(FabricKind::kTcp)) {
    fabric->Add(
        FabricKind::kTcp,
        std::make_unique<TcpFabric>(
            TcpFabricOptions{.polling = options.polling, .huge_pages = options.huge_pages, .secret = secret}, pool));
  }
  return fabric;
}

}  // namespace cell

// cellctl: makes secrets, derives them, and replaces them.
#include <sys/random.h>

#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/zookeeper/digest_file.h"
#include "cell/io/file/private_file.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/keyring.h"
#include "cell/layout/identity.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"

namespace cell {
namespace {

Secret NewSecret() {
  Key key;
  CELL_CHECK_EQ(::getrandom(key.data(), key.size(), 0), static_cast<ssize_t>(key.size()));
  return ClusterSecret(key);
}

absl::StatusOr<Secret> ClustersSecret(const std::string& path) {
  ASSIGN_OR_RETURN(const Keyring keys, ReadSecretFile(path));
  const std::optional<Secret> cluster = keys.Cluster();
  if (!cluster.has_value()) {
    return absl::InvalidArgumentError(fmt::format("{} has no secret of a cluster, only of identities", path));
  }
  return *cluster;
}

absl::Status Derive(const CtlFlags& flags) {
  const std::optional<Identity> who = ParseIdentity(flags.who);
  if (!who.has_value()) {
    return absl::InvalidArgumentError(
        fmt::format("{} is not client/NAME, operator/NAME or server/NAME, where NAME has 1 to {} of: letters, digits, "
                    "- _ . : @ +",
                    ForMessage(flags.who), kIdentityNameBytesMax));
  }
  ASSIGN_OR_RETURN(const Secret cluster, ClustersSecret(flags.file));
  return WriteSecretFile(flags.to, Keyring({SecretOf(cluster, *who)}), /*replaces=*/false);
}

absl::Status Rotate(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const Secret before, ClustersSecret(flags.file));
  return WriteSecretFile(flags.file, Keyring({NewSecret(), before}), /*replaces=*/true);
}

absl::Status Retire(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const Secret newest, ClustersSecret(flags.file));
  return WriteSecretFile(flags.file, Keyring({newest}), /*replaces=*/true);
}

absl::Status DeriveReader(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const std::string digest, ReadZooKeeperDigest(flags.file));
  if (IsReader(digest)) {
    return absl::InvalidArgumentError(fmt::format("{} has credentials that only read already", flags.file));
  }
  return WritePrivateFile(flags.to, ReaderOf(digest) + "\n", /*replaces=*/false);
}

int Report(const absl::Status& status) { return status.ok() ? kDone : Fail(status); }

}  // namespace

int SecretNew(Client*, const CtlFlags& flags) {
  return Report(WriteSecretFile(flags.file, Keyring({NewSecret()}), /*replaces=*/false));
}

int SecretFor(Client*, const CtlFlags& flags) { return Report(Derive(flags)); }
int SecretRotate(Client*, const CtlFlags& flags) { return Report(Rotate(flags)); }
int SecretRetire(Client*, const CtlFlags& flags) { return Report(Retire(flags)); }

int SecretReader(Client*, const CtlFlags& flags) { return Report(DeriveReader(flags)); }

int SecretShow(Client*, const CtlFlags& flags) {
  const absl::StatusOr<Keyring> keys = ReadSecretFile(flags.file);
  if (!keys.ok()) return Fail(keys.status());
  nlohmann::json list = nlohmann::json::array();
  for (const Secret& secret : keys->secrets()) {
    const std::string who = secret.owner.has_value() ? ToString(*secret.owner) : "cluster";
    std::string id;
    for (const std::byte byte : secret.id) id += fmt::format("{:02x}", static_cast<int>(byte));
    list.push_back({{"who", who}, {"id", id}});
    if (!flags.json()) fmt::print("{:<24}  {}\n", who, id);
  }
  if (flags.json()) fmt::print("{}\n", list.dump());
  return kDone;
}

}  // namespace cell

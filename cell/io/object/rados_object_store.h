// RadosObjectStore is a pool of Ceph RADOS, by librados. An object's epoch is its xattr "epoch", ten decimal digits,
// and its entries are its omap. An update is one operation of the OSD that has the object, which replicates it.
//
// A pool that is full refuses updates that add something (ResourceExhausted) and does not let them wait. A client that
// the cluster's blocklist names gets Unavailable. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/io/object/object_store.h"

namespace cell {

class RadosObjectStore : public ObjectStore {
 public:
  struct Options {
    std::string pool;
    std::string conf = {};  // Path of a ceph.conf. Empty: what CEPH_CONF names, or the usual places.
    std::string user = {};  // Without "client.". Empty: admin.
    int patience_s = 15;    // Each call ends within about this time, also if no monitor or OSD answers.
  };
  // Connects to the monitors. Returns NotFound if there is no such file or pool, PermissionDenied if the cluster does
  // not know the client (the keyring), and Unavailable if no monitor answers. The messages say what to do.
  static absl::StatusOr<std::unique_ptr<RadosObjectStore>> Connect(const Options& options);
  ~RadosObjectStore() override;

  absl::Status Update(const std::string& name, const ObjectUpdate& update) override;
  absl::StatusOr<Head> ReadHead(const std::string& name) override;
  absl::StatusOr<size_t> Read(const std::string& name, uint64_t offset, MutableBytes to) override;
  absl::StatusOr<uint64_t> Size(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override;

 private:
  struct Cluster;  // Hides librados.

  explicit RadosObjectStore(std::unique_ptr<Cluster> cluster);

  const std::unique_ptr<Cluster> cluster_;
};

}  // namespace cell

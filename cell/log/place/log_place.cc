#include "cell/log/place/log_place.h"

#include <random>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/object/rados_object_store.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_directory.h"
#include "cell/log/object_log_store.h"
#include "cell/log/place/log_pool.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::string_view kDirectory = "dir:";
constexpr std::string_view kRados = "rados:";
constexpr std::string_view kUser = "?user=";

// A pool, and the store of logs on it.
class RadosLogStore : public ObjectLogStore {
 public:
  explicit RadosLogStore(std::unique_ptr<RadosObjectStore> objects)
      : ObjectLogStore(objects.get(), {.nonce = [] { return std::random_device()(); }}), objects_(std::move(objects)) {}
  ~RadosLogStore() override = default;

  ObjectStore* objects() { return objects_.get(); }

 private:
  const std::unique_ptr<RadosObjectStore> objects_;
};

absl::StatusOr<std::shared_ptr<RadosLogStore>> Connect(const LogPlace& place) {
  ASSIGN_OR_RETURN(std::unique_ptr<RadosObjectStore> objects,
                   RadosObjectStore::Connect({.pool = place.pool, .conf = place.ceph_conf, .user = place.ceph_user}));
  return std::make_shared<RadosLogStore>(std::move(objects));
}

std::shared_ptr<LogStore> InDirectory(const LogPlace& place) {
  static PosixFiles files;
  return std::make_shared<DirectoryLogStore>(&files, place.directory);
}

}  // namespace

absl::StatusOr<LogPlace> LogPlace::Parse(std::string_view text) {
  const auto wrong = [text] {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not a place for logs: dir:PATH, rados:POOL, or rados:POOL@PATH-OF-CEPH.CONF, with "
                    "?user=NAME behind it for Ceph's user client.NAME",
                    std::string(text)));
  };
  LogPlace place;
  if (text.starts_with(kDirectory)) {
    place.directory = text.substr(kDirectory.size());
    if (place.directory.empty()) return wrong();
    return place;
  }
  if (!text.starts_with(kRados)) return wrong();
  std::string_view rest = text.substr(kRados.size());
  if (const size_t user = rest.rfind(kUser); user != std::string_view::npos) {
    place.ceph_user = rest.substr(user + kUser.size());
    rest = rest.substr(0, user);
    if (place.ceph_user.empty()) return wrong();
  }
  const size_t at = rest.find('@');
  place.pool = rest.substr(0, at);
  if (at != std::string_view::npos) place.ceph_conf = rest.substr(at + 1);
  if (place.pool.empty() || (at != std::string_view::npos && place.ceph_conf.empty())) return wrong();
  return place;
}

std::string LogPlace::ToText() const {
  if (!in_rados()) return fmt::format("{}{}", kDirectory, directory);
  return fmt::format("{}{}{}{}{}{}", kRados, pool, ceph_conf.empty() ? "" : "@", ceph_conf,
                     ceph_user.empty() ? "" : kUser, ceph_user);
}

absl::StatusOr<std::shared_ptr<LogStore>> OpenLogs(const LogPlace& place, const std::string& uuid) {
  if (!place.in_rados()) {
    RETURN_IF_ERROR(ClaimLogDirectory(place.directory, uuid));
    return InDirectory(place);
  }
  if (uuid.empty()) {
    return absl::FailedPreconditionError(
        "this cluster was made by a release before clusters had a UUID, and cannot keep its logs in a pool: give it a "
        "directory (--log-store dir:PATH)");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<RadosLogStore> store, Connect(place));
  RETURN_IF_ERROR(ClaimLogPool(store->objects(), place.pool, uuid));
  return store;
}

absl::StatusOr<std::shared_ptr<LogStore>> ViewLogs(const LogPlace& place) {
  if (place.in_rados()) return Connect(place);
  return InDirectory(place);
}

absl::Status CheckLogs(const LogPlace& place, const std::string& uuid) {
  if (!place.in_rados()) return CheckLogDirectory(place.directory, uuid);
  ASSIGN_OR_RETURN(const std::shared_ptr<RadosLogStore> store, Connect(place));
  return CheckLogPool(store->objects(), place.pool, uuid);
}

absl::Status RemoveLogs(const LogPlace& place, const std::string& uuid) {
  if (!place.in_rados()) return RemoveLogDirectory(place.directory, uuid);
  ASSIGN_OR_RETURN(const std::shared_ptr<RadosLogStore> store, Connect(place));
  RETURN_IF_ERROR(CheckLogPool(store->objects(), place.pool, uuid));
  RETURN_IF_ERROR(store->RemoveAll());
  return ReleaseLogPool(store->objects());
}

}  // namespace cell

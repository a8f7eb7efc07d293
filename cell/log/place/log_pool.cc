#include "cell/log/place/log_pool.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr const char* kClaim = "cluster";
constexpr const char* kFormat = "1";  // Of names, entries and the size of objects (object_log_store.h).

absl::Status Anothers(const std::string& pool, const std::string& whose, const std::string& uuid) {
  return absl::FailedPreconditionError(fmt::format(
      "the pool {} has the logs of {}, but this is cluster {}: give this cluster's pool, or one without logs "
      "(--log-store)",
      pool, whose, uuid));
}

// Checks a pool. Sets *claimed if the cluster's claim is there.
absl::Status Check(ObjectStore* objects, const std::string& pool, const std::string& uuid, bool* claimed) {
  const absl::StatusOr<ObjectStore::Head> claim = objects->ReadHead(kClaim);
  *claimed = claim.ok();
  if (absl::IsNotFound(claim.status())) return absl::OkStatus();
  RETURN_IF_ERROR(claim.status());
  const auto entry = [&](const char* key) {
    const auto it = claim->entries.find(key);
    return it == claim->entries.end() ? std::string() : it->second;
  };
  if (entry("uuid") != uuid) return Anothers(pool, "cluster " + entry("uuid"), uuid);
  if (entry("format") == kFormat) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "the logs in the pool {} have format {}, but this release knows format {}: use the release that wrote "
      "them, or a later one",
      pool, entry("format"), kFormat));
}

}  // namespace

absl::Status CheckLogPool(ObjectStore* objects, const std::string& pool, const std::string& uuid) {
  bool claimed = false;
  return Check(objects, pool, uuid, &claimed);
}

absl::Status ClaimLogPool(ObjectStore* objects, const std::string& pool, const std::string& uuid) {
  bool claimed = false;
  RETURN_IF_ERROR(Check(objects, pool, uuid, &claimed));
  if (claimed) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> names, objects->List());
  const bool logs =
      std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("region-"); });
  if (logs) {
    // Another server of the cluster may have claimed the pool since.
    RETURN_IF_ERROR(Check(objects, pool, uuid, &claimed));
    return claimed ? absl::OkStatus() : Anothers(pool, "a cluster that is not named there", uuid);
  }
  absl::Status made = objects->Update(kClaim, {.create = true, .set = {{"uuid", uuid}, {"format", kFormat}}});
  if (absl::IsAlreadyExists(made)) return Check(objects, pool, uuid, &claimed);
  return made;
}

absl::Status ReleaseLogPool(ObjectStore* objects) {
  absl::Status removed = objects->Update(kClaim, {.remove_object = true});
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace cell

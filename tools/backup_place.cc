#include "tools/backup_place.h"

#include <algorithm>
#include <random>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/io/object/rados_object_store.h"
#include "cell/log/place/log_place.h"
#include "fmt/format.h"
#include "tools/backup_directory.h"
#include "tools/backup_pool.h"

namespace cell {
namespace {

constexpr std::string_view kRados = "rados:";
constexpr std::string_view kDirectory = "dir:";  // As in the place of logs. It can be left out.
constexpr const char* kDefaultName = "backup";

uint64_t RandomNumber() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// A pool, and a backup in it.
class RadosBackup : public BackupPlace {
 public:
  RadosBackup(std::unique_ptr<RadosObjectStore> objects, const std::string& name, const std::string& place)
      : objects_(std::move(objects)), backup_(objects_.get(), name, place, {.attempt = RandomNumber}) {}

  absl::StatusOr<std::unique_ptr<UnfinishedBackup>> Begin() override { return backup_.Begin(); }
  absl::StatusOr<std::unique_ptr<BackupBytes>> Open() override { return backup_.Open(); }
  absl::StatusOr<bool> Remove() override { return backup_.Remove(); }

 private:
  const std::unique_ptr<RadosObjectStore> objects_;
  PoolBackup backup_;
};

absl::Status IsNoPlace(const std::string& text) {
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a place for a backup: a directory (DIR or dir:DIR), or "
                  "rados:POOL[/NAME][@PATH-OF-CEPH.CONF][?user=USER], "
                  "where NAME has letters, digits, '.', '_' and '-'",
                  text));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BackupPlace>> OpenBackupPlace(const std::string& text) {
  if (!text.starts_with(kRados)) {
    const std::string directory = text.substr(text.starts_with(kDirectory) ? kDirectory.size() : 0);
    if (directory.empty()) return IsNoPlace(text);
    return std::make_unique<DirectoryBackup>(directory);
  }
  const size_t end = std::min<size_t>(text.find_first_of("@?"), text.size());
  const size_t slash = text.find('/');
  const bool named = slash < end;
  const std::string name = named ? text.substr(slash + 1, end - slash - 1) : kDefaultName;
  const absl::StatusOr<LogPlace> pool = LogPlace::Parse(text.substr(0, named ? slash : end) + text.substr(end));
  if (!pool.ok() || !PoolBackup::IsName(name)) return IsNoPlace(text);
  ASSIGN_OR_RETURN(std::unique_ptr<RadosObjectStore> objects,
                   RadosObjectStore::Connect({.pool = pool->pool, .conf = pool->ceph_conf, .user = pool->ceph_user}));
  return std::make_unique<RadosBackup>(std::move(objects), name, text);
}

}  // namespace cell

// PoolBackup is a backup in a store of objects (object_store.h). The bytes of backup_file.h are cut into pieces.
//
//   backup-NAME               the head, without bytes. Its entries:
//                               format       1
//                               attempt      a number, new for each attempt to make this backup, 16 hex digits
//                               piece_bytes  the size of the pieces, except for the last
//                               bytes        the size of the backup. It is there once the backup is
//   backup-NAME/ATTEMPT.N     piece N = 0, 1, ... It is made by one update, and never changed
//
// An attempt claims the head, writes its pieces, and then sets `bytes`, on the condition that the head is still its
// own. So at most one attempt for each claim succeeds, and a head with `bytes` has all its pieces.
//
// Pieces that are in the way are listed before the head is claimed or removed, and removed afterwards: an attempt that
// had written one of them has lost its claim by then, and can no longer succeed, whatever of it still arrives. Their
// names come never again.
//
// Logs in the same pool have other names (object_log_store.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/io/object/object_store.h"
#include "tools/backup_place.h"

namespace cell {

class PoolBackup : public BackupPlace {
 public:
  struct Options {
    // Less than kObjectAppendMax and kObjectReadMax.
    size_t piece_bytes = size_t{4} << 20;
    // Returns a number that no other attempt, in any process, has got; almost certainly.
    std::function<uint64_t()> attempt = {};
  };
  // `name` is the backup's, and `place` what messages call it. `objects` must outlive this and what it returns.
  PoolBackup(ObjectStore* objects, const std::string& name, const std::string& place, Options options);

  // Returns whether a backup can have this name: letters, digits, '.', '_' and '-', at most 100.
  static bool IsName(std::string_view name);

  absl::StatusOr<std::unique_ptr<UnfinishedBackup>> Begin() override;
  absl::StatusOr<std::unique_ptr<BackupBytes>> Open() override;
  // Also removes a backup whose head is damaged. Returns Aborted if another attempt has claimed it meanwhile.
  absl::StatusOr<bool> Remove() override;

 private:
  struct Head {
    std::string attempt;
    size_t piece_bytes = 0;
    std::optional<uint64_t> bytes = {};
  };

  absl::Status Damaged(const std::string& what) const;
  absl::StatusOr<Head> ReadHead();
  absl::StatusOr<std::vector<std::string>> ListPieces();

  ObjectStore* const objects_;
  const std::string head_;
  const std::string place_;
  const Options options_;
};

}  // namespace cell

// Where `cellctl backup` puts a backup, and `cellctl restore` finds it: in a directory, or in a pool of Ceph RADOS.
//
//   DIR or dir:DIR                       the file DIR/backup (backup_directory.h)
//   rados:POOL[/NAME][@CONF][?user=USER] objects of the pool (backup_pool.h). NAME is "backup" if it is not given. CONF
//                                        and USER are those of log_place.h.
//
// A place has at most one backup. It is there as a whole, from Commit on, or not at all. Not thread-safe. All calls
// block; those of a pool end within some 15 s each if Ceph does not answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"

namespace cell {

// Reads the bytes of a backup.
class BackupBytes {
 public:
  virtual ~BackupBytes() = default;

  // Returns what messages call the backup.
  virtual const std::string& name() const = 0;
  virtual absl::StatusOr<uint64_t> Size() = 0;
  // Reads [offset, offset + to.size()) as far as the backup goes, and returns the number of bytes. All three are
  // multiples of a block (Files::Read).
  virtual absl::StatusOr<size_t> Read(uint64_t offset, MutableBytes to) = 0;
};

// Writes a backup. The destructor removes what was written, unless Commit has made it a backup.
class UnfinishedBackup : public BackupBytes {
 public:
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Ends the backup: all of it is stored, and can be read. Nothing may be appended afterwards.
  virtual absl::Status Finish() = 0;
  // Makes it the place's backup. REQUIRES: Finish.
  virtual absl::Status Commit() = 0;
};

class BackupPlace {
 public:
  virtual ~BackupPlace() = default;

  // Begins a backup, and removes what one that was killed has left. Returns AlreadyExists if there is a backup.
  virtual absl::StatusOr<std::unique_ptr<UnfinishedBackup>> Begin() = 0;
  // Opens the backup. Returns NotFound if the place has none.
  virtual absl::StatusOr<std::unique_ptr<BackupBytes>> Open() = 0;
  // Removes the backup, and what one that was killed has left. Returns false if there was nothing.
  virtual absl::StatusOr<bool> Remove() = 0;
};

// Opens the place that `text` names. Returns InvalidArgument if the text has neither of the two forms above. Other
// errors are those of RadosObjectStore::Connect.
absl::StatusOr<std::unique_ptr<BackupPlace>> OpenBackupPlace(const std::string& text);

}  // namespace cell

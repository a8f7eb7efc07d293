// DirectoryBackup is the backup in a directory: the file `backup` (backup_file.h). While it is written its name is
// `backup.unfinished`. A signal that ends the program removes that file.
#pragma once

#include <memory>
#include <string>

#include "tools/backup_place.h"

namespace cell {

class DirectoryBackup : public BackupPlace {
 public:
  explicit DirectoryBackup(const std::string& directory) : directory_(directory) {}

  absl::StatusOr<std::unique_ptr<UnfinishedBackup>> Begin() override;
  absl::StatusOr<std::unique_ptr<BackupBytes>> Open() override;
  absl::StatusOr<bool> Remove() override;

 private:
  std::string path() const { return directory_ + "/backup"; }
  std::string unfinished() const { return path() + ".unfinished"; }

  const std::string directory_;
};

}  // namespace cell

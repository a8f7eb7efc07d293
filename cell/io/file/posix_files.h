// PosixFiles is the file system of this machine, or one that it has mounted.
//
// Files and directories that it makes are this user's alone (modes 0600 and 0700): they hold what the store holds.
#pragma once

#include "cell/io/file/files.h"
#include "cell/io/net/descriptors.h"

namespace cell {

class PosixFiles : public Files {
 public:
  // Keeps `reserve` descriptors free for itself, so that an open works while connections have taken all others. The
  // default is enough for logs, of which each thread opens one, or its directory, at a time.
  explicit PosixFiles(size_t reserve = 16) : reserve_(reserve) {}

  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<File>> CreateLog(const std::string& path) override;
  absl::StatusOr<size_t> Read(const std::string& path, uint64_t offset, MutableBytes to) override;
  absl::StatusOr<std::optional<std::string>> ReadText(const std::string& path) override;
  absl::StatusOr<FileStamp> Stamp(const std::string& path) override;
  absl::StatusOr<uint64_t> Size(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::StatusOr<std::unique_ptr<Directory>> Open(const std::string& directory) override;
  absl::Status MakeDirectory(const std::string& directory) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& directory) override;

 private:
  Fd OpenFd(const std::string& path, int flags);

  DescriptorReserve reserve_;
};

}  // namespace cell

#include "tools/backup_directory.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/io/file/posix_files.h"
#include "fmt/format.h"

namespace cell {
namespace {

// Removes a file if a signal ends the program during this object's lifetime. There is one object at a time.
class RemovedBySignal {
 public:
  explicit RemovedBySignal(const std::string& path) {
    path_ = path;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action {};
      action.sa_handler = &RemoveAndEnd;
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      // A signal that is ignored stays ignored, for example with nohup.
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  RemovedBySignal(const RemovedBySignal&) = delete;
  RemovedBySignal& operator=(const RemovedBySignal&) = delete;
  ~RemovedBySignal() {
    for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  static void RemoveAndEnd(int signal) {
    ::unlink(path_.c_str());
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }

  inline static std::string path_;  // Does not change while the handlers are installed.
  std::array<struct sigaction, kSignals.size()> before_;
};

class FileBytes : public BackupBytes {
 public:
  explicit FileBytes(const std::string& path) : path_(path) {}

  const std::string& name() const override { return path_; }
  absl::StatusOr<uint64_t> Size() override { return PosixFiles().Size(path_); }
  absl::StatusOr<size_t> Read(uint64_t offset, MutableBytes to) override {
    return PosixFiles().Read(path_, offset, to);
  }

 private:
  const std::string path_;
};

class UnfinishedFile : public UnfinishedBackup {
 public:
  UnfinishedFile(const std::string& directory, const std::string& path, const std::string& unfinished)
      : directory_(directory), path_(path), bytes_(unfinished), removed_(unfinished) {}
  ~UnfinishedFile() override {
    if (!committed_) (void)files_.Remove(name());
  }

  absl::Status Create() {
    ASSIGN_OR_RETURN(file_, files_.Create(name()));
    return absl::OkStatus();
  }
  const std::string& name() const override { return bytes_.name(); }
  absl::StatusOr<uint64_t> Size() override { return bytes_.Size(); }
  absl::StatusOr<size_t> Read(uint64_t offset, MutableBytes to) override { return bytes_.Read(offset, to); }
  absl::Status Append(std::string_view bytes) override { return file_->Append(bytes); }
  absl::Status Finish() override { return file_->Sync(); }
  absl::Status Commit() override {
    RETURN_IF_ERROR(files_.Rename(name(), path_));
    committed_ = true;
    return files_.SyncDirectory(directory_);
  }

 private:
  const std::string directory_;
  const std::string path_;
  PosixFiles files_;
  FileBytes bytes_;
  const RemovedBySignal removed_;
  std::unique_ptr<File> file_;
  bool committed_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<UnfinishedBackup>> DirectoryBackup::Begin() {
  PosixFiles files;
  if (files.Size(path()).ok()) {
    return absl::AlreadyExistsError(fmt::format("there is already a backup in {}", directory_));
  }
  RETURN_IF_ERROR(files.MakeDirectory(directory_));
  (void)files.Remove(unfinished());
  auto backup = std::make_unique<UnfinishedFile>(directory_, path(), unfinished());
  RETURN_IF_ERROR(backup->Create());
  return backup;
}

absl::StatusOr<std::unique_ptr<BackupBytes>> DirectoryBackup::Open() {
  if (PosixFiles().Size(path()).ok()) return std::make_unique<FileBytes>(path());
  return absl::NotFoundError(fmt::format("there is no backup in {}", directory_));
}

absl::StatusOr<bool> DirectoryBackup::Remove() {
  PosixFiles files;
  bool any = false;
  for (const std::string& file : {path(), unfinished()}) {
    absl::Status removed = files.Remove(file);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    any = any || removed.ok();
  }
  if (any) RETURN_IF_ERROR(files.SyncDirectory(directory_));
  return any;
}

}  // namespace cell

// SimDisk and SimFiles are a file system in memory that several hosts share, for simulations and tests.
//
// All hosts see what a host has written at once. When that host crashes, synced data survives. For other data a seed
// decides for each sector whether it survives, so the last write is torn in any order. Unsynced changes of names in a
// directory survive or not likewise. Any call can be made to fail, to find the disk full or no descriptor left, or to
// take time (SimFiber). Not thread-safe.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "cell/base/random.h"
#include "cell/io/file/files.h"

namespace cell {

class SimFiles;

class SimDisk {
 public:
  explicit SimDisk(uint64_t seed) : random_(seed) {}
  // Makes a host's view. The disk must outlive it.
  std::unique_ptr<SimFiles> NewHost();

  // Makes hosts keep their writes private until they sync them, as some shared file systems do. Otherwise all hosts see
  // them at once.
  void set_cached(bool cached) { cached_ = cached; }

  // For tests that damage files.
  std::string* bytes(const std::string& path) { return &files_.at(path)->bytes; }
  std::vector<std::string> paths() const;

 private:
  friend class SimFiles;
  friend class SimFile;

  struct Content {
    std::string bytes;
    FileStamp stamp;                              // Its `written_ns` counts the writes.
    size_t synced = 0;                            // Number of synced bytes.
    std::vector<std::pair<size_t, size_t>> lost;  // [begin, end): dropped by a sync that failed.
    SimFiles* writer = nullptr;
  };
  using Names = std::map<std::string, std::shared_ptr<Content>>;
  // A change of a directory that is not synced.
  struct Change {
    SimFiles* by;
    std::string directory;
    std::function<void()> undo;
    std::string removed = "";  // The directory that this change removed, if it did.
  };

  Random random_;
  uint64_t made_ = 0;  // Number of files that were ever made.
  Names files_;
  std::map<std::string, bool> directories_;
  std::vector<Change> changes_;
  bool cached_ = false;
};

class SimFiles : public Files {
 public:
  absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) override { return Make(path, 1); }
  absl::StatusOr<std::unique_ptr<File>> CreateLog(const std::string& path) override { return Make(path, kBlockBytes); }
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

  // Simulates a power loss of the machine: data that it has not synced is lost, in part. Its files cannot be written
  // any more.
  void Crash();
  // Makes the n-th call from now on (0: the next) fail with `status`. Later calls succeed.
  void FailAt(uint64_t n, absl::Status status) {
    fail_in_ = n;
    failure_ = std::move(status);
  }
  uint64_t calls() const { return calls_; }
  // Fills this host's disk: calls that make or append to a file fail with ResourceExhausted.
  void set_full(bool full) { full_ = full; }
  // Sets how many times longer listing and syncing directories takes.
  void set_directory_slowness(int slowness) { directory_slowness_ = slowness; }
  // Sets whether this host's process has no descriptor left: nothing can be opened, and open files still work.
  void set_descriptors_gone(bool gone) { descriptors_gone_ = gone; }
  // Returns the number of files that are open for writing.
  int open_files() const { return open_files_; }

 private:
  friend class SimDisk;
  friend class SimFile;

  explicit SimFiles(SimDisk* disk) : disk_(disk) {}
  absl::StatusOr<std::unique_ptr<File>> Make(const std::string& path, size_t block_bytes);
  // Says what a call needs besides the disk.
  enum class Needs { kNothing, kDescriptor, kRoom, kDescriptorAndRoom, kDirectory, kOpenDirectory };
  // Counts a call, which may have to wait or to fail.
  absl::Status Call(Needs needs);
  // Returns what this host sees of a file.
  std::string_view Seen(const SimDisk::Content& content) const;
  absl::StatusOr<std::vector<std::string>> ListNow(const std::string& directory) const;
  absl::Status RemoveDirectoryNow(const std::string& path);

  SimDisk* const disk_;
  uint64_t generation_ = 0;  // Counts crashes.
  uint64_t calls_ = 0;
  uint64_t fail_in_ = 0;
  absl::Status failure_;
  bool full_ = false;
  bool descriptors_gone_ = false;
  int directory_slowness_ = 1;
  int open_files_ = 0;
};

}  // namespace cell

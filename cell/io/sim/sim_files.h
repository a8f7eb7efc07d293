// SimDisk and SimFiles: a file system in memory that several hosts share, for simulations and tests.
//
// What a host has written is seen by all at once, and survives that host's crash as far as it was synced. Of the rest a
// seed decides, sector by sector, what is still there: so the last write is torn, and in any order. Names that a
// directory was not synced for come and go likewise. Any call can be made to fail, to find the disk full or no
// descriptor left, and to take its time (SimFiber). Not thread-safe.
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
  // A host's view. The disk must outlive it.
  std::unique_ptr<SimFiles> NewHost();

  // Hosts keep what they write to themselves until they sync it, as some shared file systems do. Else all see it at once.
  void set_cached(bool cached) { cached_ = cached; }

  // For tests that damage what is there.
  std::string* bytes(const std::string& path) { return &files_.at(path)->bytes; }
  std::vector<std::string> paths() const;

 private:
  friend class SimFiles;
  friend class SimFile;

  struct Content {
    std::string bytes;
    size_t synced = 0;                            // Of them, the first.
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
  absl::StatusOr<uint64_t> Size(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;
  absl::StatusOr<std::unique_ptr<Directory>> Open(const std::string& directory) override;
  absl::Status MakeDirectory(const std::string& directory) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& directory) override;

  // The machine loses power: what it has not synced is lost, in part. Its files can be written no more.
  void Crash();
  // The n-th call from now on (0: the next) fails with `status`, and nothing after it unless told again.
  void FailAt(uint64_t n, absl::Status status) {
    fail_in_ = n;
    failure_ = std::move(status);
  }
  uint64_t calls() const { return calls_; }
  // Nothing more fits on this host's disk: what makes or appends to a file fails with ResourceExhausted.
  void set_full(bool full) { full_ = full; }
  // Listing and syncing directories takes so many times as long.
  void set_directory_slowness(int slowness) { directory_slowness_ = slowness; }
  // Whether this host's process has no descriptor left: nothing can be opened, and what is open works.
  void set_descriptors_gone(bool gone) { descriptors_gone_ = gone; }
  // Files that are open to be written.
  int open_files() const { return open_files_; }

 private:
  friend class SimDisk;
  friend class SimFile;

  explicit SimFiles(SimDisk* disk) : disk_(disk) {}
  absl::StatusOr<std::unique_ptr<File>> Make(const std::string& path, size_t block_bytes);
  // What a call needs, besides the disk.
  enum class Needs { kNothing, kDescriptor, kRoom, kDescriptorAndRoom, kDirectory, kOpenDirectory };
  // Counts a call, which may have to wait, or to fail.
  absl::Status Call(Needs needs);
  // What this host sees of a file.
  std::string_view Seen(const SimDisk::Content& content) const;
  absl::StatusOr<std::vector<std::string>> ListNow(const std::string& directory) const;
  absl::Status RemoveDirectoryNow(const std::string& path);

  SimDisk* const disk_;
  uint64_t generation_ = 0;  // Of crashes.
  uint64_t calls_ = 0;
  uint64_t fail_in_ = 0;
  absl::Status failure_;
  bool full_ = false;
  bool descriptors_gone_ = false;
  int directory_slowness_ = 1;
  int open_files_ = 0;
};

}  // namespace cell

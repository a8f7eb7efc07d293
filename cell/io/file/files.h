// Files: the seam to the file system.
//
// Every call may block for as long as a disk takes, so none is made on a worker's thread (thread_pool.h). Files are
// only ever appended to by whoever created them, and read by anyone: all that a log needs, and what a shared file
// system keeps its promises for. Any thread may call; one File is one thread's at a time.
//
// Errors. NotFound, AlreadyExists: as they say. ResourceExhausted: the disk is full. Unavailable: anything else that
// the system said, with its words; IsOutOfDescriptors (descriptors.h) says whether it was for want of a descriptor, and
// nothing was done then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/io/file/block_buffer.h"

namespace cell {

// A file that is being written.
class File {
 public:
  virtual ~File() = default;
  // After an error any part of `bytes` may be there.
  virtual absl::Status Append(std::string_view bytes) = 0;
  // What was appended survives a crash of the machine from now on. After an error nothing is known of what was not
  // synced before, whatever a second try says: the system may have dropped it (Rebello et al., "Can applications
  // recover from fsync failures?", USENIX ATC 2020).
  virtual absl::Status Sync() = 0;
};

// A directory that is open: what is listed of it takes no further descriptor. One thread's at a time.
class Directory {
 public:
  virtual ~Directory() = default;
  // As Files::List: what is there now.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
};

class Files {
 public:
  virtual ~Files() = default;
  // The name survives a crash after SyncDirectory.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) = 0;
  // The same, for what is synced often: what was appended is followed by zeros to a multiple of kBlockBytes. So it
  // can be written in whole blocks, past the page cache.
  virtual absl::StatusOr<std::unique_ptr<File>> CreateLog(const std::string& path) = 0;
  // Of [offset, offset + to.size()), what there is; how much that is. All three are of whole blocks (BlockBuffer): what
  // is read once, and is large, goes past the page cache.
  virtual absl::StatusOr<size_t> Read(const std::string& path, uint64_t offset, MutableBytes to) = 0;
  virtual absl::StatusOr<uint64_t> Size(const std::string& path) = 0;
  // The names in a directory, sorted. NotFound: there is no such directory.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Directory>> Open(const std::string& directory) = 0;
  // With those above it; they survive a crash. Ok if it is there.
  virtual absl::Status MakeDirectory(const std::string& directory) = 0;
  // Replaces `to` if it is there.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // A file, or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Files made, renamed and removed in it stay so.
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;
};

}  // namespace cell

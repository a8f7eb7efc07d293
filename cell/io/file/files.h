// Files is the interface to the file system.
//
// Every call may block for as long as a disk takes, so none may be made on a worker's thread (thread_pool.h). Only the
// creator of a file appends to it, and anyone reads it. Logs need no more, and shared file systems guarantee this much.
// Thread-safe; a File must be used by one thread at a time.
//
// Errors: NotFound and AlreadyExists as usual. ResourceExhausted if the disk is full. Unavailable for any other system
// error, with its text; IsOutOfDescriptors (descriptors.h) says whether there was no descriptor left, in which case
// nothing was done.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/io/file/block_buffer.h"

namespace cell {

// Writes a file.
class File {
 public:
  virtual ~File() = default;
  // Appends bytes. After an error any part of `bytes` may be there.
  virtual absl::Status Append(std::string_view bytes) = 0;
  // Makes everything that was appended survive a crash of the machine. After an error the state of the unsynced data is
  // unknown, even if a second call succeeds: the system may have dropped it (Rebello et al., "Can applications recover
  // from fsync failures?", USENIX ATC 2020).
  virtual absl::Status Sync() = 0;
};

// An open directory, which can be listed without another descriptor. One thread at a time.
class Directory {
 public:
  virtual ~Directory() = default;
  // Works like Files::List, and returns the current content.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
};

// Tells one content of a file from another: it changes when the file is written, or replaced by another file.
struct FileStamp {
  uint64_t file = 0;
  int64_t written_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

class Files {
 public:
  virtual ~Files() = default;
  // Creates a file. Its name survives a crash after SyncDirectory.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(const std::string& path) = 0;
  // Creates a file that is synced often. Zeros up to a multiple of kBlockBytes follow what was appended, so that it can
  // be written in whole blocks, past the page cache.
  virtual absl::StatusOr<std::unique_ptr<File>> CreateLog(const std::string& path) = 0;
  // Reads [offset, offset + to.size()) as far as the file goes, and returns the number of bytes. All three are
  // multiples of a block (BlockBuffer). Reads past the page cache, for data that is large and read once.
  virtual absl::StatusOr<size_t> Read(const std::string& path, uint64_t offset, MutableBytes to) = 0;
  // Returns the content of a small text file, or nullopt if there is no such file. Returns PermissionDenied if this
  // user may not read it, and Unavailable for what is not a regular file and for a file of more than kTextFileBytesMax
  // (text_file.h).
  virtual absl::StatusOr<std::optional<std::string>> ReadText(const std::string& path) = 0;
  virtual absl::StatusOr<FileStamp> Stamp(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> Size(const std::string& path) = 0;
  // Returns the sorted names in a directory. Returns NotFound if there is no such directory.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Directory>> Open(const std::string& directory) = 0;
  // Makes a directory and those above it, which then survive a crash. Returns OK if it exists.
  virtual absl::Status MakeDirectory(const std::string& directory) = 0;
  // Renames a file, and replaces `to` if it exists.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Removes a file, or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Makes the creations, renames and removals in a directory survive a crash.
  virtual absl::Status SyncDirectory(const std::string& directory) = 0;
};

}  // namespace cell

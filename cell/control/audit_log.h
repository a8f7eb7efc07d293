// AuditLog appends lines to a server's audit log (audit_line.h), a file that only its user can read.
//
// The file is opened for appending, never through a symbolic link. When it is full it is renamed to FILE.1, the former
// FILE.1 to FILE.2, and so on; the oldest is removed. A line is in the file as a whole or not at all, as far as the
// file system says: after an error the file is cut back to where it was.
//
// Thread-safe. Calls block for as long as the disk takes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/io/net/fd.h"

namespace cell {

// AuditSink is the interface by which the control plane writes the audit log. Tests implement it themselves.
class AuditSink {
 public:
  virtual ~AuditSink() = default;
  // Appends a line. With `sync`, returns when it will survive a crash of the machine.
  virtual absl::Status Append(std::string_view line, bool sync) = 0;
};

class AuditLog : public AuditSink {
 public:
  struct Limits {
    uint64_t file_bytes_max = uint64_t{16} << 20;
    int kept = 8;  // Files, besides the one that is being written.
  };

  // Opens or creates the file. Returns InvalidArgument if that is not possible, or if it belongs to another user.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path, const Limits& limits);
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& path) { return Open(path, Limits()); }

  absl::Status Append(std::string_view line, bool sync) override;

 private:
  AuditLog(std::string path, const Limits& limits) : path_(std::move(path)), limits_(limits) {}

  absl::Status OpenFile();
  absl::Status Rotate();

  const std::string path_;
  const Limits limits_;
  std::mutex mutex_;
  Fd fd_;               // Guarded by mutex_; not valid after a rotation that failed half-way.
  uint64_t bytes_ = 0;  // Size of the file. Guarded by mutex_.
};

}  // namespace cell

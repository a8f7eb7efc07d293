// LogFile is a server's log in a file of limited size. When the file is full, it is renamed to PATH.1, the one before
// to PATH.2, and so on; the oldest is deleted. So whatever is logged, and however often, the disk does not fill up.
//
// Its files are this user's alone (mode 0600). A symbolic link is not followed.
//
// Thread-safe, as a sink of spdlog.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/net/fd.h"
#include "spdlog/sinks/base_sink.h"

namespace cell {

class LogFile : public spdlog::sinks::base_sink<std::mutex> {
 public:
  struct Limits {
    uint64_t bytes_max = uint64_t{16} << 20;  // Of one file; a file ends behind the message that reaches it.
    int files = 4;                            // With the one that is written. At least 1.
  };

  // Opens the file and appends to it. Returns FailedPrecondition if there is something else at `path` than a file that
  // is this user's alone, and InvalidArgument if it cannot be opened.
  static absl::StatusOr<std::shared_ptr<LogFile>> Open(const std::string& path, const Limits& limits);

  // From now on, what this process writes to its standard output and standard error goes to the file that is written,
  // and what it had before is closed.
  void TakeStandardStreams();

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  LogFile(const std::string& path, const Limits& limits, Fd file, uint64_t bytes)
      : path_(path), limits_(limits), file_(std::move(file)), bytes_(bytes) {}
  std::string Old(int number) const;
  // Begins a new file. If that fails, goes on with the old one.
  void Rotate();
  void PointStandardStreams();

  const std::string path_;
  const Limits limits_;
  // Guarded by the sink's mutex_.
  Fd file_;
  uint64_t bytes_;
  bool has_streams_ = false;
};

}  // namespace cell

// Small text files, read whole. Each call may block, so none is made on a worker's thread. Thread-safe.
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cell/io/net/fd.h"

namespace cell {

// No text file that these functions read is larger.
inline constexpr size_t kTextFileBytesMax = size_t{64} << 20;

// Returns the content of a regular file, or nullopt if there is no such file. Returns PermissionDenied if this user may
// not read it, and Unavailable for any other error, for what is not a regular file, and for one that is too large.
absl::StatusOr<std::optional<std::string>> ReadTextFile(const std::string& path);

// Works like ReadTextFile, with `fd` from open(path, kTextFileFlags). REQUIRES: errno is that of the open if `fd` is
// not valid. Files::ReadText uses it, which opens files in its own way.
inline constexpr int kTextFileFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // A FIFO without a writer does not block.
absl::StatusOr<std::optional<std::string>> ReadTextFrom(const Fd& fd, const std::string& path);

// Returns the content of a file that the user named. Returns InvalidArgument if it cannot be read or is not there.
absl::StatusOr<std::string> ReadNamedFile(const std::string& path);

// Returns the first line of a file, without its end; nullopt if the file cannot be read.
std::optional<std::string> FirstLineOf(const std::string& path);

}  // namespace cell

// Writes small files that nobody but their owner may read: secrets and keys. Each call blocks. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cell {

// Writes a file with mode 0600, and syncs it. Follows no link. With `replaces`, the file has its old content or the new
// one at each moment, and it need not exist; without, returns AlreadyExists if it does. Returns Unavailable if it
// cannot be written; nothing has changed then.
absl::Status WritePrivateFile(const std::string& path, std::string_view text, bool replaces);

}  // namespace cell

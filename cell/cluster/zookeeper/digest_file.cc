#include "cell/cluster/zookeeper/digest_file.h"

#include <sys/stat.h>

#include <string_view>

#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {

absl::StatusOr<std::string> ReadZooKeeperDigest(const std::string& path) {
  ASSIGN_OR_RETURN(std::string digest, ReadNamedFile(path));
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 0077) != 0) {
    return absl::InvalidArgumentError(fmt::format("others can read {}: run chmod 600 {}", path, path));
  }
  while (digest.ends_with('\n') || digest.ends_with('\r')) digest.pop_back();
  const size_t colon = digest.find(':');
  const bool one_line = digest.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos;
  if (colon == std::string::npos || colon == 0 || colon + 1 == digest.size() || !one_line) {
    return absl::InvalidArgumentError(fmt::format("{} must have one line, USER:PASSWORD", path));
  }
  return digest;
}

}  // namespace cell

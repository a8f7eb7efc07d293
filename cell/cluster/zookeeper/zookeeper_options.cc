#include "cell/cluster/zookeeper/zookeeper_options.h"

#include <string_view>

#include "fmt/format.h"

namespace cell {

absl::StatusOr<ZooKeeperOptions> ZooKeeperOptions::Parse(const std::string& uri) {
  constexpr std::string_view kScheme = "zk://";
  const size_t slash = uri.find('/', kScheme.size());
  if (uri.compare(0, kScheme.size(), kScheme) != 0 || slash == std::string::npos || slash == kScheme.size() ||
      slash + 1 == uri.size() || uri.find('/', slash + 1) != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not zk://HOST:PORT[,HOST:PORT...]/NAME", uri));
  }
  ZooKeeperOptions options;
  options.servers = uri.substr(kScheme.size(), slash - kScheme.size());
  options.name = uri.substr(slash + 1);
  return options;
}

}  // namespace cell

#include "cell/cmd/exposure.h"

#include <string_view>

#include "fmt/format.h"

namespace cell {
namespace {

// Returns whether only processes of this machine reach an address. Names other than localhost may be anything.
bool IsLoopback(std::string_view address) {
  std::string_view host = address;
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (host.find(':') == host.rfind(':')) {
    host = host.substr(0, host.find(':'));
  }
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8 as four numbers: "127.example.org" is a name.
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::vector<Opening> OpenToStrangers(const Exposure& exposure) {
  std::vector<Opening> open;
  if (!exposure.control.empty() && !exposure.control_tls) {
    open.push_back({fmt::format("everyone who can reach the control plane at {} can drain this server and drop tables",
                                exposure.control),
                    "give --tls-certificate, --tls-key and --tls-authority, or leave out --control"});
  }
  for (const std::string& address : exposure.data) {
    if (exposure.secret || (exposure.certificate && !exposure.data_rdma) || IsLoopback(address)) continue;
    open.push_back({fmt::format("everyone who can reach {} can read and change the store", address),
                    "give --secret-file FILE (CELL_SECRET_FILE; cellctl secret new FILE makes one)"});
  }
  if (!exposure.zookeeper.empty() && !exposure.zookeeper_digest) {
    open.push_back({fmt::format("everyone who can reach the ZooKeeper of {} can change which server has which keys",
                                exposure.zookeeper),
                    "give --zookeeper-digest-file FILE (CELL_ZOOKEEPER_DIGEST_FILE) with one line USER:PASSWORD"});
  }
  return open;
}

std::string RefusalOf(const std::vector<Opening>& open) {
  std::string text;
  for (const Opening& one : open) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", one.what, one.close);
  return "this server would be open to strangers, so it does not start (--insecure starts it all the same): " + text;
}

std::string WarningOf(const std::vector<Opening>& open) {
  std::string text;
  for (const Opening& one : open) text += fmt::format("{}{}", text.empty() ? "" : "; ", one.what);
  return "--insecure: " + text;
}

}  // namespace cell

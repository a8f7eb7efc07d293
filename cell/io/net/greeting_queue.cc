#include "cell/io/net/greeting_queue.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kNetworkBytes = 8;

}  // namespace

std::string HostOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address, sizeof(ipv4));
    return std::string(reinterpret_cast<const char*>(&ipv4.sin_addr), sizeof(ipv4.sin_addr));
  }
  if (address.ss_family != AF_INET6) return "";
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address, sizeof(ipv6));
  const std::string bytes(reinterpret_cast<const char*>(&ipv6.sin6_addr), sizeof(ipv6.sin6_addr));
  // An IPv4 address in an IPv6 socket has its bytes at the end.
  return IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr) ? bytes.substr(12) : bytes.substr(0, kNetworkBytes);
}

std::string TextOf(const sockaddr_storage& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const socklen_t bytes = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return address.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace cell

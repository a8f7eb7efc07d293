#include "cell/io/net/greeting_queue.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace cell {
namespace {

sockaddr_storage Ip(const char* text, uint16_t port = 80) {
  sockaddr_storage address{};
  sockaddr_in ipv4{};
  sockaddr_in6 ipv6{};
  if (::inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&address, &ipv4, sizeof(ipv4));
  } else {
    EXPECT_EQ(::inet_pton(AF_INET6, text, &ipv6.sin6_addr), 1) << text;
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    std::memcpy(&address, &ipv6, sizeof(ipv6));
  }
  return address;
}

TEST(HostOf, IsAnIpv4AddressOrAnIpv6Network) {
  EXPECT_EQ(HostOf(Ip("10.0.0.1", 1)), HostOf(Ip("10.0.0.1", 2)));
  EXPECT_NE(HostOf(Ip("10.0.0.1")), HostOf(Ip("10.0.0.2")));
  EXPECT_EQ(HostOf(Ip("::ffff:10.0.0.1")), HostOf(Ip("10.0.0.1")));
  EXPECT_NE(HostOf(Ip("::ffff:10.0.0.1")), HostOf(Ip("::ffff:10.0.0.2")));
  EXPECT_EQ(HostOf(Ip("2001:db8::1")), HostOf(Ip("2001:db8::2:3")));
  EXPECT_NE(HostOf(Ip("2001:db8:0:1::1")), HostOf(Ip("2001:db8:0:2::1")));
}

TEST(TextOf, IsWhatIsWrittenElsewhere) {
  EXPECT_EQ(TextOf(Ip("10.0.0.1", 4711)), "10.0.0.1:4711");
  EXPECT_EQ(TextOf(Ip("2001:db8::1", 80)), "[2001:db8::1]:80");
  EXPECT_EQ(TextOf({}), "an unknown address");
}

TEST(GreetingQueue, WhoHasMostMakesRoom) {
  GreetingQueue queue;
  EXPECT_EQ(queue.InTheWay(), std::nullopt);
  EXPECT_EQ(queue.Oldest(), std::nullopt);
  queue.Add(1, "good");
  uint64_t number = 2;
  for (; number < 12; ++number) queue.Add(number, "greedy");
  for (uint64_t gone = 2; gone < 11; ++gone) {  // Its own, from the oldest on.
    EXPECT_EQ(queue.InTheWay(), gone);
    queue.Remove(gone);
  }
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.Oldest(), 1u);
  queue.Add(number++, "good");
  EXPECT_EQ(queue.InTheWay(), 1u);
  queue.Remove(1);
  queue.Remove(1);  // It is forgotten already.
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.Oldest(), 11u);
}

}  // namespace
}  // namespace cell

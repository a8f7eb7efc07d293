// GreetingQueue knows the connections of a listener that have not greeted yet, and says which one is to go when there
// are too many: the oldest one of the host that has most. So a host that opens many keeps out only itself.
//
// Not thread-safe.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cell {

// Returns what identifies the host of an address: an IPv4 address, or the network (/64) of an IPv6 address.
std::string HostOf(const sockaddr_storage& address);
// Returns the address as text, IP:PORT.
std::string TextOf(const sockaddr_storage& address);

class GreetingQueue {
 public:
  // `number` is the connection's, larger than all that were added before.
  void Add(uint64_t number, std::string_view host) {
    const auto it = counts_.try_emplace(std::string(host), 0).first;
    ++it->second;
    waiting_.emplace_hint(waiting_.end(), number, it);
  }
  // Forgets a connection that has greeted or is closed. Does nothing if it was forgotten before.
  void Remove(uint64_t number) {
    const auto it = waiting_.find(number);
    if (it == waiting_.end()) return;
    if (--it->second->second == 0) counts_.erase(it->second);
    waiting_.erase(it);
  }

  size_t size() const { return waiting_.size(); }
  // Returns the number of the oldest connection, or nullopt if the queue is empty.
  std::optional<uint64_t> Oldest() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.begin()->first);
  }
  // Returns the number of the connection to close when another one needs its place, or nullopt if the queue is empty.
  // Takes time in proportion to size().
  std::optional<uint64_t> InTheWay() const {
    if (waiting_.empty()) return std::nullopt;
    const auto most = std::max_element(counts_.begin(), counts_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return std::find_if(waiting_.begin(), waiting_.end(),
                        [most](const auto& one) {
                          return one.second->second == most->second && one.second->first == most->first;
                        })
        ->first;
  }

 private:
  using Counts = std::map<std::string, size_t, std::less<>>;

  Counts counts_;                                 // By host.
  std::map<uint64_t, Counts::iterator> waiting_;  // By number: by age.
};

}  // namespace cell

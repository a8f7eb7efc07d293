#include "cell/gateway/cursors.h"

#include <utility>

namespace cell::gateway {

uint64_t Cursors::Add(std::string key) {
  const std::lock_guard lock(mutex_);
  uint64_t cursor = 0;
  while (cursor == 0 || keys_.contains(cursor)) cursor = random_() >> 11;  // JavaScript has integers of 53 bits.
  keys_.emplace(cursor, std::move(key));
  oldest_first_.push_back(cursor);
  if (keys_.size() > kMost) {
    keys_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  return cursor;
}

std::optional<std::string> Cursors::Find(uint64_t cursor) {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(cursor);
  return found == keys_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace cell::gateway

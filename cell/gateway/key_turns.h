// KeyTurns lets coroutines of one thread that change the same key do so one after the other, in the order in which they
// came. They would disturb each other otherwise, and begin again and again. Not thread-safe.
#pragma once

#include <coroutine>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cell::gateway {

class KeyTurns {
 public:
  // Awaits this key's turn, which lasts until Leave.
  struct Awaiter {
    KeyTurns* turns;
    const std::string& key;
    bool await_ready() const { return turns->waiting_.try_emplace(key).second; }
    void await_suspend(std::coroutine_handle<> waiter) const { turns->waiting_[key].push_back(waiter); }
    void await_resume() const {}
  };
  Awaiter Enter(const std::string& key) { return {this, key}; }

  void Leave(const std::string& key) {
    const auto found = waiting_.find(key);
    if (found->second.empty()) {
      waiting_.erase(found);
      return;
    }
    next_.push_back(found->second.front());
    found->second.pop_front();
  }

  // Goes on with those whose turn has come. Returns whether there were any.
  bool Resume() {
    std::vector<std::coroutine_handle<>> now;
    now.swap(next_);
    for (const std::coroutine_handle<> waiter : now) waiter.resume();
    return !now.empty();
  }

 private:
  std::unordered_map<std::string, std::deque<std::coroutine_handle<>>> waiting_;  // Keys that have their turn.
  std::vector<std::coroutine_handle<>> next_;
};

}  // namespace cell::gateway

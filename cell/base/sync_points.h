// Names points in protocols: a process may die at each of them without harm. A test, or a server's --stop-at, may act
// there.
#pragma once

#include <functional>
#include <string_view>

namespace cell {

class SyncPoints {
 public:
  // Called at each point with its name. Set by tests; null by default, in which case nothing happens.
  std::function<void(std::string_view point)> on_reach;

  void Reach(std::string_view point) const {
    if (on_reach) [[unlikely]]
      on_reach(point);
  }
};

}  // namespace cell

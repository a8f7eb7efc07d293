// Named points in protocols whose every step must be safe to die at. A test, or a server's --stop-at, may act there.
#pragma once

#include <functional>
#include <string_view>

namespace cell {

class SyncPoints {
 public:
  // Called at each point with its name; a test sets it. Null: nothing happens.
  std::function<void(std::string_view point)> on_reach;

  void Reach(std::string_view point) const {
    if (on_reach) [[unlikely]]
      on_reach(point);
  }
};

}  // namespace cell

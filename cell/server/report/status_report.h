// StatusReport collects a worker's state and statistics, to which each of its parts contributes. Not thread-safe: used
// only on the worker's thread.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace cell {

class StatusReport {
 public:
  // Adds fields to the JSON object of a status.
  using Part = std::function<void(nlohmann::json* status)>;

  // Registers `part`, which is called for each later status. The objects that it uses must outlive the last status.
  void Add(Part part) { parts_.push_back(std::move(part)); }
  // Adds the fields of all parts.
  void AddTo(nlohmann::json* status) const {
    for (const Part& part : parts_) part(status);
  }

 private:
  std::vector<Part> parts_;
};

}  // namespace cell

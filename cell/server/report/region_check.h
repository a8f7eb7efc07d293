// RegionCheck checks one region of a worker in slices, between which the worker does other things (TreeCheck and
// HashCheck say what holds of a region that is written meanwhile). It refers to the region by its id only, so it may be
// split, moved or dropped between two slices.
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/server/region/regions.h"
#include "cell/tree/tree_check.h"
#include "pilaf/hash_check.h"

namespace cell {

class RegionCheck {
 public:
  // `regions` must outlive this. `server` is the name of the server, for errors.
  RegionCheck(const Regions* regions, std::string server, uint32_t region)
      : regions_(regions), server_(std::move(server)), id_(region) {}

  // Continues, until about `bytes` bytes were verified. Returns whether the check has ended. Returns NotFound if the
  // region is not held here (any more), FailedPrecondition if it is being filled, and Aborted if it is being joined: it
  // has what nothing leads to yet. The check has ended then, too.
  absl::StatusOr<bool> Step(int64_t bytes = INT64_MAX);

  // After the end:
  // Returns a meganode's TreeReport without its routes, or a summary of a part of a table, as JSON. "whole" says
  // whether the region was compared as a whole.
  std::string Report() const;
  // Returns a meganode's routes from number `first` on, as many as fit into a message, as JSON: [[key, region], ...].
  // REQUIRES: is_tree().
  std::string Routes(size_t first) const;
  bool is_tree() const { return tree_.has_value(); }

 private:
  // The check begins again this often if the region was written or being changed meanwhile: perhaps it is quiet then.
  static constexpr int kPassesMax = 2;

  absl::StatusOr<HeldRegion*> Find() const;
  void Begin(const HeldRegion& region);
  absl::StatusOr<bool> StepTree(const HeldRegion& region, int64_t bytes);
  absl::StatusOr<bool> StepHash(const HeldRegion& region, int64_t bytes);

  const Regions* const regions_;
  const std::string server_;
  const uint32_t id_;
  int passes_ = 0;
  uint64_t epoch_ = 0;
  // Exactly one of these two is set, from the first slice on.
  std::optional<TreeCheck> tree_;
  std::optional<HashCheck> hash_;
  std::string hash_report_;
};

}  // namespace cell

// RegionSplit moves the upper part of a region to a new region, step by step. Splitter drives it.
//
//   copy    some pairs at a time; writes to copied keys go to both regions, so that both are equal in the end
//   cut     the upper part belongs only to the new region, at once
//   clean   what the lower region still keeps of it is freed, a bit at a time
//
// There is one implementation for meganodes (cell/tree/meganode_split.h) and one for parts of Pilaf tables
// (pilaf/hash_split.h). Not thread-safe: only the thread that writes both regions may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/cluster/membership.h"
#include "cell/server/region/held_region.h"

namespace cell {

class RegionSplit {
 public:
  // How much is done in one step of the worker's loop.
  struct Pace {
    size_t copied = 64;  // Entries.
    size_t freed = 16;   // Nodes.
  };
  // The route by which the tier above learns of the new region.
  struct Route {
    uint8_t tier;
    std::string key;
  };

  // Chooses where to split a region: returns what its upper part covers, about half of it. Returns FailedPrecondition
  // if the region cannot be split.
  static absl::StatusOr<RegionContent> ChooseUpperPart(const HeldRegion& region);
  // Begins to split `lower`. `upper` is empty, and covers an upper part of what `lower` covers. Both must outlive the
  // result.
  static std::unique_ptr<RegionSplit> Begin(HeldRegion* lower, HeldRegion* upper, const Pace& pace);
  virtual ~RegionSplit() = default;

  // Copies as much as fits into `steps` steps. Returns true when all is copied. After an error, destroy this: `lower`
  // is unchanged.
  virtual absl::StatusOr<bool> Copy(size_t steps) = 0;
  // Returns OK if `upper` has taken all writes so far. If so, and if nothing is written any more, Cut does not fail.
  virtual const absl::Status& mirrored() const = 0;
  // Makes the next stamps of `upper` later than those that `lower` has given so far.
  virtual void TakeStamps() = 0;
  // Appends the record of the cut to the log of `lower`.
  virtual void LogCut() const = 0;
  // Makes the upper part belong only to `upper`. REQUIRES: Copy returned true.
  virtual absl::Status Cut() = 0;
  // Returns the change that records the cut in the region table. It may run on another thread, more than once.
  virtual Membership::TableChange TableChange() const = 0;
  // Returns nullopt for parts of tables, to which the region table leads.
  virtual std::optional<Route> route() const = 0;
  // Frees as much as one step allows. Returns true when nothing is left to free. REQUIRES: Cut succeeded.
  virtual bool Clean() = 0;
  // Describes the upper part for the server's log, for example as "keys from k5 on".
  virtual std::string UpperPart() const = 0;
};

}  // namespace cell

// RegionClaim is the exclusive right to change a held region as a whole: to split, migrate or checkpoint it.
#pragma once

#include <utility>

#include "cell/base/check.h"
#include "cell/server/region/held_region.h"

namespace cell {

// Holds a region's claim until it is destroyed, released, or moved from. If the region is dropped first, or another
// claim takes it over, it holds nothing from then on. Call it on the worker's thread.
class RegionClaim {
 public:
  // Makes a claim that holds nothing.
  RegionClaim() = default;
  // REQUIRES: the region is not claimed.
  RegionClaim(HeldRegion* region, ClaimPurpose purpose) : region_(region), purpose_(purpose) {
    CELL_CHECK_EQ(region_->claim_, nullptr);
    region_->claim_ = this;
  }
  RegionClaim(RegionClaim&& from) noexcept : region_(std::exchange(from.region_, nullptr)), purpose_(from.purpose_) {
    if (region_ != nullptr) region_->claim_ = this;
  }
  RegionClaim& operator=(RegionClaim&& from) noexcept {
    if (this == &from) return *this;
    Release();
    region_ = std::exchange(from.region_, nullptr);
    purpose_ = from.purpose_;
    if (region_ != nullptr) region_->claim_ = this;
    return *this;
  }
  ~RegionClaim() { Release(); }

  // Takes over the claim on a region that is claimed for kRouteBlocked. REQUIRES: region->claim_yields().
  static RegionClaim TakeOver(HeldRegion* region, ClaimPurpose purpose) {
    CELL_CHECK(region->claim_yields());
    RegionClaim claim = std::move(*region->claim_);
    claim.purpose_ = purpose;
    return claim;
  }

  // Returns null if it holds nothing.
  HeldRegion* region() const { return region_; }
  ClaimPurpose purpose() const { return purpose_; }
  void set_purpose(ClaimPurpose purpose) { purpose_ = purpose; }

  void Release() {
    if (region_ == nullptr) return;
    HeldRegion* const region = std::exchange(region_, nullptr);
    region->claim_ = nullptr;
    region->changed.Notify();
    region->unclaimed_->Notify();
  }

 private:
  friend class HeldRegion;

  HeldRegion* region_ = nullptr;
  ClaimPurpose purpose_ = ClaimPurpose::kFill;
};

// ---- The part of HeldRegion that concerns claims.

inline HeldRegion::~HeldRegion() {
  if (claim_ != nullptr) claim_->region_ = nullptr;
}

inline bool HeldRegion::claim_yields() const { return ClaimedFor(ClaimPurpose::kRouteBlocked) && !lost(); }

inline bool HeldRegion::ClaimedFor(ClaimPurpose purpose) const {
  return claim_ != nullptr && claim_->purpose_ == purpose;
}

}  // namespace cell

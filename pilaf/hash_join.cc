#include "pilaf/hash_join.h"

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"

namespace cell {

HashJoin::HashJoin(HashTable* lower, HashTable* upper) : lower_(lower), upper_(upper), range_(upper->range()) {
  CELL_CHECK(range_.first > 0 && lower->range().last == range_.first - 1 &&
             lower->geometry().bucket_bytes == upper->geometry().bucket_bytes && !lower->joined_range_.has_value());
  walk_.emplace(upper);
}

HashJoin::~HashJoin() { lower_->joined_range_.reset(); }

absl::Status HashJoin::CopyPair(const HashPair& pair) {
  return lower_->PutChecked(pair, HashKey(pair.key), Crc64(pair.value, Crc64(pair.key))).status();
}

absl::StatusOr<bool> HashJoin::Copy(uint32_t units) {
  if (widen_early_) lower_->joined_range_ = Both();
  if (walk_.has_value()) {
    if (upper_->keys() > 0 && lower_->fill() >= kFillMax) {
      return absl::ResourceExhaustedError(
          fmt::format("region {} has become too full to take what region {} has", lower_->region(), upper_->region()));
    }
    absl::Status status;
    const auto copy = [&](const HashPair& pair) {
      if (status.ok()) status = CopyPair(pair);
    };
    ASSIGN_OR_RETURN(const bool copied, walk_->Step(units, copy));
    RETURN_IF_ERROR(status);
    if (!copied) return false;
    walk_.reset();
    lower_->joined_range_ = Both();  // Buckets that are written from now on have it, too.
  }
  const uint32_t all = lower_->geometry().bucket_bytes == 0 ? 0 : lower_->geometry().units;
  for (const uint32_t end = std::min(all, widened_ + units); widened_ < end; ++widened_) lower_->WriteRange(widened_);
  return widened_ >= all;
}

void HashJoin::Finish() {
  CELL_CHECK(!walk_.has_value() && !cleaning_.has_value() && !finished_);
  if (!upper_stays_ && !Mutated(Mutant::kJoinedPartStays)) upper_->Invalidate();
  HashHeader header = lower_->hash_header();
  header.range = Both();
  ++header.joins;
  lower_->SetHeader(header);
  lower_->joined_range_.reset();
  finished_ = true;
}

bool HashJoin::Undo(uint32_t units) {
  CELL_CHECK(!finished_);
  if (!cleaning_.has_value()) {
    walk_.reset();
    lower_->joined_range_.reset();
    cleaning_.emplace(lower_);
  }
  return cleaning_->Step(units);
}

}  // namespace cell

#include "cell/server/request/key_state.h"

#include <algorithm>
#include <optional>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "pilaf/key_hash.h"

namespace cell {

absl::StatusOr<KeyState> StoredState(std::string_view key, const HeldRegion& region) {
  RETURN_IF_ERROR(region.store->CheckKey(key));
  KeyState state;
  if (region.tree != nullptr) {
    ASSIGN_OR_RETURN(const Meganode::Location location, region.tree->Find(key));
    if (!location.pair.has_value()) return state;
    ASSIGN_OR_RETURN(state.value, region.tree->VerifiedValueOf(key, *location.pair));
    state.exists = true;
    state.stamp = location.pair->stamp;
    state.expiry = location.pair->expiry;
    return state;
  }
  const std::optional<HashTable::Located> pair = region.hash->Locate(key, HashKey(key));
  if (!pair.has_value()) return state;
  state.exists = true;
  state.value = pair->value;
  state.expiry = pair->expiry;
  return state;
}

absl::StatusOr<KeyState> StateOf(std::string_view key, const HeldRegion& region) {
  RETURN_IF_ERROR(region.store->CheckKey(key));
  const auto last = std::find_if(region.pending.rbegin(), region.pending.rend(),
                                 [key](const PendingWrite& write) { return write.Changes(key); });
  if (last == region.pending.rend() || Mutated(Mutant::kConditionOfStored)) return StoredState(key, region);
  KeyState state;
  state.after_sequence = last->sequence;
  const PairStore::Prepared* put = last->kind == MessageKind::kPut ? &last->prepared : nullptr;
  if (last->commits != nullptr) (void)last->commits->WriteOf(key, &put);
  if (put == nullptr || region.store->Expired(put->expiry)) return state;
  state.exists = true;
  if (region.tree != nullptr) state.stamp = last->commits != nullptr ? last->commits->stamp : put->stamp;
  state.expiry = put->expiry;
  state.value = region.store->PreparedValue(*put, key);
  return state;
}

absl::StatusOr<bool> Holds(const WriteCondition& condition, const KeyState& state) {
  switch (condition.kind) {
    case ConditionKind::kAbsent:
      return !state.exists;
    case ConditionKind::kPresent:
      return state.exists;
    case ConditionKind::kStamp:
      if (!state.exists) return false;
      if (state.stamp != 0) return state.stamp == condition.stamp;
      return absl::InvalidArgumentError(
          "pairs of tables have no stamps: a condition can be that the key is absent or present, or has a value; "
          "nothing was written");
    case ConditionKind::kValue:
      return state.exists && state.value == condition.value;
  }
  return false;
}

}  // namespace cell

#include "cell/region/outcomes.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kForgetAtSizeMin = 256;
constexpr uint64_t kForgetEveryNs = 100'000'000;

}  // namespace

absl::StatusOr<const Outcome*> Outcomes::Find(const RequestId& id, uint32_t fingerprint) const {
  const auto it = by_slot_.find(SlotOf(id));
  if (it == by_slot_.end() || it->second.id.number < id.number) {
    return static_cast<const Outcome*>(nullptr);
  }
  const Outcome& outcome = it->second;
  if (outcome.id.number > id.number) {
    return absl::FailedPreconditionError("a later request of this client's slot has been served; nothing was written");
  }
  if (outcome.fingerprint == fingerprint && outcome.id.until == id.until) return &outcome;
  return absl::InvalidArgumentError("another request had this id; nothing was written");
}

const Outcome* Outcomes::Find(const RequestId& id) const {
  const auto it = by_slot_.find(SlotOf(id));
  return it == by_slot_.end() || it->second.id.number != id.number ? nullptr : &it->second;
}

absl::Status Outcomes::MakeRoom(const RequestId& id, uint32_t user, uint64_t last_stamp) {
  const auto count_of = [&] {
    const auto its = by_user_.find(user);
    return its == by_user_.end() ? 0 : its->second;
  };
  const bool much = by_slot_.size() >= forget_at_size_ || count_of() >= max_ / 2;
  if (much && last_stamp >= forget_at_stamp_) {
    Forget(last_stamp);
    forget_at_size_ = std::min(std::max(kForgetAtSizeMin, 2 * by_slot_.size()), max_);
    forget_at_stamp_ = last_stamp + kForgetEveryNs;
  }
  if (by_slot_.contains(SlotOf(id))) return absl::OkStatus();
  if (by_slot_.size() < max_ && count_of() < max_ / 2) return absl::OkStatus();
  return absl::UnavailableError(
      fmt::format("too many functions were applied, or transactions committed, in this region by {} within a minute, "
                  "each with a new id; nothing was written",
                  by_slot_.size() < max_ ? "this user" : "all users"));
}

void Outcomes::Remember(Outcome outcome) {
  const auto [it, is_new] = by_slot_.try_emplace(SlotOf(outcome.id));
  if (!is_new && it->second.id.number > outcome.id.number) return;
  if (!is_new && --by_user_[it->second.user] == 0) by_user_.erase(it->second.user);
  if (!is_new) open_ -= it->second.open;
  open_ += outcome.open;
  ++by_user_[outcome.user];
  it->second = std::move(outcome);
}

void Outcomes::Remember(const Outcomes& others) {
  for (const auto& [slot, outcome] : others.by_slot_) {
    // What this region knows of a request is newer, or says more: a transaction's primary knows who has to hear of it.
    const auto known = by_slot_.find(slot);
    if (known != by_slot_.end() && known->second.id.number >= outcome.id.number) continue;
    Outcome its = outcome;
    its.sequence = 0;  // It is a number of another log.
    Remember(std::move(its));
  }
}

void Outcomes::Forget(uint64_t last_stamp) {
  for (auto it = by_slot_.begin(); it != by_slot_.end();) {
    const auto next = std::next(it);
    if (it->second.id.until < last_stamp && (!it->second.open || Mutated(Mutant::kOpenForgotten))) {
      open_ -= it->second.open;
      if (--by_user_[it->second.user] == 0) by_user_.erase(it->second.user);
      by_slot_.erase(it);
    }
    it = next;
  }
}

}  // namespace cell

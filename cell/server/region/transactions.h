// Transactions are those of which a region has a part: prepared, or committed and not applied yet
// (docs/transactions.md).
//
//   prepared   its keys are held (KeyLocks), its writes have room, and its record, if it writes, is in the log
//   committed  the decision is in the log. Once it is on disk, the writes are applied and the keys released
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cell/layout/transaction.h"
#include "cell/region/key_locks.h"
#include "cell/region/pair_store.h"
#include "fmt/format.h"

namespace cell {

inline KeyLocks::Owner OwnerOf(const RequestId& id) { return {id.client, id.slot, id.number}; }

struct RegionTransaction {
  RegionTransaction(const PreparedPart& its, int64_t now_ns)
      : id(its.id),
        fingerprint(its.fingerprint),
        user(its.user),
        primary(its.primary),
        others(its.others),
        part(its.part),
        operations(*ParseOperations(part)),
        stamp(its.stamp),
        since_ns(now_ns) {}
  RegionTransaction(const RegionTransaction&) = delete;
  RegionTransaction& operator=(const RegionTransaction&) = delete;

  KeyLocks::Owner owner() const { return OwnerOf(id); }
  PreparedPart prepared() const { return {id, stamp, fingerprint, user, primary, others, part}; }
  bool writes() const {
    for (const PartOperation& operation : operations) {
      if (operation.writes()) return true;
    }
    return false;
  }
  // Returns what it writes to a key, and sets *put to the put that was prepared for that; null if it does not.
  const PartOperation* WriteOf(std::string_view key, const PairStore::Prepared** put) const {
    size_t puts_before = 0;
    for (const PartOperation& operation : operations) {
      const bool is_put = operation.kind == PartOperationKind::kPut;
      if (operation.writes() && operation.key == key) {
        *put = is_put ? &puts[puts_before] : nullptr;
        return &operation;
      }
      puts_before += is_put;
    }
    return nullptr;
  }

  const RequestId id;
  const uint32_t fingerprint;
  const uint32_t user;
  const uint32_t primary;  // Id of the region whose log decides. 0: it writes nothing.
  const std::string others;
  const std::string part;
  const std::vector<PartOperation> operations;  // They point into `part`.
  uint64_t stamp;                               // From when it was prepared; once it is committed, that of its writes.
  const int64_t since_ns;
  std::vector<PairStore::Prepared> puts;  // Of its puts, in their order.
  bool held = false;                      // Its keys are held.
  bool logged = false;                    // It has a record in the log.
  bool committed = false;
  uint64_t sequence = 0;  // Of the record that says what it is. 0: there is no log.
};

class Transactions {
 public:
  using Owner = KeyLocks::Owner;
  // How many there may be in a region, and how many bytes their parts may have. One user may have half of each.
  static constexpr size_t kMax = 4096;
  static constexpr size_t kBytesMax = size_t{16} << 20;

  RegionTransaction* Find(const RequestId& id) const {
    const auto it = by_owner_.find(OwnerOf(id));
    return it == by_owner_.end() ? nullptr : it->second.get();
  }
  // Returns Unavailable if there may not be one more of this user with a part of this size.
  absl::Status CheckRoom(uint32_t user, size_t part_bytes) const {
    const auto it = by_user_.find(user);
    const Used its = it == by_user_.end() ? Used{} : it->second;
    const bool fits = by_owner_.size() < kMax && bytes_ + part_bytes <= kBytesMax;
    if (fits && its.count < kMax / 2 && its.bytes + part_bytes <= kBytesMax / 2) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("there are too many transactions of {} in this region that have not ended; nothing was written",
                    fits ? "this user" : "all users"));
  }
  void Add(std::shared_ptr<RegionTransaction> transaction) {
    bytes_ += transaction->part.size();
    by_user_[transaction->user].bytes += transaction->part.size();
    ++by_user_[transaction->user].count;
    puts_ += transaction->puts.size();
    const Owner owner = transaction->owner();
    by_owner_.insert_or_assign(owner, std::move(transaction));
  }
  // Returns it, so that it lives as long as the caller needs it.
  std::shared_ptr<RegionTransaction> Remove(const RequestId& id) {
    const std::shared_ptr<RegionTransaction> removed = by_owner_.extract(OwnerOf(id)).mapped();
    puts_ -= removed->puts.size();
    bytes_ -= removed->part.size();
    Used& its = by_user_[removed->user];
    its.bytes -= removed->part.size();
    if (--its.count == 0) by_user_.erase(removed->user);
    return removed;
  }
  const std::map<Owner, std::shared_ptr<RegionTransaction>>& all() const { return by_owner_; }
  size_t size() const { return by_owner_.size(); }
  bool empty() const { return by_owner_.empty(); }
  // Returns how many puts are prepared.
  size_t puts() const { return puts_; }

  KeyLocks locks;

 private:
  std::map<Owner, std::shared_ptr<RegionTransaction>> by_owner_;
  size_t puts_ = 0;
  size_t bytes_ = 0;
  struct Used {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<uint32_t, Used> by_user_;
};

}  // namespace cell

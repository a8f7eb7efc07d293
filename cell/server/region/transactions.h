// Transactions are those of which a region has a part: prepared, or committed and not applied yet
// (docs/transactions.md).
//
//   prepared   its keys are held (KeyLocks), its writes have room, and its record, if it writes, is in the log
//   committed  the decision is in the log. Once it is on disk, the writes are applied and the keys released
//
// Not thread-safe: used only on the worker's thread.
#pragma once

#include <algorithm>
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
        written(WrittenBy(operations)),
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
    const auto at = std::lower_bound(written.begin(), written.end(), key,
                                     [](const Written& one, std::string_view wanted) { return one.key < wanted; });
    if (at == written.end() || at->key != key) return nullptr;
    const PartOperation& operation = operations[at->operation];
    *put = operation.kind == PartOperationKind::kPut ? &puts[at->puts_before] : nullptr;
    return &operation;
  }

  // A key that it writes: the index of its operation, and how many puts come before that.
  struct Written {
    std::string_view key;
    size_t operation;
    size_t puts_before;
  };
  static std::vector<Written> WrittenBy(const std::vector<PartOperation>& operations) {
    std::vector<Written> written;
    size_t puts_before = 0;
    for (size_t i = 0; i < operations.size(); ++i) {
      if (operations[i].writes()) written.push_back({operations[i].key, i, puts_before});
      puts_before += operations[i].kind == PartOperationKind::kPut;
    }
    std::sort(written.begin(), written.end(), [](const Written& a, const Written& b) { return a.key < b.key; });
    return written;
  }

  const RequestId id;
  const uint32_t fingerprint;
  const uint32_t user;
  const uint32_t primary;  // Id of the region whose log decides. 0: it writes nothing.
  const std::string others;
  const std::string part;
  const std::vector<PartOperation> operations;  // They point into `part`.
  const std::vector<Written> written;           // In the order of their keys.
  uint64_t stamp;                               // From when it was prepared; once it is committed, that of its writes.
  const int64_t since_ns;
  std::vector<PairStore::Prepared> puts;  // Of its puts, in their order.
  bool held = false;                      // Its keys are held.
  bool logged = false;                    // It has a record in the log.
  bool committed = false;
  bool aborting = false;           // Its abort is in the log. Its keys are held until that is on disk.
  Expiry expires = kNeverExpires;  // When the first of the pairs expires that it has read here.
  uint64_t sequence = 0;           // Of the record that says what it is. 0: there is no log.

  // Returns about how much memory it takes.
  size_t bytes() const { return BytesOf(part.size(), operations.size()); }
  static size_t BytesOf(size_t part_bytes, size_t operations) { return part_bytes + kBytesPerOperation * operations; }
  static constexpr size_t kBytesPerOperation = 300;
};

class Transactions {
 public:
  using Owner = KeyLocks::Owner;
  // How many there may be in a region, how much memory they may take, and how many ranges they may hold. One user may
  // have half of the first two.
  static constexpr size_t kMax = 4096;
  static constexpr size_t kBytesMax = size_t{64} << 20;
  static constexpr size_t kRangesMax = 4096;

  RegionTransaction* Find(const RequestId& id) const {
    const auto it = by_owner_.find(OwnerOf(id));
    return it == by_owner_.end() ? nullptr : it->second.get();
  }
  // Returns Unavailable if there may not be one more of this user of this size (RegionTransaction::BytesOf).
  absl::Status CheckRoom(uint32_t user, size_t bytes) const {
    const auto it = by_user_.find(user);
    const Used its = it == by_user_.end() ? Used{} : it->second;
    const bool fits = by_owner_.size() < kMax && bytes_ + bytes <= kBytesMax && locks.ranges() < kRangesMax;
    if (fits && its.count < kMax / 2 && its.bytes + bytes <= kBytesMax / 2) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("there are too many transactions of {} in this region that have not ended; nothing was written",
                    fits ? "this user" : "all users"));
  }
  void Add(std::shared_ptr<RegionTransaction> transaction) {
    bytes_ += transaction->bytes();
    by_user_[transaction->user].bytes += transaction->bytes();
    ++by_user_[transaction->user].count;
    puts_ += transaction->puts.size();
    writing_ += transaction->writes();
    const Owner owner = transaction->owner();
    by_owner_.insert_or_assign(owner, std::move(transaction));
  }
  // Returns it, so that it lives as long as the caller needs it.
  std::shared_ptr<RegionTransaction> Remove(const RequestId& id) {
    const std::shared_ptr<RegionTransaction> removed = by_owner_.extract(OwnerOf(id)).mapped();
    puts_ -= removed->puts.size();
    writing_ -= removed->writes();
    bytes_ -= removed->bytes();
    Used& its = by_user_[removed->user];
    its.bytes -= removed->bytes();
    if (--its.count == 0) by_user_.erase(removed->user);
    return removed;
  }
  const std::map<Owner, std::shared_ptr<RegionTransaction>>& all() const { return by_owner_; }
  size_t size() const { return by_owner_.size(); }
  bool empty() const { return by_owner_.empty(); }
  // Returns how many puts are prepared.
  size_t puts() const { return puts_; }
  // Returns how many of them write.
  size_t writing() const { return writing_; }

  KeyLocks locks;

 private:
  std::map<Owner, std::shared_ptr<RegionTransaction>> by_owner_;
  size_t puts_ = 0;
  size_t writing_ = 0;
  size_t bytes_ = 0;
  struct Used {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<uint32_t, Used> by_user_;
};

}  // namespace cell

// ObjectLogStore keeps logs in a store of objects (object_store.h) that is replicated over machines: with RADOS they
// survive the death of any of them.
//
//   region-7                                          the head: its epoch, and an entry for each part of the log
//   region-7/00000000000004d2.00000002.log.9f2c01ab.0 a part's bytes: PART.NONCE.0, PART.NONCE.1, ... of chunk_bytes
//                                                     each, except for the last
// Entries of the head:
//   00000000000004d2.00000002.log         "2 9f2c01ab": this segment has two objects with this nonce
//   00000000000004d2.00000002.checkpoint  the same for a checkpoint
//   +00000000000004d2.00000002.log        "3 9f2c01ab": objects up to the third may exist, and do not belong to the log
//                                         yet, unless the entry without + says so. "3 9f2c01ab going": they go
//   00000000000004d2.00000002.end         NoteEnd
//
// Fencing: each object has an epoch, and an owner's updates of head and segments have the condition that it is not
// higher than the owner's. Only single objects are atomic, so a fence raises the head's epoch first. From then on no
// owner of a lower epoch adds a part, or an object to one. Then the fence raises the epoch of the last object of each
// segment, the only one to which anybody appends. When it has returned, no append of a lower epoch can succeed any
// more, not even one that was sent before and is still under way (`cmpxattr` and `append` in one operation in RADOS).
// In the other order, a former owner could add an object that the fence has not seen.
//
// An object is entered with + before it is made, and without + once it exists. So an object that a dead owner has left
// is known by its entry, and a reader never looks for one that does not exist. The nonce, new for each attempt, keeps
// an update that arrives late from meeting the object of another attempt.
//
// Entries, epochs and objects that nobody can have left so are DataLoss, with the object's name. They stop the recovery
// of their region, and are removed with it.
//
// Thread-safe, as far as the store is; a LogWriter must be used by one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/io/object/object_store.h"
#include "cell/log/log_store.h"

namespace cell {

struct PartObjects;

class ObjectLogStore : public LogStore {
 public:
  struct Options {
    // Size of the objects of a part, except for the last. RADOS: at most osd_max_object_size, 128 MB.
    uint64_t chunk_bytes = uint64_t{32} << 20;
    // Appends are at most this long. At most kObjectAppendMax.
    size_t append_bytes = size_t{4} << 20;
    // Returns a number that no other attempt to make a part, in any process, has got; almost certainly.
    std::function<uint32_t()> nonce = {};
  };
  // `objects` must outlive this.
  ObjectLogStore(ObjectStore* objects, Options options);

  absl::StatusOr<bool> Has(uint32_t region) override;
  absl::StatusOr<uint32_t> LastEpoch(uint32_t region) override;
  absl::Status Fence(uint32_t region, uint32_t epoch) override;
  using LogStore::Open;
  absl::StatusOr<std::unique_ptr<LogWriter>> Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                  std::string_view first) override;
  absl::StatusOr<std::unique_ptr<LogWriter>> BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                             uint64_t sequence) override;
  absl::Status CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::Status DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::Status NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::StatusOr<uint64_t> NotedEnd(uint32_t region, uint64_t first_epoch) override;
  // The parts' names are PART.NONCE+N, for N objects.
  absl::StatusOr<std::vector<LogPart>> List(uint32_t region) override;
  // Read and Size return DataLoss if an object that should be there is not, or does not have the size that it should.
  absl::StatusOr<size_t> Read(uint32_t region, const LogPart& part, uint64_t offset, MutableBytes to) override;
  absl::StatusOr<uint64_t> Size(uint32_t region, const LogPart& part) override;
  absl::Status Trim(uint32_t region, uint32_t epoch, uint64_t sequence) override;
  absl::StatusOr<std::vector<uint32_t>> Regions() override;
  absl::Status Remove(uint32_t region, uint32_t last_epoch) override;
  // Also removes objects of regions that no head knows. (A former owner can leave one if it is fenced and dies between
  // the two.)
  absl::Status RemoveAll() override;
  absl::Status Probe(uint32_t region) override;

 private:
  class Writer;
  using Head = ObjectStore::Head;

  // Adds as many objects to a part as `first` needs, at least one, behind the `from` objects that it has: enters them
  // with +, makes them, and enters them without + if `joins`.
  absl::Status AddObjects(uint32_t region, uint32_t epoch, const std::string& part, const std::string& nonce,
                          uint32_t from, std::string_view first, bool joins);
  // Raises the epoch of the last object of a segment.
  absl::Status FenceObject(uint32_t region, uint32_t epoch, const std::string& name);
  // Removes the objects that entries with + name, and these entries, of all parts for which `is_old` says so.
  absl::Status RemoveUnfinished(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                                const std::function<bool(uint32_t epoch, uint64_t sequence)>& is_old);
  // Takes the parts out of the log, and then removes their objects.
  absl::Status RemoveParts(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                           const std::vector<std::string>& parts);
  // Removes parts, unfinished objects and noted ends up to an epoch. RemoveDamaged does so if entries are damaged, by
  // the names of entries and objects alone, for which it lists the whole store.
  absl::Status RemoveUpTo(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head, uint32_t last_epoch);
  absl::Status RemoveDamaged(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head, uint32_t last_epoch);
  // Removes the objects [from, count) of a part, whose entry with + says that they are going, and then that entry.
  absl::Status RemoveGoing(uint32_t region, std::optional<uint32_t> epoch_max, const std::string& part, uint32_t from,
                           const PartObjects& objects);
  absl::Status RemoveObject(const std::string& name);

  ObjectStore* const objects_;
  const Options options_;
};

}  // namespace cell

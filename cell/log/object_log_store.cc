#include "cell/log/object_log_store.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cell/base/check.h"
#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/log/log_parts.h"
#include "cell/log/object_entries.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::string_view kSegment = "log";
constexpr std::string_view kCheckpoint = "checkpoint";
constexpr std::string_view kEnd = "end";
constexpr std::string_view kRegionPrefix = "region-";
// More objects of a part are removed by their names, for which the whole store is listed.
constexpr uint32_t kRemovedOneByOneMax = 256;

std::string ObjectName(uint32_t region, std::string_view part, std::string_view nonce, uint64_t index) {
  return fmt::format("{}/{}.{}.{}", HeadOf(region), part, nonce, index);
}

// What List names a part, from which Read and Size find its objects: region-7/PART.NONCE+COUNT.
struct ListedPart {
  std::string objects;  // region-7/PART.NONCE
  uint32_t count = 0;

  static std::string Name(uint32_t region, std::string_view part, const PartObjects& objects) {
    return fmt::format("{}/{}.{}+{}", HeadOf(region), part, objects.nonce, objects.count);
  }
  static ListedPart Parse(const std::string& name) {
    const size_t plus = name.rfind('+');
    CELL_CHECK(plus != std::string::npos);  // List has made it.
    ListedPart listed{name.substr(0, plus), 0};
    CELL_CHECK_EQ(std::sscanf(name.c_str() + plus, "+%" SCNu32, &listed.count), 1);
    return listed;
  }
  std::string Object(uint64_t index) const { return fmt::format("{}.{}", objects, index); }
};

absl::Status DamagedObject(const std::string& object, const std::string& what) {
  return absl::DataLossError(fmt::format("the object {} of the log store is damaged: {}", object, what));
}

absl::Status Missing(const std::string& object) {
  return absl::DataLossError(
      fmt::format("the object {} is missing from the log store. Nothing was recovered from it, and nothing was "
                  "changed. Restore it, "
                  "or delete the cluster (//tools:wipe) and restore a backup (cellctl restore)",
                  object));
}

absl::Status NoLog(uint32_t region) { return absl::NotFoundError(fmt::format("there is no log of region {}", region)); }

// Returns what to tell an owner whose update was refused, with the status `refused`.
absl::Status WhyRefused(ObjectStore* objects, uint32_t region, uint32_t epoch,
                        const absl::Status& refused = absl::OkStatus()) {
  const absl::StatusOr<ObjectStore::Head> head = objects->ReadHead(HeadOf(region));
  if (absl::IsNotFound(head.status())) {
    return absl::NotFoundError(fmt::format("the log of region {} was removed", region));
  }
  if (!head.ok()) return head.status();
  if (head->epoch > epoch) {
    return absl::AbortedError(
        fmt::format("region {} belongs to another server since epoch {}; this server held it at "
                    "epoch {}",
                    region, head->epoch, epoch));
  }
  if (absl::IsNotFound(refused)) {
    return absl::DataLossError(
        fmt::format("the log of region {} lacks an object: {}", region, std::string(refused.message())));
  }
  return absl::UnavailableError(fmt::format("the log of region {} was changed by another attempt", region));
}

bool WasRefused(const absl::Status& status) { return absl::IsAborted(status) || absl::IsNotFound(status); }

}  // namespace

class ObjectLogStore::Writer : public LogWriter {
 public:
  // Appends to a part that has `count` objects, of which the last has `bytes` bytes.
  Writer(ObjectLogStore* store, uint32_t region, uint32_t epoch, std::string part, PartObjects objects, uint64_t bytes,
         bool joins)
      : store_(store),
        region_(region),
        epoch_(epoch),
        part_(std::move(part)),
        objects_(std::move(objects)),
        bytes_(bytes),
        joins_(joins) {}

  absl::Status Append(std::string_view bytes) override {
    RETURN_IF_ERROR(failure_);
    waiting_.append(bytes);
    if (waiting_.size() < store_->options_.append_bytes) return absl::OkStatus();
    return failure_ = Write();
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(failure_);
    return failure_ = Write();
  }

 private:
  absl::Status Write() {
    const uint64_t chunk_bytes = store_->options_.chunk_bytes;
    for (std::string_view left = waiting_; !left.empty();) {
      if (objects_.count == 0 || bytes_ == chunk_bytes) {
        const std::string_view first = left.substr(0, std::min<size_t>(store_->options_.append_bytes, chunk_bytes));
        RETURN_IF_ERROR(store_->AddObjects(region_, epoch_, part_, objects_.nonce, objects_.count, first, joins_));
        ++objects_.count;
        bytes_ = first.size();
        left.remove_prefix(first.size());
        continue;
      }
      const std::string_view next =
          left.substr(0, std::min<size_t>(store_->options_.append_bytes, chunk_bytes - bytes_));
      const absl::Status done = AppendToLast(next);
      if (WasRefused(done)) return WhyRefused(store_->objects_, region_, epoch_, done);
      RETURN_IF_ERROR(done);
      bytes_ += next.size();
      left.remove_prefix(next.size());
    }
    waiting_.clear();
    return absl::OkStatus();
  }
  absl::Status AppendToLast(std::string_view bytes) {
    ObjectUpdate append{.epoch_max = epoch_, .append = bytes};
    if (Mutated(Mutant::kUnguardedAppend)) append.epoch_max.reset();
    const std::string last = ObjectName(region_, part_, objects_.nonce, objects_.count - 1);
    absl::Status done = store_->objects_->Update(last, append);
    if (Mutated(Mutant::kAppendRepeated) && absl::IsUnavailable(done)) done = store_->objects_->Update(last, append);
    return done;
  }

  ObjectLogStore* const store_;
  const uint32_t region_;
  const uint32_t epoch_;
  const std::string part_;
  PartObjects objects_;
  uint64_t bytes_;  // Of the last object.
  const bool joins_;
  std::string waiting_;
  absl::Status failure_;
};

ObjectLogStore::ObjectLogStore(ObjectStore* objects, Options options)
    : objects_(objects), options_(std::move(options)) {
  CELL_CHECK(options_.nonce != nullptr);
  CELL_CHECK(options_.append_bytes > 0 && options_.append_bytes <= kObjectAppendMax && options_.chunk_bytes > 0);
}

absl::StatusOr<bool> ObjectLogStore::Has(uint32_t region) {
  const absl::Status status = List(region).status();
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<uint32_t> ObjectLogStore::LastEpoch(uint32_t region) {
  const absl::StatusOr<Head> head = objects_->ReadHead(HeadOf(region));
  if (absl::IsNotFound(head.status())) return 0u;
  if (!head.ok()) return head.status();
  return head->epoch;
}

absl::Status ObjectLogStore::Fence(uint32_t region, uint32_t epoch) {
  const auto fence_segments = [&](const Head& head) -> absl::Status {
    for (const auto& [key, value] : head.entries) {
      const std::optional<PartName> segment = ParsePartName(key, kSegment);
      if (!segment.has_value() || segment->epoch >= epoch) continue;
      ASSIGN_OR_RETURN(const PartObjects objects, ParseEntry(region, key, value));
      RETURN_IF_ERROR(FenceObject(region, epoch, ObjectName(region, key, objects.nonce, objects.count - 1)));
    }
    return absl::OkStatus();
  };
  if (Mutated(Mutant::kSegmentsFencedFirst)) {
    const absl::StatusOr<Head> before = objects_->ReadHead(HeadOf(region));
    if (before.ok()) RETURN_IF_ERROR(fence_segments(*before));
  }
  for (bool raised = false; !raised;) {  // First the head: see the file comment.
    absl::Status done = objects_->Update(HeadOf(region), {.epoch_max = epoch, .epoch = epoch});
    if (absl::IsAborted(done)) return WhyRefused(objects_, region, epoch);
    if (absl::IsNotFound(done)) done = objects_->Update(HeadOf(region), {.create = true, .epoch = epoch});
    if (absl::IsAlreadyExists(done)) continue;
    RETURN_IF_ERROR(done);
    raised = true;
  }
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  RETURN_IF_ERROR(CheckEntries(region, head.entries));
  if (!Mutated(Mutant::kSegmentsFencedFirst)) RETURN_IF_ERROR(fence_segments(head));
  return RemoveUnfinished(region, epoch, head, [epoch](uint32_t its, uint64_t) { return its < epoch; });
}

absl::Status ObjectLogStore::FenceObject(uint32_t region, uint32_t epoch, const std::string& name) {
  absl::Status raised = objects_->Update(name, {.epoch_max = epoch, .epoch = epoch});
  if (absl::IsNotFound(raised)) return absl::OkStatus();  // Who reads it will say that it is missing.
  if (!absl::IsAborted(raised)) return raised;
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  if (head.epoch > epoch) return WhyRefused(objects_, region, epoch);
  return DamagedObject(
      name, fmt::format("its epoch is higher than that of {}, which is always raised first", HeadOf(region)));
}

absl::Status ObjectLogStore::AddObjects(uint32_t region, uint32_t epoch, const std::string& part,
                                        const std::string& nonce, uint32_t from, std::string_view first, bool joins) {
  const uint64_t pieces = (first.size() + options_.chunk_bytes - 1) / options_.chunk_bytes;
  const uint64_t count = from + std::max<uint64_t>(1, pieces);
  if (count > kPartObjectsMax) {
    return absl::ResourceExhaustedError(
        fmt::format("{}/{} would have more than {} objects", HeadOf(region), part, kPartObjectsMax));
  }
  const PartObjects before{from, nonce};
  const PartObjects after{static_cast<uint32_t>(count), nonce};
  const auto update = [&](const std::string& name, const ObjectUpdate& what) {
    absl::Status done = objects_->Update(name, what);
    return WasRefused(done) ? WhyRefused(objects_, region, epoch, done) : done;
  };
  ObjectUpdate enter{.epoch_max = epoch, .set = {{UnfinishedKey(part), after.ToText()}}};
  if (!joins || from > 0) enter.expected = {{joins ? part : UnfinishedKey(part), before.ToText()}};
  if (joins && from == 0) enter.absent = {part, UnfinishedKey(part)};
  if (!Mutated(Mutant::kMadeBeforeEntered)) RETURN_IF_ERROR(update(HeadOf(region), enter));
  std::vector<std::string> made;
  const auto make = [&] {
    for (uint32_t i = from; i < after.count; ++i) {
      std::string_view bytes = first.substr(0, options_.chunk_bytes);
      first.remove_prefix(bytes.size());
      const std::string name = ObjectName(region, part, nonce, i);
      const std::string_view piece = bytes.substr(0, options_.append_bytes);
      RETURN_IF_ERROR(update(name, {.create = true, .epoch = epoch, .append = piece}));
      made.push_back(name);
      for (bytes.remove_prefix(piece.size()); !bytes.empty();) {
        const std::string_view next = bytes.substr(0, options_.append_bytes);
        RETURN_IF_ERROR(update(name, {.epoch_max = epoch, .append = next}));
        bytes.remove_prefix(next.size());
      }
    }
    if (Mutated(Mutant::kMadeBeforeEntered)) RETURN_IF_ERROR(update(HeadOf(region), enter));
    // Also without joining: whoever has fenced this epoch may have looked for the objects before they were there.
    ObjectUpdate entered{.epoch_max = epoch, .expected = {{UnfinishedKey(part), after.ToText()}}};
    entered.set = {{joins ? part : UnfinishedKey(part), after.ToText()}};
    if (joins) entered.remove = {UnfinishedKey(part)};
    return update(HeadOf(region), entered);
  };
  absl::Status status = make();
  if (status.ok() || absl::IsUnavailable(status)) return status;  // It may be there, so the entry with + has to stay.
  for (const std::string& name : made) (void)RemoveObject(name);
  if (absl::IsAborted(status)) return status;
  ObjectUpdate leave{.epoch_max = epoch, .expected = {{UnfinishedKey(part), after.ToText()}}};
  if (joins || from == 0) {
    leave.remove = {UnfinishedKey(part)};
  } else {
    leave.set = {{UnfinishedKey(part), before.ToText()}};
  }
  (void)objects_->Update(HeadOf(region), leave);
  return status;
}

absl::StatusOr<std::unique_ptr<LogWriter>> ObjectLogStore::Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                                std::string_view first) {
  absl::StatusOr<Head> head = objects_->ReadHead(HeadOf(region));
  if (absl::IsNotFound(head.status()) || (head.ok() && head->epoch < epoch)) {
    RETURN_IF_ERROR(Fence(region, epoch));
    head = objects_->ReadHead(HeadOf(region));
  }
  RETURN_IF_ERROR(head.status());
  if (head->epoch > epoch) return WhyRefused(objects_, region, epoch);
  const std::string part = ToText({sequence, epoch}, kSegment);
  if (head->entries.contains(part)) {
    return absl::AlreadyExistsError(fmt::format("{}/{} already exists", HeadOf(region), part));
  }
  RETURN_IF_ERROR(RemoveUnfinished(region, epoch, *head, [&](uint32_t its_epoch, uint64_t its_sequence) {
    return its_epoch == epoch && its_sequence == sequence;
  }));
  const PartObjects none{0, fmt::format("{:08x}", options_.nonce())};
  RETURN_IF_ERROR(AddObjects(region, epoch, part, none.nonce, 0, first, /*joins=*/true));
  const auto count =
      static_cast<uint32_t>(std::max<uint64_t>(1, (first.size() + options_.chunk_bytes - 1) / options_.chunk_bytes));
  const uint64_t bytes_of_last = first.size() - (count - 1) * options_.chunk_bytes;
  return std::make_unique<Writer>(this, region, epoch, part, PartObjects{count, none.nonce}, bytes_of_last, true);
}

absl::StatusOr<std::unique_ptr<LogWriter>> ObjectLogStore::BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                                           uint64_t sequence) {
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  RETURN_IF_ERROR(RemoveUnfinished(region, epoch, head, [&](uint32_t its_epoch, uint64_t its_sequence) {
    return its_epoch == epoch && its_sequence == sequence;
  }));
  const std::string part = ToText({sequence, epoch}, kCheckpoint);
  const PartObjects none{0, fmt::format("{:08x}", options_.nonce())};
  const absl::Status entered = objects_->Update(
      HeadOf(region),
      {.epoch_max = epoch, .absent = {UnfinishedKey(part)}, .set = {{UnfinishedKey(part), none.ToText()}}});
  if (WasRefused(entered)) return WhyRefused(objects_, region, epoch);
  RETURN_IF_ERROR(entered);
  return std::make_unique<Writer>(this, region, epoch, part, none, 0, /*joins=*/false);
}

absl::Status ObjectLogStore::CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) {
  const std::string part = ToText({sequence, epoch}, kCheckpoint);
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  const auto unfinished = head.entries.find(UnfinishedKey(part));
  if (unfinished == head.entries.end()) {
    if (head.epoch > epoch) return WhyRefused(objects_, region, epoch);
    return absl::NotFoundError(fmt::format("{}/{} was not begun", HeadOf(region), part));
  }
  ASSIGN_OR_RETURN(const PartObjects objects, ParseEntry(region, unfinished->first, unfinished->second));
  if (objects.going) return absl::NotFoundError(fmt::format("{}/{} was discarded", HeadOf(region), part));
  if (objects.count == 0) return absl::FailedPreconditionError(fmt::format("{}/{} is empty", HeadOf(region), part));
  // An earlier attempt may have come late. Then that one is the checkpoint.
  const absl::Status done = objects_->Update(HeadOf(region), {.epoch_max = epoch,
                                                              .expected = {*unfinished},
                                                              .absent = {part},
                                                              .set = {{part, unfinished->second}},
                                                              .remove = {UnfinishedKey(part)}});
  return WasRefused(done) ? WhyRefused(objects_, region, epoch) : done;
}

absl::Status ObjectLogStore::DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) {
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  return RemoveUnfinished(region, epoch, head, [&](uint32_t its_epoch, uint64_t its_sequence) {
    return its_epoch == epoch && its_sequence == sequence;
  });
}

absl::Status ObjectLogStore::NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) {
  return objects_->Update(HeadOf(region), {.set = {{ToText({sequence, epoch}, kEnd), ""}}});
}

absl::StatusOr<uint64_t> ObjectLogStore::NotedEnd(uint32_t region, uint64_t first_epoch) {
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  uint64_t noted = 0;
  for (const auto& [key, value] : head.entries) {
    const std::optional<PartName> end = ParsePartName(key, kEnd);
    if (end.has_value() && end->epoch >= first_epoch) noted = std::max(noted, end->sequence);
  }
  return noted;
}

absl::StatusOr<std::vector<LogPart>> ObjectLogStore::List(uint32_t region) {
  const absl::StatusOr<Head> head = objects_->ReadHead(HeadOf(region));
  if (absl::IsNotFound(head.status())) return NoLog(region);
  if (!head.ok()) return head.status();
  RETURN_IF_ERROR(CheckEntries(region, head->entries));
  std::vector<LogPart> parts;
  for (const auto& [key, value] : head->entries) {
    std::optional<LogPart> part = ParsePart(key);
    if (!part.has_value()) continue;
    ASSIGN_OR_RETURN(const PartObjects objects, ParseEntry(region, key, value));
    part->name = ListedPart::Name(region, key, objects);
    parts.push_back(*std::move(part));
  }
  if (parts.empty()) return NoLog(region);
  SortParts(&parts);
  return parts;
}

absl::StatusOr<size_t> ObjectLogStore::Read(uint32_t, const LogPart& part, uint64_t offset, MutableBytes to) {
  const ListedPart listed = ListedPart::Parse(part.name);
  size_t got = 0;
  while (got < to.size()) {
    const uint64_t at = offset + got, index = at / options_.chunk_bytes, within = at % options_.chunk_bytes;
    if (index >= listed.count) break;
    const size_t wanted =
        std::min<uint64_t>({to.size() - got, options_.chunk_bytes - within, uint64_t{kObjectReadMax}});
    const absl::StatusOr<size_t> read = objects_->Read(listed.Object(index), within, to.subspan(got, wanted));
    if (absl::IsNotFound(read.status())) return Missing(listed.Object(index));
    if (!read.ok()) return read.status();
    got += *read;
    if (*read == wanted) continue;
    if (index + 1 == listed.count) break;
    return DamagedObject(listed.Object(index),
                         fmt::format("it has fewer than {} bytes, and more objects follow", options_.chunk_bytes));
  }
  return got;
}

absl::StatusOr<uint64_t> ObjectLogStore::Size(uint32_t, const LogPart& part) {
  const ListedPart listed = ListedPart::Parse(part.name);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < listed.count; ++i) {  // The caller may allocate as much, so each of them has to be there.
    const std::string name = listed.Object(i);
    const absl::StatusOr<uint64_t> size = objects_->Size(name);
    if (absl::IsNotFound(size.status())) return Missing(name);
    if (!size.ok()) return size.status();
    const bool last = i + 1 == listed.count;
    if (last ? *size > options_.chunk_bytes : *size != options_.chunk_bytes) {
      return DamagedObject(
          name, fmt::format("it has {} bytes instead of {}{}", *size, last ? "at most " : "", options_.chunk_bytes));
    }
    bytes += *size;
  }
  return bytes;
}

absl::Status ObjectLogStore::RemoveObject(const std::string& name) {
  absl::Status removed = objects_->Update(name, {.remove_object = true});
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status ObjectLogStore::RemoveUnfinished(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                                              const std::function<bool(uint32_t epoch, uint64_t sequence)>& is_old) {
  for (const auto& [key, value] : head.entries) {
    const std::optional<std::string> part = UnfinishedPart(key);
    if (!part.has_value()) continue;
    const std::optional<LogPart> named = ParsePart(*part);
    if (!named.has_value() || !is_old(named->epoch, named->sequence)) continue;
    ASSIGN_OR_RETURN(const PartObjects objects, ParseEntry(region, key, value));
    uint32_t from = 0;  // The objects before it are part of the log.
    if (const auto entered = head.entries.find(*part); entered != head.entries.end()) {
      ASSIGN_OR_RETURN(const PartObjects kept, ParseEntry(region, *part, entered->second));
      if (kept.nonce == objects.nonce) from = kept.count;
    }
    // An update that was sent may still make them part of the log, unless the entry is another one by then.
    const std::string going = objects.Going().ToText();
    const absl::Status marked =
        objects_->Update(HeadOf(region), {.epoch_max = epoch_max, .expected = {{key, value}}, .set = {{key, going}}});
    if (WasRefused(marked)) continue;  // Something else became of them. The next fence or trim looks again.
    RETURN_IF_ERROR(marked);
    RETURN_IF_ERROR(RemoveGoing(region, epoch_max, *part, from, objects.Going()));
  }
  return absl::OkStatus();
}

absl::Status ObjectLogStore::RemoveGoing(uint32_t region, std::optional<uint32_t> epoch_max, const std::string& part,
                                         uint32_t from, const PartObjects& objects) {
  if (objects.count - std::min(from, objects.count) <= kRemovedOneByOneMax) {
    for (uint32_t i = from; i < objects.count; ++i) {
      RETURN_IF_ERROR(RemoveObject(ObjectName(region, part, objects.nonce, i)));
    }
  } else {  // More than there are, probably.
    const std::string prefix = fmt::format("{}/{}.{}.", HeadOf(region), part, objects.nonce);
    ASSIGN_OR_RETURN(const std::vector<std::string> names, objects_->List());
    for (const std::string& name : names) {
      if (!name.starts_with(prefix)) continue;
      if (std::strtoull(name.c_str() + prefix.size(), nullptr, 10) >= from) RETURN_IF_ERROR(RemoveObject(name));
    }
  }
  const absl::Status forgotten = objects_->Update(
      HeadOf(region),
      {.epoch_max = epoch_max, .expected = {{UnfinishedKey(part), objects.ToText()}}, .remove = {UnfinishedKey(part)}});
  // Refused: it was forgotten already, or this epoch is fenced. Then whoever fenced it does it.
  return WasRefused(forgotten) ? absl::OkStatus() : forgotten;
}

absl::Status ObjectLogStore::RemoveParts(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                                         const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    const auto entry = head.entries.find(part);
    if (entry == head.entries.end()) continue;
    ASSIGN_OR_RETURN(const PartObjects objects, ParseEntry(region, part, entry->second));
    const std::string going = objects.Going().ToText();
    const absl::Status taken_out = objects_->Update(
        HeadOf(region),
        {.epoch_max = epoch_max, .expected = {*entry}, .set = {{UnfinishedKey(part), going}}, .remove = {part}});
    if (WasRefused(taken_out)) return WhyRefused(objects_, region, epoch_max.value_or(UINT32_MAX));
    RETURN_IF_ERROR(taken_out);
    RETURN_IF_ERROR(RemoveGoing(region, epoch_max, part, 0, objects.Going()));
  }
  return absl::OkStatus();
}

absl::Status ObjectLogStore::Trim(uint32_t region, uint32_t epoch, uint64_t sequence) {
  ASSIGN_OR_RETURN(const Head head, objects_->ReadHead(HeadOf(region)));
  if (head.epoch > epoch) return WhyRefused(objects_, region, epoch);
  std::vector<LogPart> parts;
  ObjectUpdate passed{.epoch_max = epoch};
  for (const auto& [key, value] : head.entries) {
    if (const std::optional<LogPart> part = ParsePart(key)) parts.push_back(*part);
    const std::optional<PartName> end = ParsePartName(key, kEnd);
    if (end.has_value() && end->sequence < sequence) passed.remove.push_back(key);
  }
  SortParts(&parts);
  std::vector<std::string> not_needed;
  for (const LogPart& part : PartsNotNeeded(parts, sequence)) not_needed.push_back(part.name);
  RETURN_IF_ERROR(RemoveParts(region, epoch, head, not_needed));
  if (!passed.remove.empty()) RETURN_IF_ERROR(objects_->Update(HeadOf(region), passed));
  // The next fence or trim tries again.
  (void)RemoveUnfinished(region, epoch, head, [&](uint32_t its_epoch, uint64_t its_sequence) {
    return std::pair(its_epoch, its_sequence) < std::pair(epoch, sequence);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ObjectLogStore::Regions() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, objects_->List());
  std::vector<uint32_t> regions;
  for (const std::string& name : names) {
    uint32_t region = 0;
    if (std::sscanf(name.c_str(), "region-%" SCNu32, &region) == 1 && name == HeadOf(region)) regions.push_back(region);
  }
  return regions;
}

absl::Status ObjectLogStore::Remove(uint32_t region, uint32_t last_epoch) {
  for (;;) {
    const absl::StatusOr<Head> head = objects_->ReadHead(HeadOf(region));
    if (absl::IsNotFound(head.status())) return absl::OkStatus();
    if (!head.ok()) return head.status();
    const bool all = head->epoch <= last_epoch;
    const auto epoch_max = all ? std::optional(last_epoch) : std::nullopt;
    absl::Status removed = CheckEntries(region, head->entries).ok()
                               ? RemoveUpTo(region, epoch_max, *head, last_epoch)
                               : RemoveDamaged(region, epoch_max, *head, last_epoch);
    if (removed.ok() && all) {
      removed = objects_->Update(HeadOf(region), {.epoch_max = last_epoch, .remove_object = true});
    }
    // Refused: a later region with this id has come meanwhile. It stays, and what is left of the earlier one goes.
    if (!WasRefused(removed)) return removed;
  }
}

absl::Status ObjectLogStore::RemoveUpTo(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                                        uint32_t last_epoch) {
  std::vector<std::string> parts;
  ObjectUpdate ends;
  for (const auto& [key, value] : head.entries) {
    const std::optional<LogPart> part = ParsePart(key);
    if (part.has_value() && part->epoch <= last_epoch) parts.push_back(key);
    const std::optional<PartName> end = ParsePartName(key, kEnd);
    if (end.has_value() && end->epoch <= last_epoch) ends.remove.push_back(key);
  }
  RETURN_IF_ERROR(RemoveParts(region, epoch_max, head, parts));
  RETURN_IF_ERROR(
      RemoveUnfinished(region, epoch_max, head, [last_epoch](uint32_t its, uint64_t) { return its <= last_epoch; }));
  return ends.remove.empty() ? absl::OkStatus() : objects_->Update(HeadOf(region), ends);
}

absl::Status ObjectLogStore::RemoveDamaged(uint32_t region, std::optional<uint32_t> epoch_max, const Head& head,
                                           uint32_t last_epoch) {
  // A name without an epoch is removed together with the head. If the head stays, the name may be a later region's.
  const auto is_old = [&](std::string_view text) { return EpochOf(text).value_or(head.epoch) <= last_epoch; };
  ASSIGN_OR_RETURN(const std::vector<std::string> names, objects_->List());
  const std::string prefix = HeadOf(region) + "/";
  for (const std::string& name : names) {
    if (!name.starts_with(prefix) || !is_old(std::string_view(name).substr(prefix.size()))) continue;
    RETURN_IF_ERROR(RemoveObject(name));
  }
  ObjectUpdate forget{.epoch_max = epoch_max};
  for (const auto& [key, value] : head.entries) {
    if (is_old(key)) forget.remove.push_back(key);
  }
  return objects_->Update(HeadOf(region), forget);
}

absl::Status ObjectLogStore::RemoveAll() {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> regions, Regions());
  for (const uint32_t region : regions) {
    absl::Status removed = Remove(region, UINT32_MAX);
    if (!removed.ok() && !absl::IsDataLoss(removed)) return removed;  // A head that cannot be read goes by its name.
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> names, objects_->List());
  for (const std::string& name : names) {
    if (name.starts_with(kRegionPrefix)) RETURN_IF_ERROR(RemoveObject(name));
  }
  return absl::OkStatus();
}

absl::Status ObjectLogStore::Probe(uint32_t region) {
  constexpr size_t kProbeBytes = size_t{1} << 20;
  const std::string name = fmt::format("{}/probe.{:08x}", HeadOf(region), options_.nonce());
  const std::string bytes(std::min(kProbeBytes, options_.append_bytes), 'p');
  RETURN_IF_ERROR(objects_->Update(name, {.create = true, .append = bytes}));
  return RemoveObject(name);
}

}  // namespace cell

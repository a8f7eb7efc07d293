#include "cell/server/region/region_rebuild.h"

#include <memory>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/server/region/prepare_again.h"
#include "cell/tree/meganode_builder.h"
#include "pilaf/hash_rebuild.h"

namespace cell {
namespace {

// A way to build a meganode. Leaves filled to a fraction take more entries before they split. Full ones fit where the
// region fitted before, if the same pairs are inline. If they are not, because its owner had another setting or some
// pairs were stored under another one, the nodes may have room for it only with all pairs outside, or the extents only
// with as many as possible inline.
struct Packing {
  double fill;
  size_t inline_max;
};

// Checks the range and the neighbour in a region's log: a search that continues there must not come back.
absl::Status CheckRange(const MeganodeRange& range, uint32_t region) {
  const bool other = range.right == RootOf(range.right.region()) && range.right.region() != region;
  if (range.tier < kTiersMax && range.high.has_value() == !range.right.null() && (range.right.null() || other)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("its range, of tier {} and with right neighbour {}, is not valid for a region", range.tier,
                  ToString(range.right)));
}

// Returns whether there is room for what transactions will perhaps write, as their former owner had.
absl::Status HasRoom(const std::vector<std::string>& prepared, PairStore* store) {
  std::vector<PutAgain> puts;
  for (const std::string& record : prepared) {
    ASSIGN_OR_RETURN(const PreparedPart part, ParsePrepared(record));
    ASSIGN_OR_RETURN(const std::vector<PartOperation> operations, ParseOperations(part.part));
    for (const PartOperation& operation : operations) {
      if (operation.kind == PartOperationKind::kPut) puts.push_back({operation});
    }
  }
  std::vector<PutAgain*> order;
  order.reserve(puts.size());
  for (PutAgain& put : puts) order.push_back(&put);
  RETURN_IF_ERROR(PrepareAgain(order, store));
  for (const PutAgain& put : puts) store->Discard(put.prepared);
  store->set_writes_kept(0);
  return absl::OkStatus();
}

absl::Status BuildMeganode(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                           const RegionContent& content, const PairSettings& pairs) {
  RETURN_IF_ERROR(CheckRange(content.range, region));
  const Packing packings[] = {
      {0.85, pairs.inline_max}, {1, pairs.inline_max}, {1, 0}, {1, InlineBytesMax(shape.node_bytes)}};
  absl::Status status;
  for (const Packing& packing : packings) {
    RETURN_IF_ERROR(FormatRegion(memory, region, shape, content));
    Meganode tree(memory, {packing.inline_max, pairs.cluster_time});
    // Before the pairs: those from a log of an earlier format get new stamps.
    if (!Mutated(Mutant::kStampsAgain)) tree.RaiseLastStamp(replay.last_stamp());
    MeganodeBuilder builder(&tree, packing.fill);
    status = replay.ForEach([&](const LogRecord& record) {
      // The log may have more of these than there was room for: a put that was applied after its expiry took none.
      if (tree.Expired(record.expiry)) return absl::OkStatus();
      return builder.Add(record.key, record.value, record.expiry, record.stamp);
    });
    if (status.ok()) status = builder.Finish();
    if (status.ok()) status = HasRoom(replay.prepared(), &tree);
    if (!absl::IsResourceExhausted(status)) break;
  }
  return status;
}

absl::Status BuildTable(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                        const RegionContent& content, const PairSettings& pairs) {
  std::unique_ptr<HashTable> table;
  const auto empty = [&]() -> absl::StatusOr<HashTable*> {
    RETURN_IF_ERROR(FormatRegion(memory, region, shape, content));
    table = HashTable::Open(memory, pairs.cluster_time);
    if (!Mutated(Mutant::kStampsAgain)) table->RaiseLastStamp(replay.last_stamp());
    return table.get();
  };
  const auto pairs_of = [&](const PutPair& put) {
    return replay.ForEach([&](const LogRecord& record) {
      // The log may have more of these than there was room for: a put that was applied after its expiry took none.
      if (table->Expired(record.expiry)) return absl::OkStatus();
      // Other keys were cut off since.
      if (!content.hash_range->Has(HashKey(record.key))) return absl::OkStatus();
      return put({record.key, record.value, record.expiry});
    });
  };
  return Rebuild(empty, pairs_of, [&] { return HasRoom(replay.prepared(), table.get()); });
}

}  // namespace

absl::Status RebuildRegion(const LogReplay& replay, uint32_t region, const RegionShape& shape, RegionMemory* memory,
                           RegionContent* content, const PairSettings& pairs) {
  content->range = replay.range();
  absl::Status status;
  if (replay.hash_range().has_value()) {
    content->hash_range = HashRange{replay.hash_range()->first, replay.hash_range()->last};
    content->bucket_bytes = replay.hash_range()->bucket_bytes;
    status = BuildTable(replay, region, shape, memory, *content, pairs);
  } else {
    status = BuildMeganode(replay, region, shape, memory, *content, pairs);
  }
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::DataLossError(fmt::format(
      "the log of region {} is inconsistent: {}. Nothing was recovered from it, and nothing was changed. Restore a "
      "copy of the log, or delete the cluster (//tools:wipe) and restore a backup (cellctl restore)",
      region, std::string(status.message())));
}

}  // namespace cell

// ScanWriter composes the reply to a scan: its entries, and then the key where the next scan starts. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cell/cluster/grants.h"
#include "cell/layout/wire.h"
#include "cell/tree/meganode.h"
#include "cell/tree/scan_position.h"

namespace cell {

class ScanWriter {
 public:
  // Room for the key where the next scan starts is reserved in `to`. `kind`: kScan or kScanSnapshot. `behind`: where
  // the scan continues when it has come to the end of what it may see.
  ScanWriter(MessageKind kind, MutableBytes to, size_t room, uint32_t limit, bool keys_only,
             std::optional<std::string> behind)
      : to_(to),
        room_(room),
        limit_(limit),
        keys_only_(keys_only),
        behind_(std::move(behind)),
        reply_(ReplyOf<ScanReply>(kind)) {}

  MutableBytes to() const { return to_; }
  bool full() const { return reply_.count == limit_; }
  bool empty() const { return reply_.count == 0; }

  // Append an entry. Return false if it does not fit. AddPair returns DataLoss if the pair was damaged in memory. A
  // value that is too large for the reply is said to be in its extent, or in none.
  absl::StatusOr<bool> AddPair(const Meganode& tree, std::string_view key, const LeafPair& pair);
  bool AddValue(std::string_view key, std::string_view value, Expiry expiry);

  // Ends the reply of a scan that has reached its end. Returns its size.
  size_t Done();
  // Ends the reply of a scan that continues at `key`: in the meganode `next`, or in this one if that is null.
  size_t GoOn(const std::string& key, Pointer next);

 private:
  bool IsElsewhere(uint32_t value_bytes) const { return !keys_only_ && value_bytes > kInlineValueBytesMax; }
  bool Fits(std::string_view key, uint32_t value_bytes, Expiry expiry) const;
  void AppendEntry(std::string_view key, uint32_t value_bytes, Expiry expiry);
  void AppendExtent(const ScanExtent& extent) { Append(&extent, sizeof(extent)); }
  void Append(const void* bytes, size_t count);
  size_t End();

  const MutableBytes to_;
  const size_t room_;
  const uint32_t limit_;
  const bool keys_only_;
  const std::optional<std::string> behind_;
  ScanReply reply_;
  size_t at_ = sizeof(ScanReply);
};

// The position of a scan in its region, and the writer of its reply, as the request says.
struct ScanTarget {
  ScanPosition position;
  ScanWriter writer;

  // For `seen` see ServeScan. Returns InvalidArgument if there is no room for one entry.
  static absl::StatusOr<ScanTarget> Of(MessageKind kind, const Meganode& tree, const Parsed<ScanRequest>& request,
                                       const KeySpan* seen, MutableBytes to);
};

}  // namespace cell

// The entries of the head of a region's log in a store of objects (object_log_store.h has their format). Pure.
//
// Anyone with access to the pool may have changed an entry. For an entry that no server writes, functions return
// DataLoss, with the names of the object and the entry. Numbers in entries are at most kPartObjectsMax, so that no loop
// and no allocation depends on a larger one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/io/object/object_store.h"

namespace cell {

// How many objects a part may have: 2 TB with objects of 32 MB.
inline constexpr uint32_t kPartObjectsMax = 65'536;

// The value of a part's entry: how many objects it has, and their nonce.
struct PartObjects {
  uint32_t count = 0;
  std::string nonce;
  bool going = false;  // They are being removed. Only with +.

  std::string ToText() const;
  PartObjects Going() const { return {count, nonce, true}; }
};

std::string HeadOf(uint32_t region);
// Returns the key of the entry that says which objects of a part are unfinished: with +.
std::string UnfinishedKey(std::string_view part);
// Returns the part that a key with + names, or nullopt if it is another key.
std::optional<std::string> UnfinishedPart(const std::string& key);

// Returns what the value of a part's entry says, with or without +. Returns DataLoss if it is damaged.
absl::StatusOr<PartObjects> ParseEntry(uint32_t region, const std::string& key, const std::string& value);
// Checks all entries of a head. Returns DataLoss with the name of the first one that is damaged, or that has a key
// which this release does not know.
absl::Status CheckEntries(uint32_t region, const ObjectEntries& entries);

// Returns the epoch at which the part was written to which an entry of the head, an object of the part, or a note of
// the log's end belongs: by a key, or by the rest of an object's name behind "region-N/". Returns nullopt for any other
// text.
std::optional<uint32_t> EpochOf(std::string_view text);

}  // namespace cell

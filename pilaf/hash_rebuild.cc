#include "pilaf/hash_rebuild.h"

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr uint64_t kOrders = 16;
constexpr uint64_t kParts = 8;  // Parts of an order: keys of the first part come first, whatever the order of pairs().

uint64_t PartOf(std::string_view key, uint64_t order) { return Crc64(key, order) % kParts; }

}  // namespace

absl::Status Rebuild(const std::function<absl::StatusOr<HashTable*>()>& empty,
                     const std::function<absl::Status(const PutPair&)>& pairs,
                     const std::function<absl::Status()>& then) {
  absl::Status status;
  for (uint64_t order = 0; order < kOrders; ++order) {
    ASSIGN_OR_RETURN(HashTable* const table, empty());
    table->set_thorough(true);
    status = absl::OkStatus();
    const uint64_t parts = order == 0 ? 1 : kParts;
    for (uint64_t part = 0; part < parts && status.ok(); ++part) {
      status = pairs([&](const HashPair& pair) -> absl::Status {
        if (parts > 1 && PartOf(pair.key, order) != part) return absl::OkStatus();
        return table->Put(pair.key, pair.value, Crc64(pair.value, Crc64(pair.key)), {}, pair.expiry).status();
      });
    }
    if (status.ok()) status = then();
    if (!absl::IsResourceExhausted(status)) return status;
  }
  return status;
}

}  // namespace cell

#include "pilaf/hash_split.h"

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"

namespace cell {

HashSplit::HashSplit(HashTable* from, HashTable* to) : from_(from), to_(to), range_(to->range()) {
  CELL_CHECK(range_.first > from->range().first && range_.last == from->range().last && !from->on_change_);
  walk_.emplace(from);
  from_->set_on_change([this](std::string_view key) {
    const KeyHash hash = HashKey(key);
    if (!Has(hash) || !mirrored_.ok()) return;
    const absl::StatusOr<std::optional<HashPair>> pair = from_->FindVerified(key, hash);
    if (!pair.ok()) {
      mirrored_ = pair.status();
    } else if (pair->has_value()) {
      CopyPair(**pair, hash);
    } else {
      mirrored_ = to_->Delete(key).status();
    }
  });
}

HashSplit::~HashSplit() {
  from_->set_on_change(nullptr);
  to_->before_change_ = nullptr;
}

void HashSplit::CopyPair(const HashPair& pair, const KeyHash& hash) {
  if (!mirrored_.ok() || !Has(hash)) return;
  mirrored_ = to_->Put(pair.key, pair.value, Crc64(pair.value, Crc64(pair.key)), {}, pair.expiry).status();
}

absl::StatusOr<bool> HashSplit::Copy(uint32_t units) {
  const auto copy = [this](const HashPair& pair) { CopyPair(pair, HashKey(pair.key)); };
  ASSIGN_OR_RETURN(copied_, walk_->Step(units, copy));
  RETURN_IF_ERROR(mirrored_);
  return copied_;
}

absl::Status HashSplit::Finish() {
  CELL_CHECK(copied_);
  RETURN_IF_ERROR(mirrored_);
  walk_.reset();
  from_->set_on_change(nullptr);
  HashHeader header = from_->hash_header();
  header.range.last = range_.first - 1;
  from_->SetHeader(header);
  from_->deleted_ = 0;
  to_->before_change_ = [this](std::string_view key, const KeyHash& hash) {
    if (!clean_late_ && from_->hash_header().invalidated == 0) from_->CleanKey(key, hash);
  };
  cleaning_.emplace(from_);
  return absl::OkStatus();
}

bool HashSplit::Clean(uint32_t units) {
  if (!cleaning_->Step(units)) return false;
  cleaning_.reset();
  to_->before_change_ = nullptr;
  return true;
}

}  // namespace cell

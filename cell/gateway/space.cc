#include "cell/gateway/space.h"

#include <chrono>
#include <utility>

#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

constexpr size_t kValueBytes = size_t{1} << 20;  // The longest value.
constexpr size_t kExpiryBytes = 8;               // Keys of pairs that expire are that much shorter.
// Limits of a transaction (cell/client/transaction.h), less some room for its reads.
constexpr size_t kWritesMax = 2000;
constexpr size_t kTransactionBytes = kValueBytes - 4096;
constexpr size_t kWriteBytes = 24;  // A write needs that much beside its key and value.

}  // namespace

int64_t UnixNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Expires Expiry::expires() const {
  if (never()) return Expires::Never();
  return moment_ ? Expires::AtNs(static_cast<uint64_t>(ns_)) : Expires::AfterUs(ns_ / 1000 + (ns_ % 1000 > 0 ? 1 : 0));
}

Task<absl::StatusOr<Space::Found>> Space::Read(std::string_view key) {
  absl::StatusOr<std::optional<std::string>> value = co_await Get(key);
  if (!value.ok()) co_return value.status();
  Found found;
  found.value = *std::move(value);
  if (!found.value.has_value()) co_return found;
  if (const auto put = put_.find(key); put != put_.end()) {
    found.expiry = put->second;
    co_return found;
  }
  // Only a scan tells the moment. That the pair is still what Get has returned is checked by the commit.
  ScanOptions one;
  one.from = key;
  one.to = std::string(key) + '\0';
  one.read_ahead = false;
  Scan scan = client_->NewScan(one);
  const auto batch = co_await scan.AsyncNextBatch();
  if (absl::IsPermissionDenied(batch.status())) {  // This user may read the pair, but not scan.
    const absl::StatusOr<int64_t> left_ns = co_await LeftNs(key);
    if (!left_ns.ok()) co_return left_ns.status();
    if (*left_ns != kNeverExpires) found.expiry = Expiry::After(*left_ns);
    co_return found;
  }
  if (!batch.ok()) co_return batch.status();
  if (batch->size() != 1 || batch->front().value != *found.value) {
    co_return absl::AbortedError("the pair has changed while it was read");
  }
  const uint64_t at_ns = batch->front().expiry_ns;
  if (at_ns != 0) found.expiry = Expiry::At(static_cast<int64_t>(at_ns));
  co_return found;
}

Task<absl::StatusOr<int64_t>> Space::LeftNs(std::string_view key) {
  if (const auto put = put_.find(key); put != put_.end()) {
    co_return put->second.never() ? kNeverExpires : put->second.LeftNs();
  }
  const absl::StatusOr<std::optional<int64_t>> left = co_await client_->AsyncTimeLeftNs(key);
  if (!left.ok()) co_return left.status();
  if (!left->has_value()) co_return absl::AbortedError("the pair has expired while it was read");
  co_return **left;
}

absl::Status Space::Put(std::string_view key, std::string_view value, Expiry expiry) {
  const size_t most = client_->key_bytes_max() - (expiry.never() ? 0 : kExpiryBytes);
  if (key.empty() || key.size() > most) {
    return absl::InvalidArgumentError(fmt::format("the key has {} bytes; here keys have 1 to {}", key.size(), most));
  }
  if (value.size() > kValueBytes) {
    return absl::InvalidArgumentError(fmt::format("the value would have {} bytes; the most is 1 MB", value.size()));
  }
  RETURN_IF_ERROR(NotePut(key, value, expiry));
  put_.insert_or_assign(std::string(key), expiry);
  return absl::OkStatus();
}

void Space::Delete(std::string_view key) {
  if (const auto put = put_.find(key); put != put_.end()) put_.erase(put);
  NoteDelete(key);
}

Task<absl::StatusOr<std::optional<std::string>>> PairSpace::Get(std::string_view key) {
  if (written_) co_return value_;
  if (!read_) {
    absl::StatusOr<std::optional<StampedValue>> found = co_await client_->AsyncGetWithStamp(key);
    if (!found.ok()) co_return found.status();
    found_ = *std::move(found);
    read_ = true;
  }
  co_return found_.has_value() ? std::optional(found_->value) : std::nullopt;
}

absl::Status PairSpace::NotePut(std::string_view key, std::string_view value, Expiry expiry) {
  written_ = true;
  key_ = key;
  value_ = value;
  expires_ = expiry.expires();
  return absl::OkStatus();
}

void PairSpace::NoteDelete(std::string_view key) {
  written_ = true;
  key_ = key;
  value_.reset();
}

Task<absl::Status> PairSpace::Commit() {
  if (!written_) co_return absl::OkStatus();
  if (!read_) {
    absl::StatusOr<bool> done = false;
    if (value_.has_value()) {
      done = co_await client_->AsyncPut(key_, *value_, expires_);
    } else {
      done = co_await client_->AsyncDelete(key_);
    }
    co_return done.status();
  }
  if (!value_.has_value() && !found_.has_value()) co_return absl::OkStatus();
  const Condition unchanged = found_.has_value() ? Condition::StampIs(found_->stamp) : Condition::Absent();
  absl::StatusOr<WriteIfResult> done = WriteIfResult();
  if (value_.has_value()) {
    done = co_await client_->AsyncPutIf(key_, *value_, expires_, unchanged);
  } else {
    done = co_await client_->AsyncDeleteIf(key_, unchanged);
  }
  if (!done.ok()) co_return done.status();
  co_return done->applied ? absl::OkStatus() : absl::AbortedError("the pair has changed since it was read");
}

Task<absl::StatusOr<std::optional<std::string>>> TransactionSpace::Get(std::string_view key) {
  return transaction_->AsyncGet(key);
}

absl::Status TransactionSpace::NotePut(std::string_view key, std::string_view value, Expiry expiry) {
  // The transaction itself would refuse all of its writes.
  const size_t bytes = bytes_ + key.size() + value.size() + kWriteBytes;
  if (bytes > kTransactionBytes || writes_ == kWritesMax) {
    return absl::InvalidArgumentError("that is more than one transaction can write: 1 MB, and 2,000 keys");
  }
  RETURN_IF_ERROR(transaction_->Put(key, value, expiry.expires()));
  bytes_ = bytes;
  ++writes_;
  return absl::OkStatus();
}

void TransactionSpace::NoteDelete(std::string_view key) {
  // Fails only for keys that cannot be stored, which are not there.
  transaction_->Delete(key).IgnoreError();
}

Task<absl::Status> TransactionSpace::Commit() {
  const absl::StatusOr<Committed> committed = co_await transaction_->AsyncCommit();
  co_return committed.status();
}

}  // namespace cell::gateway

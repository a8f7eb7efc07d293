#include "tools/backup_pool.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr const char* kFormatKey = "format";
constexpr const char* kFormat = "1";
constexpr const char* kAttempt = "attempt";
constexpr const char* kPieceBytes = "piece_bytes";
constexpr const char* kBytes = "bytes";
constexpr size_t kNameMax = 100;
constexpr uint64_t kBackupBytesMax = uint64_t{1} << 60;

std::string PieceName(const std::string& head, const std::string& attempt, uint64_t number) {
  return fmt::format("{}/{}.{}", head, attempt, number);
}

std::optional<uint64_t> ParseNumber(const std::string& text, uint64_t max) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number > max) return std::nullopt;
  return number;
}

absl::Status RemoveObjects(ObjectStore* objects, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    absl::Status removed = objects->Update(name, {.remove_object = true});
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  return absl::OkStatus();
}

// Reads the pieces of one attempt, each as a whole.
class Pieces : public BackupBytes {
 public:
  Pieces(ObjectStore* objects, const std::string& place, const std::string& head, const std::string& attempt,
         size_t piece_bytes, uint64_t bytes)
      : objects_(objects), place_(place), head_(head), attempt_(attempt), piece_bytes_(piece_bytes), bytes_(bytes) {}

  const std::string& name() const override { return place_; }
  absl::StatusOr<uint64_t> Size() override { return bytes_; }
  absl::StatusOr<size_t> Read(uint64_t offset, MutableBytes to) override {
    size_t done = 0;
    while (done < to.size() && offset + done < bytes_) {
      RETURN_IF_ERROR(Load((offset + done) / piece_bytes_));
      const size_t at = (offset + done) % piece_bytes_;
      const size_t count = std::min(to.size() - done, piece_.size() - at);
      std::memcpy(to.data() + done, piece_.data() + at, count);
      done += count;
    }
    return done;
  }

 private:
  absl::Status Load(uint64_t number) {
    if (number == number_) return absl::OkStatus();
    const std::string name = PieceName(head_, attempt_, number);
    const auto damaged = [&](const std::string& what) {
      return absl::DataLossError(
          fmt::format("{} is damaged: its object {} {}. Restore the object, or another backup", place_, name, what));
    };
    const size_t expected = std::min<uint64_t>(piece_bytes_, bytes_ - number * piece_bytes_);
    number_.reset();
    piece_.resize(expected + 1);  // One byte more, to notice an object that is too long.
    const absl::StatusOr<size_t> got =
        objects_->Read(name, 0, {reinterpret_cast<std::byte*>(piece_.data()), piece_.size()});
    if (absl::IsNotFound(got.status())) return damaged("is missing");
    if (!got.ok()) return got.status();
    if (*got < expected) return damaged(fmt::format("has {} bytes instead of {}", *got, expected));
    if (*got > expected) return damaged(fmt::format("has more than {} bytes", expected));
    piece_.resize(expected);
    number_ = number;
    return absl::OkStatus();
  }

  ObjectStore* const objects_;
  const std::string place_;
  const std::string head_;
  const std::string attempt_;
  const size_t piece_bytes_;
  const uint64_t bytes_;
  std::string piece_;               // The piece that was read last.
  std::optional<uint64_t> number_;  // Its number.
};

// One attempt, which has claimed the head.
class UnfinishedPieces : public UnfinishedBackup {
 public:
  UnfinishedPieces(ObjectStore* objects, const std::string& place, const std::string& head, const std::string& attempt,
                   size_t piece_bytes)
      : objects_(objects), place_(place), head_(head), attempt_(attempt), piece_bytes_(piece_bytes) {}
  ~UnfinishedPieces() override {
    if (!committed_) Discard();
  }

  const std::string& name() const override { return place_; }
  absl::StatusOr<uint64_t> Size() override { return bytes_; }

  absl::Status Append(std::string_view bytes) override {
    bytes_ += bytes.size();
    while (!bytes.empty()) {
      const size_t count = std::min(bytes.size(), piece_bytes_ - piece_.size());
      piece_.append(bytes.substr(0, count));
      bytes.remove_prefix(count);
      if (piece_.size() == piece_bytes_) RETURN_IF_ERROR(WritePiece());
    }
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (!piece_.empty()) RETURN_IF_ERROR(WritePiece());
    written_.emplace(objects_, place_, head_, attempt_, piece_bytes_, bytes_);
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Read(uint64_t offset, MutableBytes to) override {
    absl::StatusOr<size_t> got = written_->Read(offset, to);
    if (absl::IsDataLoss(got.status()) && IsAnothers()) return NotMade();  // Whoever began it removes these pieces.
    return got;
  }

  absl::Status Commit() override {
    CELL_CHECK(written_.has_value());
    const absl::Status set = objects_->Update(
        head_, {.expected = {{kAttempt, attempt_}}, .absent = {kBytes}, .set = {{kBytes, fmt::format("{}", bytes_)}}});
    committed_ = set.ok() || (absl::IsUnavailable(set) && IsCommitted());
    if (committed_) return absl::OkStatus();
    if (absl::IsAborted(set) || absl::IsNotFound(set)) {
      return NotMade();
    }
    return absl::Status(set.code(), fmt::format("{} (no backup was made, unless cellctl restore finds it)",
                                                std::string(set.message())));
  }

 private:
  absl::Status NotMade() const {
    return absl::FailedPreconditionError(fmt::format(
        "another backup was begun in {}, or it was removed, in the meantime: this one was not made", place_));
  }

  absl::Status WritePiece() {
    const std::string name = PieceName(head_, attempt_, pieces_);
    ++pieces_;  // Whatever the result is, it may be there.
    RETURN_IF_ERROR(objects_->Update(name, {.create = true, .append = piece_}));
    piece_.clear();
    return absl::OkStatus();
  }

  bool IsCommitted() {
    const absl::StatusOr<ObjectStore::Head> head = objects_->ReadHead(head_);
    if (!head.ok()) return false;
    const auto attempt = head->entries.find(kAttempt);
    return attempt != head->entries.end() && attempt->second == attempt_ && head->entries.contains(kBytes);
  }

  // Gives the claim up and then removes the pieces, as long as the store answers. The pieces stay if the commit may
  // still be made, or was made.
  void Discard() {
    const absl::Status given_up =
        objects_->Update(head_, {.expected = {{kAttempt, attempt_}}, .absent = {kBytes}, .remove_object = true});
    const bool lost = absl::IsNotFound(given_up) || (absl::IsAborted(given_up) && IsAnothers());
    if (!given_up.ok() && !lost) return;
    std::vector<std::string> names;
    for (uint64_t i = 0; i < pieces_; ++i) names.push_back(PieceName(head_, attempt_, i));
    (void)RemoveObjects(objects_, names);
  }

  bool IsAnothers() {
    const absl::StatusOr<ObjectStore::Head> head = objects_->ReadHead(head_);
    if (!head.ok()) return absl::IsNotFound(head.status());
    const auto attempt = head->entries.find(kAttempt);
    return attempt != head->entries.end() && attempt->second != attempt_;
  }

  ObjectStore* const objects_;
  const std::string place_;
  const std::string head_;
  const std::string attempt_;
  const size_t piece_bytes_;
  std::string piece_;  // What was appended and is not in a piece yet.
  uint64_t pieces_ = 0;
  uint64_t bytes_ = 0;
  std::optional<Pieces> written_;  // From Finish on.
  bool committed_ = false;
};

}  // namespace

PoolBackup::PoolBackup(ObjectStore* objects, const std::string& name, const std::string& place, Options options)
    : objects_(objects), head_("backup-" + name), place_(place), options_(std::move(options)) {
  CELL_CHECK(IsName(name));
  CELL_CHECK(options_.piece_bytes > 0 && options_.piece_bytes < std::min(kObjectAppendMax, kObjectReadMax));
}

bool PoolBackup::IsName(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kNameMax && std::all_of(name.begin(), name.end(), fits);
}

absl::Status PoolBackup::Damaged(const std::string& what) const {
  return absl::DataLossError(fmt::format(
      "{} is damaged: its object {} {}. Restore the object, or another backup (cellctl backup-remove removes this one)",
      place_, head_, what));
}

absl::StatusOr<PoolBackup::Head> PoolBackup::ReadHead() {
  ASSIGN_OR_RETURN(const ObjectStore::Head object, objects_->ReadHead(head_));
  const auto entry = [&](const char* key) {
    const auto it = object.entries.find(key);
    return it == object.entries.end() ? std::string() : it->second;
  };
  const std::string format = entry(kFormatKey);
  if (format.empty()) return Damaged("has no entry \"format\"");
  if (format != kFormat) {
    return absl::FailedPreconditionError(fmt::format(
        "{} has format {}, but this release reads format {}: use the release that wrote it", place_, format, kFormat));
  }
  Head head{.attempt = entry(kAttempt)};
  if (head.attempt.empty()) return Damaged("has no entry \"attempt\"");
  const std::optional<uint64_t> piece_bytes = ParseNumber(entry(kPieceBytes), kObjectReadMax - 1);
  if (piece_bytes.value_or(0) == 0) return Damaged("has no sound entry \"piece_bytes\"");
  head.piece_bytes = *piece_bytes;
  if (!object.entries.contains(kBytes)) return head;
  head.bytes = ParseNumber(entry(kBytes), kBackupBytesMax);
  if (!head.bytes.has_value()) return Damaged("has no sound entry \"bytes\"");
  return head;
}

absl::StatusOr<std::vector<std::string>> PoolBackup::ListPieces() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, objects_->List());
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(head_ + "/"); });
  return names;
}

absl::StatusOr<std::unique_ptr<UnfinishedBackup>> PoolBackup::Begin() {
  const absl::StatusOr<Head> before = ReadHead();
  if (!before.ok() && !absl::IsNotFound(before.status())) return before.status();
  if (before.ok() && before->bytes.has_value()) {
    return absl::AlreadyExistsError(fmt::format("there is already a backup in {}", place_));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> old, ListPieces());
  const std::string attempt = fmt::format("{:016x}", options_.attempt());
  ObjectUpdate claim{
      .set = {{kFormatKey, kFormat}, {kAttempt, attempt}, {kPieceBytes, fmt::format("{}", options_.piece_bytes)}}};
  if (before.ok()) {
    claim.expected = {{kAttempt, before->attempt}};
    claim.absent = {kBytes};
  } else {
    claim.create = true;
  }
  const absl::Status claimed = objects_->Update(head_, claim);
  if (absl::IsAborted(claimed) || absl::IsAlreadyExists(claimed) || absl::IsNotFound(claimed)) {
    return absl::AbortedError(fmt::format("another backup was begun or removed in {} at the same time", place_));
  }
  RETURN_IF_ERROR(claimed);
  auto backup = std::make_unique<UnfinishedPieces>(objects_, place_, head_, attempt, options_.piece_bytes);
  RETURN_IF_ERROR(RemoveObjects(objects_, old));
  return backup;
}

absl::StatusOr<std::unique_ptr<BackupBytes>> PoolBackup::Open() {
  const absl::StatusOr<Head> head = ReadHead();
  if (absl::IsNotFound(head.status())) return absl::NotFoundError(fmt::format("there is no backup in {}", place_));
  if (!head.ok()) return head.status();
  if (!head->bytes.has_value()) {
    return absl::NotFoundError(
        fmt::format("there is no backup in {}, but one that is unfinished: it is being written, or was interrupted "
                    "(cellctl backup begins it again, cellctl backup-remove removes it)",
                    place_));
  }
  return std::make_unique<Pieces>(objects_, place_, head_, head->attempt, head->piece_bytes, *head->bytes);
}

absl::StatusOr<bool> PoolBackup::Remove() {
  ASSIGN_OR_RETURN(const std::vector<std::string> pieces, ListPieces());
  const absl::StatusOr<ObjectStore::Head> head = objects_->ReadHead(head_);
  if (absl::IsNotFound(head.status())) {
    RETURN_IF_ERROR(RemoveObjects(objects_, pieces));
    return !pieces.empty();
  }
  if (!head.ok() && !absl::IsDataLoss(head.status())) return head.status();
  ObjectUpdate remove{.remove_object = true};
  if (head.ok()) {  // If it arrives late, it removes neither a later backup nor one that was unfinished before.
    remove.expected = head->entries;
    if (!head->entries.contains(kBytes)) remove.absent = {kBytes};
  }
  const absl::Status removed = objects_->Update(head_, remove);
  if (absl::IsAborted(removed)) {
    return absl::AbortedError(fmt::format("another backup was begun or made in {} at the same time", place_));
  }
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  RETURN_IF_ERROR(RemoveObjects(objects_, pieces));
  return true;
}

}  // namespace cell

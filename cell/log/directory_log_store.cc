#include "cell/log/directory_log_store.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/log/log_parts.h"
#include "fmt/format.h"

namespace cell {
namespace {

std::string FenceName(uint32_t epoch) { return fmt::format("{:08x}.fence", epoch); }

std::optional<uint32_t> FenceOf(const std::string& name) {
  uint32_t epoch = 0;
  if (std::sscanf(name.c_str(), "%" SCNx32, &epoch) != 1 || name != FenceName(epoch)) return std::nullopt;
  return epoch;
}

// Returns the sequence in the name of a file that NoteEnd made.
std::optional<uint64_t> EndOf(const std::string& name) {
  const std::optional<PartName> end = ParsePartName(name, "end");
  return end.has_value() ? std::optional(end->sequence) : std::nullopt;
}

// Returns the epoch of a file, or 0 if it has none.
uint32_t EpochOf(const std::string& name) {
  if (const std::optional<uint32_t> fence = FenceOf(name)) return *fence;
  for (const char* const kind : {"log", "checkpoint", "unfinished", "end"}) {
    if (const std::optional<PartName> named = ParsePartName(name, kind)) return named->epoch;
  }
  return 0;
}

}  // namespace

class DirectoryLogStore::Writer : public LogWriter {
 public:
  Writer(std::unique_ptr<Directory> directory, uint32_t region, uint32_t epoch, std::unique_ptr<File> file)
      : directory_(std::move(directory)), region_(region), epoch_(epoch), file_(std::move(file)) {}

  absl::Status Append(std::string_view bytes) override { return file_->Append(bytes); }
  absl::Status Sync() override {
    if (Mutated(Mutant::kFenceCheckedTooEarly)) {
      RETURN_IF_ERROR(CheckFence(directory_.get(), region_, epoch_));
      return file_->Sync();
    }
    RETURN_IF_ERROR(file_->Sync());
    return CheckFence(directory_.get(), region_, epoch_);
  }

 private:
  const std::unique_ptr<Directory> directory_;  // Kept open, so that a sync needs no descriptor.
  const uint32_t region_;
  const uint32_t epoch_;
  const std::unique_ptr<File> file_;
};

std::string DirectoryLogStore::PathOf(uint32_t region) const { return fmt::format("{}/region-{}", directory_, region); }

absl::StatusOr<bool> DirectoryLogStore::Has(uint32_t region) {
  const absl::Status status = List(region).status();
  if (status.code() == absl::StatusCode::kNotFound) return false;
  if (!status.ok()) return status;
  return true;
}

absl::Status DirectoryLogStore::CheckFence(Directory* directory, uint32_t region, uint32_t epoch) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, directory->List());
  bool own = false;
  for (const std::string& name : names) {
    const std::optional<uint32_t> fence = FenceOf(name);
    if (fence.has_value() && *fence > epoch) {
      return absl::AbortedError(
          fmt::format("region {} belongs to another server since epoch {}; this server held it at epoch {}", region,
                      *fence, epoch));
    }
    own |= fence == epoch;
  }
  return own ? absl::OkStatus() : absl::NotFoundError(fmt::format("the log of region {} was removed", region));
}

absl::Status DirectoryLogStore::Fence(uint32_t region, uint32_t epoch) {
  RETURN_IF_ERROR(files_->MakeDirectory(PathOf(region)));
  absl::Status made = files_->Create(PathOf(region) + "/" + FenceName(epoch)).status();
  if (!made.ok() && made.code() != absl::StatusCode::kAlreadyExists) return made;
  // A former owner may already have looked for fences, and may be about to rename a file that it has begun.
  RETURN_IF_ERROR(RemoveUnfinished(region, epoch, 0));
  return files_->SyncDirectory(PathOf(region));
}

absl::StatusOr<std::unique_ptr<LogWriter>> DirectoryLogStore::Open(uint32_t region, uint32_t epoch, uint64_t sequence,
                                                                   std::string_view first) {
  RETURN_IF_ERROR(Fence(region, epoch));
  ASSIGN_OR_RETURN(std::unique_ptr<Directory> directory, files_->Open(PathOf(region)));
  RETURN_IF_ERROR(CheckFence(directory.get(), region, epoch));
  const std::string path = PathOf(region) + "/" + ToText({sequence, epoch}, "log");
  std::unique_ptr<File> file;
  if (first.empty()) {
    ASSIGN_OR_RETURN(file, files_->CreateLog(path));
  } else {
    const std::string begun = PathOf(region) + "/" + ToText({sequence, epoch}, "unfinished");
    ASSIGN_OR_RETURN(file, Begin(begun));
    absl::Status status = file->Append(first);
    if (status.ok()) status = file->Sync();
    if (status.ok()) status = CheckFence(directory.get(), region, epoch);
    if (status.ok()) status = files_->Rename(begun, path);
    if (!status.ok()) {
      (void)files_->Remove(begun);  // Whoever fenced this epoch may have looked for it before it was there...
      RETURN_IF_ERROR(CheckFence(directory.get(), region, epoch));  // ...or has removed it.
      return status;
    }
  }
  if (!first.empty() || !Mutated(Mutant::kNoDirectorySync)) {
    RETURN_IF_ERROR(files_->SyncDirectory(PathOf(region)));
  }
  return std::make_unique<Writer>(std::move(directory), region, epoch, std::move(file));
}

absl::Status DirectoryLogStore::RemoveUnfinished(uint32_t region, uint32_t epoch, uint64_t sequence) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(PathOf(region)));
  for (const std::string& name : names) {
    const std::optional<PartName> its = ParsePartName(name, "unfinished");
    if (!its.has_value() || std::pair(its->epoch, its->sequence) >= std::pair(epoch, sequence)) continue;
    absl::Status removed = files_->Remove(PathOf(region) + "/" + name);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;  // Not there: it has just got its name.
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> DirectoryLogStore::Begin(const std::string& path) {
  absl::StatusOr<std::unique_ptr<File>> file = files_->CreateLog(path);
  if (file.status().code() != absl::StatusCode::kAlreadyExists) return file;
  RETURN_IF_ERROR(files_->Remove(path));
  return files_->CreateLog(path);
}

absl::StatusOr<std::unique_ptr<LogWriter>> DirectoryLogStore::BeginCheckpoint(uint32_t region, uint32_t epoch,
                                                                              uint64_t sequence) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, Begin(PathOf(region) + "/" + ToText({sequence, epoch}, "unfinished")));
  ASSIGN_OR_RETURN(std::unique_ptr<Directory> directory, files_->Open(PathOf(region)));
  return std::make_unique<Writer>(std::move(directory), region, epoch, std::move(file));
}

absl::Status DirectoryLogStore::CommitCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) {
  const std::string path = PathOf(region);
  RETURN_IF_ERROR(files_->Rename(path + "/" + ToText({sequence, epoch}, "unfinished"),
                                 path + "/" + ToText({sequence, epoch}, "checkpoint")));
  return files_->SyncDirectory(path);
}

absl::Status DirectoryLogStore::DiscardCheckpoint(uint32_t region, uint32_t epoch, uint64_t sequence) {
  return files_->Remove(PathOf(region) + "/" + ToText({sequence, epoch}, "unfinished"));
}

absl::Status DirectoryLogStore::NoteEnd(uint32_t region, uint32_t epoch, uint64_t sequence) {
  absl::Status made = files_->Create(PathOf(region) + "/" + ToText({sequence, epoch}, "end")).status();
  if (!made.ok() && made.code() != absl::StatusCode::kAlreadyExists) return made;
  return files_->SyncDirectory(PathOf(region));
}

absl::StatusOr<uint64_t> DirectoryLogStore::NotedEnd(uint32_t region, uint64_t first_epoch) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(PathOf(region)));
  uint64_t noted = 0;
  for (const std::string& name : names) {
    const std::optional<PartName> end = ParsePartName(name, "end");
    if (end.has_value() && end->epoch >= first_epoch) noted = std::max(noted, end->sequence);
  }
  return noted;
}

absl::StatusOr<std::vector<LogPart>> DirectoryLogStore::List(uint32_t region) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(PathOf(region)));
  std::vector<LogPart> parts;
  for (const std::string& name : names) {
    if (const std::optional<LogPart> part = ParsePart(name)) parts.push_back(*part);
  }
  if (parts.empty()) return absl::NotFoundError(fmt::format("there is no log in {}", PathOf(region)));
  SortParts(&parts);
  for (LogPart& part : parts) part.name = PathOf(region) + "/" + part.name;
  return parts;
}

absl::StatusOr<size_t> DirectoryLogStore::Read(uint32_t, const LogPart& part, uint64_t offset, MutableBytes to) {
  return files_->Read(part.name, offset, to);
}

absl::StatusOr<uint64_t> DirectoryLogStore::Size(uint32_t, const LogPart& part) { return files_->Size(part.name); }

absl::Status DirectoryLogStore::Trim(uint32_t region, uint32_t epoch, uint64_t sequence) {
  ASSIGN_OR_RETURN(const std::vector<LogPart> parts, List(region));
  for (const LogPart& part : PartsNotNeeded(parts, sequence)) RETURN_IF_ERROR(files_->Remove(part.name));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(PathOf(region)));
  for (const std::string& name : names) {
    const std::optional<uint32_t> fence = FenceOf(name);
    const bool passed = EndOf(name).value_or(UINT64_MAX) < sequence;
    if (passed || (fence.has_value() && *fence < epoch)) RETURN_IF_ERROR(files_->Remove(PathOf(region) + "/" + name));
  }
  (void)RemoveUnfinished(region, epoch, sequence);  // The next fence or trim tries again.
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> DirectoryLogStore::LastEpoch(uint32_t region) {
  uint32_t last = 0;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(PathOf(region));
  if (absl::IsNotFound(names.status())) return last;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) last = std::max(last, EpochOf(name));
  return last;
}

absl::Status DirectoryLogStore::Remove(uint32_t region, uint32_t last_epoch) {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(PathOf(region));
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  const bool all = std::none_of(names->begin(), names->end(),
                                [last_epoch](const std::string& name) { return EpochOf(name) > last_epoch; });
  for (const std::string& name : *names) {
    const uint32_t epoch = EpochOf(name);
    if (all || (epoch != 0 && epoch <= last_epoch)) RETURN_IF_ERROR(files_->Remove(PathOf(region) + "/" + name));
  }
  return all ? files_->Remove(PathOf(region)) : absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> DirectoryLogStore::Regions() {
  std::vector<uint32_t> regions;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(directory_);
  if (names.status().code() == absl::StatusCode::kNotFound) return regions;
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    uint32_t region = 0;
    if (std::sscanf(name.c_str(), "region-%" SCNu32, &region) != 1) continue;
    if (name == fmt::format("region-{}", region)) regions.push_back(region);
  }
  return regions;
}

absl::Status DirectoryLogStore::RemoveAll() {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> regions, Regions());
  for (const uint32_t region : regions) RETURN_IF_ERROR(Remove(region, UINT32_MAX));
  return absl::OkStatus();
}

absl::Status DirectoryLogStore::Probe(uint32_t region) {
  constexpr size_t kProbeBytes = size_t{1} << 20;
  const std::string path = PathOf(region) + "/probe";
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, Begin(path));
  absl::Status status = file->Append(std::string(kProbeBytes, 'p'));
  if (status.ok()) status = file->Sync();
  const absl::Status removed = files_->Remove(path);
  return status.ok() ? removed : status;
}

}  // namespace cell

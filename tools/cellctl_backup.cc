// cellctl: backups of a whole tree, and their restoration into another cluster, of any shape and number of servers.
//
// A backup (backup_file.h) is a file or the objects of a pool (backup_place.h). It is there only once it is complete,
// stored, and was read back. It has the pairs of one moment, those of a snapshot. With --no-snapshot it is a scan: it
// has every key that was there throughout.
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/log/data_keys.h"
#include "cell/log/record_cipher.h"
#include "tools/backup_file.h"
#include "tools/backup_place.h"
#include "tools/cellctl_commands.h"
#include "tools/command_snapshot.h"
#include "tools/progress.h"

namespace cell {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr int kLanes = 32;

std::string Pairs(uint64_t pairs) { return fmt::format("{} pairs", pairs); }

BackupReader ReaderOf(BackupBytes* bytes, KeySource* keys) {
  return BackupReader([bytes](uint64_t at, MutableBytes to) { return bytes->Read(at, to); }, bytes->name(), keys);
}

// Returns the keys that were given, or null.
absl::StatusOr<std::shared_ptr<KeySource>> KeysOf(const CtlFlags& flags) {
  if (flags.key_file.empty()) return nullptr;
  ASSIGN_OR_RETURN(std::shared_ptr<KeySource> keys,
                   KeyFile::Open(flags.key_file, "If it was made without --key, restore it without --key"));
  return keys;
}

// Returns the bytes of keys and values in the tree, as the servers report them.
uint64_t DataBytes(Client* client) {
  uint64_t bytes = 0;
  for (const absl::StatusOr<std::string>& text : client->ServerStatus()) {
    if (!text.ok()) continue;
    const absl::StatusOr<nlohmann::json> json = ParseJson(*text);
    if (!json.ok()) continue;
    for (const JsonView region : JsonView(*json)["regions"].elements()) {
      if (!region["hash"].there()) bytes += region["data_bytes"].Or<uint64_t>(0);
    }
  }
  return bytes;
}

// Returns what has ended a scan, with what the user can do.
absl::Status ScanFailed(const absl::Status& status, uint64_t pairs) {
  std::string message = fmt::format("{} (after {} pairs; no backup was made)", std::string(status.message()), pairs);
  if (IsSnapshotTooOld(status)) {
    message += ". Try again, with larger --snapshot-bytes of the servers if much is written, or use --no-snapshot";
  }
  return absl::Status(status.code(), message);
}

// Writes all pairs of a scan to the backup, as long as `goes_on` returns true. Returns their sum.
absl::StatusOr<PairSum> WritePairs(Client* client, Scan scan, const std::function<bool()>& goes_on,
                                   UnfinishedBackup* backup, KeySource* keys) {
  Progress progress("backing up", ::isatty(STDERR_FILENO) != 0 ? DataBytes(client) : 0);
  BackupWriter writer;
  std::optional<RecordSealer> sealer;
  if (keys != nullptr) sealer.emplace(keys, FileIdentity{});
  const auto write = [&]() -> absl::Status {
    if (!sealer.has_value()) return backup->Append(writer.Take());
    std::string sealed;
    RETURN_IF_ERROR(sealer->Seal(writer.Take(), &sealed));
    return backup->Append(sealed);
  };
  uint64_t bytes = 0;
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    if (!goes_on()) return absl::CancelledError("interrupted; no backup was made");
    RETURN_IF_ERROR(writer.Add(scan.key(), scan.value(), scan.expiry_ns()));
    bytes += scan.key().size() + scan.value().size();
    progress.Show(bytes, [&] { return Pairs(writer.sum().pairs); });
    if (writer.bytes() >= kChunkBytes) RETURN_IF_ERROR(write());
  }
  if (!more.ok()) return ScanFailed(more.status(), writer.sum().pairs);
  writer.End();
  RETURN_IF_ERROR(write());
  RETURN_IF_ERROR(backup->Finish());
  return writer.sum();
}

// Writes all pairs that the tree has at one moment to the backup, unless the user does not want that. Returns their
// sum.
absl::StatusOr<PairSum> WriteTree(Client* client, const CtlFlags& flags, UnfinishedBackup* backup, KeySource* keys) {
  if (flags.no_snapshot)
    return WritePairs(
        client, client->NewScan({}), [] { return true; }, backup, keys);
  const auto snapshot = CommandSnapshot::Take(client, "", std::nullopt);
  if (!snapshot.ok()) return ScanFailed(snapshot.status(), 0);
  return WritePairs(
      client, (*snapshot)->NewScan({}), [&] { return !(*snapshot)->interrupted(); }, backup, keys);
}

// Reads the whole backup. Returns the sum of its pairs. Returns InvalidArgument if a key is longer than
// `key_bytes_max`, of which an expiry takes its part.
absl::StatusOr<PairSum> ReadPairs(BackupBytes* bytes, size_t key_bytes_max, KeySource* keys) {
  ASSIGN_OR_RETURN(const uint64_t size, bytes->Size());
  Progress progress("checking", size);
  BackupReader reader = ReaderOf(bytes, keys);
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<LogRecord> record, reader.Next());
    if (!record.has_value()) {
      if (reader.offset() == size) return reader.sum();
      return absl::DataLossError(
          fmt::format("{} is damaged at offset {}: it has data after its end record", bytes->name(), reader.offset()));
    }
    if (record->key.size() + ExpiryBytes(record->expiry) > key_bytes_max) {
      return absl::InvalidArgumentError(
          fmt::format("{} has a key of {} bytes{}, but keys of this cluster can have at most {}: create a cluster with "
                      "larger --node-bytes. Nothing was restored",
                      bytes->name(), record->key.size(), record->expiry == kNeverExpires ? "" : " whose pair expires",
                      key_bytes_max - ExpiryBytes(record->expiry)));
    }
    progress.Show(reader.offset(), [&] { return Pairs(reader.sum().pairs); });
  }
}

absl::StatusOr<uint64_t> Write(Client* client, const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const std::shared_ptr<KeySource> keys, KeysOf(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<BackupPlace> place, OpenBackupPlace(flags.file));
  ASSIGN_OR_RETURN(const std::unique_ptr<UnfinishedBackup> backup, place->Begin());
  ASSIGN_OR_RETURN(const PairSum seen, WriteTree(client, flags, backup.get(), keys.get()));
  ASSIGN_OR_RETURN(const PairSum written, ReadPairs(backup.get(), SIZE_MAX, keys.get()));
  if (written != seen) {
    return absl::DataLossError(
        fmt::format("the scan returned {} pairs, but the file has {}, or different ones: no backup was made",
                    seen.pairs, written.pairs));
  }
  RETURN_IF_ERROR(backup->Commit());
  return seen.pairs;
}

struct Restored {
  uint64_t pairs;
  uint64_t expired;
};

struct Restoring {
  BackupReader* reader;
  Client* client;
  bool done = false;
  uint64_t pairs = 0;
  uint64_t expired = 0;  // Pairs that were not put, because they had expired.
  absl::Status status = {};
};

Task<bool> RestoreLane(Restoring* restoring) {
  while (!restoring->done && restoring->status.ok()) {
    const absl::StatusOr<std::optional<LogRecord>> record = restoring->reader->Next();
    if (!record.ok() || !record->has_value()) {
      restoring->done = true;
      if (!record.ok()) restoring->status = record.status();
      break;
    }
    const std::string key((*record)->key), value((*record)->value);  // Copies, because the next lane's record replaces
                                                                     // them.
    const Expiry expiry = (*record)->expiry;
    const Expires expires = expiry == kNeverExpires ? Expires::Never() : Expires::AtNs(expiry);
    const absl::StatusOr<bool> put = co_await restoring->client->AsyncPut(key, value, expires);
    // The pairs were checked, so a server refuses one only because it has expired.
    const bool expired = expiry != kNeverExpires && absl::IsInvalidArgument(put.status());
    if (!put.ok() && !expired && restoring->status.ok()) restoring->status = put.status();
    restoring->pairs += put.ok();
    restoring->expired += expired;
  }
  co_return true;
}

absl::StatusOr<Restored> Read(Client* client, const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<BackupPlace> place, OpenBackupPlace(flags.file));
  ASSIGN_OR_RETURN(const std::unique_ptr<BackupBytes> backup, place->Open());
  ASSIGN_OR_RETURN(const uint64_t size, backup->Size());
  if (!flags.merge) {
    Scan scan = client->NewScan({.limit = 1});
    ASSIGN_OR_RETURN(const bool any, scan.Next());
    if (any) {
      return absl::FailedPreconditionError(
          "the cluster already has keys, which a restore would mix with those of the backup: use an empty cluster, or "
          "--merge");
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<KeySource> keys, KeysOf(flags));
  // Check the whole backup first, so that nothing of a damaged one is put.
  ASSIGN_OR_RETURN(const PairSum whole, ReadPairs(backup.get(), client->key_bytes_max(), keys.get()));
  Progress progress("restoring", size);
  BackupReader reader = ReaderOf(backup.get(), keys.get());
  Restoring restoring{&reader, client};
  std::vector<Task<bool>> lanes;
  lanes.reserve(kLanes);
  for (int i = 0; i < kLanes; ++i) lanes.push_back(RestoreLane(&restoring));
  for (Task<bool>& lane : lanes) lane.Start();
  for (const Task<bool>& lane : lanes) {
    while (!lane.done()) {
      client->Poll(INT64_MAX);
      progress.Show(reader.offset(), [&] { return Pairs(restoring.pairs); });
    }
  }
  if (restoring.status.ok() && restoring.pairs + restoring.expired != whole.pairs) {
    restoring.status = absl::DataLossError(fmt::format("{} was changed while it was being read", backup->name()));
  }
  if (!restoring.status.ok()) {
    return absl::Status(restoring.status.code(),
                        fmt::format("{} ({} of {} pairs were restored before)", std::string(restoring.status.message()),
                                    restoring.pairs, whole.pairs));
  }
  return Restored{restoring.pairs, restoring.expired};
}

}  // namespace

int Backup(Client* client, const CtlFlags& flags) {
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  if (const size_t tables = client->Tables().size(); tables > 0) {
    fmt::print(stderr, "cellctl: only the tree is backed up, not the cluster's {} Pilaf table{}\n", tables,
               tables == 1 ? "" : "s");
  }
  const absl::StatusOr<uint64_t> pairs = Write(client, flags);
  if (!pairs.ok()) return Fail(pairs.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"pairs", *pairs}}.dump());
  } else {
    fmt::print("{} pairs are backed up in {}{}\n", *pairs, flags.file,
               flags.no_snapshot ? ". They are of different moments, because of --no-snapshot" : "");
  }
  return kDone;
}

int BackupRemove(Client*, const CtlFlags& flags) {
  const absl::StatusOr<std::unique_ptr<BackupPlace>> place = OpenBackupPlace(flags.file);
  if (!place.ok()) return Fail(place.status());
  const absl::StatusOr<bool> removed = (*place)->Remove();
  if (!removed.ok()) return Fail(removed.status());
  if (!*removed) return Fail(absl::NotFoundError(fmt::format("there is no backup in {}", flags.file)));
  if (!flags.json()) fmt::print("the backup in {} is removed\n", flags.file);
  return kDone;
}

int Restore(Client* client, const CtlFlags& flags) {
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  const absl::StatusOr<Restored> restored = Read(client, flags);
  if (!restored.ok()) return Fail(restored.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"pairs", restored->pairs}, {"expired", restored->expired}}.dump());
  } else {
    fmt::print("{} pairs were restored from {}\n", restored->pairs, flags.file);
    if (restored->expired > 0) fmt::print("{} others had expired\n", restored->expired);
  }
  return kDone;
}

}  // namespace cell

// cellctl: backups of a whole cluster, and their way into another, of whatever shape and number of servers.
//
// A backup is one file, DIR/backup, of records as checkpoints have them (log_record.h), of no region: a beginning, all
// pairs in key order, an end. It has its name only once it is whole and on disk. It is a scan: every key that was there
// throughout is in it, and it is not a snapshot.
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/io/posix_files.h"
#include "cell/log/record_reader.h"
#include "cell/log/region_log.h"
#include "tools/cellctl_commands.h"
#include "tools/progress.h"

namespace cell {
namespace {

constexpr uint32_t kNoRegion = 0;
constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr int kLanes = 32;

std::string BackupPath(const CtlFlags& flags) { return flags.file + "/backup"; }

absl::StatusOr<uint64_t> Write(Client* client, const CtlFlags& flags) {
  PosixFiles files;
  const std::string path = BackupPath(flags);
  if (files.Size(path).ok())
    return absl::AlreadyExistsError(fmt::format("there is a backup in {} already", flags.file));
  RETURN_IF_ERROR(files.MakeDirectory(flags.file));
  (void)files.Remove(path + ".unfinished");
  ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(path + ".unfinished"));
  std::string chunk;
  uint64_t records = 0;
  const auto add = [&](RecordKind kind, std::string_view key, std::string_view value) {
    AppendRecord({kNoRegion, 0, ++records, 0}, kind, key, value, {}, &chunk);
  };
  add(RecordKind::kBegin, "", BeginValue(kNoRegion));
  Progress progress(0);
  Scan scan = client->NewScan({});
  uint64_t bytes = 0;
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    add(RecordKind::kPut, scan.key(), scan.value());
    if (chunk.size() < kChunkBytes) continue;
    RETURN_IF_ERROR(file->Append(chunk));
    bytes += chunk.size();
    chunk.clear();
    progress.Show(bytes, records);
  }
  if (!more.ok()) return more.status();
  const CheckpointEnd end{records, 0};
  add(RecordKind::kEnd, "", std::string_view(reinterpret_cast<const char*>(&end), sizeof(end)));
  RETURN_IF_ERROR(file->Append(chunk));
  RETURN_IF_ERROR(file->Sync());
  RETURN_IF_ERROR(files.Rename(path + ".unfinished", path));
  RETURN_IF_ERROR(files.SyncDirectory(flags.file));
  return records - 2;
}

class BackupReader {
 public:
  explicit BackupReader(const std::string& path)
      : path_(path), reader_([this](uint64_t at, MutableBytes to) { return files_.Read(path_, at, to); }, path, 0, 0) {}

  // The next pair; nothing at the end.
  absl::StatusOr<std::optional<LogRecord>> Next() {
    for (;;) {
      const uint64_t at = reader_.offset();
      ASSIGN_OR_RETURN(const LogRecord record, reader_.Next());
      ++records_;
      if (record.kind == RecordKind::kPut && records_ > 1) return record;
      if (record.kind == RecordKind::kBegin && records_ == 1) continue;
      if (record.kind == RecordKind::kEnd &&
          Load<CheckpointEnd>(AsBytes(record.value).data()).records == records_ - 1) {
        return std::nullopt;
      }
      return DamagedFile(path_, at, "a record that does not belong there");
    }
  }
  uint64_t offset() const { return reader_.offset(); }
  uint64_t pairs() const { return records_ - 2; }  // At the end.

 private:
  PosixFiles files_;
  const std::string path_;
  RecordReader reader_;
  uint64_t records_ = 0;
};

struct Restoring {
  BackupReader* reader;
  Client* client;
  bool done = false;
  uint64_t records = 0;
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
    const std::string key((*record)->key), value((*record)->value);  // The next lane's record takes their place.
    const absl::StatusOr<bool> put = co_await restoring->client->AsyncPut(key, value);
    if (!put.ok() && restoring->status.ok()) restoring->status = put.status();
    restoring->records += put.ok();
  }
  co_return true;
}

absl::StatusOr<uint64_t> Read(Client* client, const CtlFlags& flags) {
  const std::string path = BackupPath(flags);
  const absl::StatusOr<uint64_t> size = PosixFiles().Size(path);
  if (!size.ok()) return absl::NotFoundError(fmt::format("there is no backup in {}", flags.file));
  if (!flags.merge) {
    Scan scan = client->NewScan({.limit = 1});
    ASSIGN_OR_RETURN(const bool any, scan.Next());
    if (any) {
      return absl::FailedPreconditionError(
          "the cluster has keys already, which a restore would mix with others: bring up an empty one, or --merge");
    }
  }
  // Whole first: nothing is put of a backup that is damaged.
  {
    Progress progress(*size);
    BackupReader reader(path);
    for (uint64_t pairs = 0;; ++pairs) {
      ASSIGN_OR_RETURN(const std::optional<LogRecord> record, reader.Next());
      if (!record.has_value()) break;
      progress.Show(reader.offset() / 4, pairs);
    }
  }
  Progress progress(*size);
  BackupReader reader(path);
  Restoring restoring{&reader, client};
  std::vector<Task<bool>> lanes;
  for (int i = 0; i < kLanes; ++i) lanes.push_back(RestoreLane(&restoring));
  for (Task<bool>& lane : lanes) lane.Start();
  for (const Task<bool>& lane : lanes) {
    while (!lane.done()) {
      client->Poll(INT64_MAX);
      progress.Show(reader.offset(), restoring.records);
    }
  }
  if (!restoring.status.ok()) {
    return absl::Status(
        restoring.status.code(),
        fmt::format("{} ({} pairs were restored before)", std::string(restoring.status.message()), restoring.records));
  }
  return restoring.records;
}

int Say(const absl::StatusOr<uint64_t>& pairs, const char* what, const CtlFlags& flags) {
  if (!pairs.ok()) return Fail(pairs.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"pairs", *pairs}}.dump());
  } else {
    fmt::print("{} pairs {} {}\n", *pairs, what, flags.file);
  }
  return kDone;
}

}  // namespace

int Backup(Client* client, const CtlFlags& flags) {
  if (const size_t tables = client->Tables().size(); tables > 0) {
    fmt::print(stderr, "cellctl: the tree alone is backed up, not the cluster's {} hash tables\n", tables);
  }
  return Say(Write(client, flags), "are backed up in", flags);
}
int Restore(Client* client, const CtlFlags& flags) { return Say(Read(client, flags), "were restored from", flags); }

}  // namespace cell

// libFuzzer: replays any files as a region's log and checkpoints, in plain or encrypted. Replay refuses them, or the
// region that is built refuses the result, or that region is sound. Frames and CRCs can be corrected, so that the code
// behind them is tested.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/io/sim/sim_files.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_replay.h"
#include "cell/log/record_cipher.h"
#include "cell/log/region_log.h"
#include "cell/log/sealed_log_store.h"
#include "cell/log/test_keys.h"
#include "cell/server/region/region_rebuild.h"
#include "cell/tree/meganode_split.h"
#include "cell/tree/tree_check.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;
constexpr RegionShape kShape{512, 16 << 10, 64 << 10};

// Reads the input byte by byte; zeros follow its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : text_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return text_.empty(); }
  uint8_t Byte() {
    const std::string_view byte = Bytes(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  std::string_view Bytes(size_t bytes) {
    const std::string_view taken = text_.substr(0, bytes);
    text_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view text_;
};

// A file that the input describes.
struct Draft {
  std::string name;
  uint32_t epoch = 1;
  uint64_t from = 1;  // As in its name.
  bool checkpoint = false;
  uint64_t sequence = 1;
  std::string bytes;

  void Add(RecordKind kind, std::string_view key, std::string_view value, uint8_t unsynced = 0) {
    AppendRecord({kRegion, epoch, sequence++, unsynced}, kind, key, value, {}, &bytes);
  }
};

void Write(Files* files, const Draft& draft, KeySource* keys) {
  if (draft.name.empty()) return;
  const auto file = files->CreateLog("log/region-7/" + draft.name);
  if (!file.ok()) return;  // There is one of this name.
  std::string bytes = draft.bytes;
  if (keys != nullptr) {
    bytes.clear();
    // A torn write may have left bytes after the last whole record.
    if (!RecordSealer(keys, {kRegion, draft.epoch, draft.from, draft.checkpoint}).Seal(draft.bytes, &bytes).ok())
      bytes += "torn";
  }
  (void)(*file)->Append(bytes);
}

// With `keys`, encrypts the files.
void WriteFiles(Input input, Files* files, KeySource* keys) {
  Draft draft;
  while (!input.empty()) {
    const uint8_t what = input.Byte();
    switch (what % 8) {
      case 0:
      case 1: {
        Write(files, draft, keys);
        draft = {};
        draft.epoch = input.Byte();
        const uint8_t number = input.Byte();
        draft.from = number == UINT8_MAX ? UINT64_MAX : number;
        draft.checkpoint = what % 8 == 1;
        draft.name = fmt::format("{:016x}.{:08x}.{}", draft.from, draft.epoch, draft.checkpoint ? "checkpoint" : "log");
        if (!draft.checkpoint) draft.sequence = draft.from;
        if (what < 128) draft.Add(RecordKind::kBegin, "", BeginValue(kRegion));
        break;
      }
      case 2: {
        const auto kind = static_cast<RecordKind>(input.Byte());
        const uint8_t unsynced = input.Byte(), key_bytes = input.Byte(), value_bytes = input.Byte();
        const std::string_view key = input.Bytes(key_bytes);
        draft.Add(kind, key, input.Bytes(value_bytes), unsynced);
        break;
      }
      case 3: {
        MeganodeRange range;
        range.tier = input.Byte();
        range.low = input.Bytes(input.Byte());
        if (what & 8) range.high = input.Bytes(input.Byte());
        draft.Add(RecordKind::kRange, range.low, EncodeRange(range));
        break;
      }
      case 4: {
        const CheckpointEnd end{draft.sequence - 1, input.Byte()};
        draft.Add(RecordKind::kEnd, "", std::string_view(reinterpret_cast<const char*>(&end), sizeof(end)));
        break;
      }
      case 5: {
        HashRangeValue range{};
        range.first = static_cast<uint32_t>(input.Byte()) << 24;
        range.last = static_cast<uint32_t>(input.Byte()) << 24 | 0xffffff;
        range.bucket_bytes = what & 8 ? uint32_t{1} << input.Byte() % 32 : 0;
        draft.Add(RecordKind::kHashRange, "", std::string_view(reinterpret_cast<const char*>(&range), sizeof(range)));
        break;
      }
      case 6: {  // Many keys in order.
        const uint8_t first = input.Byte(), count = input.Byte(), value_bytes = input.Byte();
        for (int i = 0; i < count; ++i) {
          draft.Add(what & 8 ? RecordKind::kDelete : RecordKind::kPut, fmt::format("{:04}", 4 * i + first),
                    what & 8 ? "" : std::string(value_bytes, 'v'));
        }
        break;
      }
      case 7:
        draft.bytes += input.Bytes(input.Byte());
        break;
    }
  }
  Write(files, draft, keys);
}

// Memory of a region; its user formats it.
class Memory {
 public:
  Memory() : base_(static_cast<std::byte*>(std::aligned_alloc(4096, kShape.region_bytes()))) {}
  ~Memory() { std::free(base_); }
  RegionMemory* Clean() {
    std::memset(base_, 0, kShape.region_bytes());
    return &memory_;
  }

 private:
  std::byte* const base_;
  RegionMemory memory_{base_, kShape.region_bytes()};
};

void CheckSound(const RegionMemory& memory) {
  const TreeReport report = CheckTree(memory);
  for (const std::string& error : report.errors) std::fprintf(stderr, "%s\n", error.c_str());
  CELL_CHECK(report.ok());
}

// Writes to the tree, and splits it, as its server would.
void Use(Meganode* tree, Memory* other) {
  const std::string low = tree->range().low, next = low + "x";
  if (tree->tier() == 0) {
    for (const std::string& key : {low, next}) {
      if (!tree->CheckKey(key).ok() || !tree->Covers(key)) continue;
      if (tree->Put(key, "value", Crc64("value", Crc64(key))).ok()) CELL_CHECK(tree->Find(key)->pair.has_value());
    }
    (void)tree->Delete(next);
  } else {
    (void)tree->InsertRoute(next, RootOf(kRegion + 1));
    CELL_CHECK_EQ(tree->RouteOf(low).kind, Meganode::Route::Kind::kChild);
  }
  const std::optional<std::string> key = MeganodeSplit::ChooseKey(*tree);
  if (!key.has_value()) return;
  MeganodeRange range = tree->range();
  range.low = *key;
  RegionMemory* const memory = other->Clean();
  CELL_CHECK(Meganode::Format(memory, kRegion + 2, kShape, range).ok());
  Meganode right(memory);
  MeganodeSplit split(tree, &right, *key);
  absl::StatusOr<bool> copied = false;
  while (copied.ok() && !*copied) copied = split.Copy(64);
  if (!copied.ok()) return;
  CELL_CHECK(split.Finish().ok());
  while (!split.Reclaim(64)) continue;
  CheckSound(*memory);
}

void Use(HashTable* table) {
  for (const std::string key : {"a", "b"}) {
    if (table->Put(key, "value", Crc64("value", Crc64(key))).ok()) CELL_CHECK(table->Get(key)->has_value());
    (void)table->Delete(key);
  }
}

void Replay(LogStore* store) {
  static Memory recovered, other;
  LogReplay replay(store, kRegion);
  if (!replay.Open().ok()) return;
  const LogReplay::Rest rest = replay.RestFor(UINT32_MAX);
  CELL_CHECK(rest.sequence >= 1 && rest.next_sequence > rest.sequence);
  RegionMemory* const memory = recovered.Clean();
  RegionContent content;
  const absl::Status built = RebuildRegion(replay, kRegion, kShape, memory, &content);
  CELL_CHECK(!absl::IsInvalidArgument(built));  // Wrong content is the log's fault, and so DataLoss.
  if (!built.ok()) return;
  if (content.hash_range.has_value()) {
    const std::unique_ptr<HashTable> table = HashTable::Open(memory);
    CELL_CHECK(table->Check().ok());
    Use(table.get());
    CELL_CHECK(table->Check().ok());
  } else {
    CheckSound(*memory);
    Meganode tree(memory);
    Use(&tree, &other);
    CheckSound(*memory);
  }
  // The beginning of the next owner's segment is also a log, with the same content.
  if (!store->Open(kRegion, UINT32_MAX, rest.sequence, rest.bytes).ok()) return;
  LogReplay again(store, kRegion);
  CELL_CHECK(again.Open().ok());
}

}  // namespace
}  // namespace cell

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cell;
  SimDisk disk(1);
  const auto host = disk.NewHost();
  CELL_CHECK(host->MakeDirectory("log/region-7").ok());
  const auto keys = std::make_shared<TestKeys>(std::vector<DataKey>{TestKey(1)}, /*plain=*/size % 3 == 0);
  const bool encrypted = size % 2 == 0;  // No byte of the input says so: inputs that were found before stay of use.
  WriteFiles(Input(data, size), host.get(), encrypted ? keys.get() : nullptr);
  const auto store = std::make_shared<DirectoryLogStore>(host.get(), "log");
  SealedLogStore sealed(store, keys);
  Replay(encrypted ? static_cast<LogStore*>(&sealed) : store.get());
  return 0;
}

#include "cell/log/sealed_log_store.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "cell/base/crc64.h"
#include "cell/log/keys_needed.h"
#include "cell/log/record_cipher.h"
#include "cell/log/test_keys.h"
#include "cell/log/test_log.h"

namespace cell {
namespace {

class SealedLogTest : public LogTest {
 protected:
  std::shared_ptr<LogStore> StoreWith(std::shared_ptr<KeySource> keys) {
    return std::make_shared<SealedLogStore>(std::make_shared<DirectoryLogStore>(host_.get(), "log"), std::move(keys));
  }
  std::string CheckpointAt(uint64_t sequence) const {
    return fmt::format("log/region-{}/{:016x}.{:08x}.checkpoint", kRegion, sequence, 1);
  }
  // Writes some of everything, in two segments and a checkpoint between them.
  void Fill(Owner* owner) {
    ASSERT_TRUE(owner->Open(1).ok());
    owner->Range({});
    for (int i = 0; i < 20; ++i)
      owner->Put(fmt::format("secret key {}", i), std::string(100, 's'), i % 3 == 0 ? 77 : 0);
    owner->Delete("secret key 3");
    ASSERT_TRUE(owner->Flush().ok());
    ASSERT_TRUE(owner->Checkpoint().ok());
    for (int i = 10; i < 15; ++i) owner->Put(fmt::format("secret key {}", i), "secret value " + std::string(50, 't'));
    owner->Put("secret empty", "");
    ASSERT_TRUE(owner->Flush().ok());
    if (owner->log()->unmarked()) owner->log()->Mark();
    ASSERT_TRUE(owner->Flush().ok());
  }
  absl::StatusOr<Model> Read(LogStore* store) {
    LogReplay replay(store, kRegion);
    RETURN_IF_ERROR(replay.Open());
    return Replayed(replay);
  }

  const std::shared_ptr<TestKeys> keys_ = std::make_shared<TestKeys>(std::vector<DataKey>{TestKey(1)});
  const std::shared_ptr<LogStore> sealed_ = StoreWith(keys_);
};

TEST_F(SealedLogTest, HidesKeysAndValuesAndGivesThemBack) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  std::string all;
  for (const std::string& path : {CheckpointAt(24), Segment(24, 1)}) all += *disk_.bytes(path);
  EXPECT_GT(all.size(), 1000u);
  for (const char* text : {"secret", "sssssssss", "ttttttttt"}) EXPECT_EQ(all.find(text), std::string::npos) << text;
  const absl::StatusOr<Model> model = Read(sealed_.get());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model, *owner.model());
}

TEST_F(SealedLogTest, TheNextOwnerGoesOn) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  owner.Put("not flushed", "and lost");
  LogReplay replay(sealed_.get(), kRegion);
  ASSERT_TRUE(sealed_->Fence(kRegion, 2).ok());
  ASSERT_TRUE(replay.Open().ok());
  Owner next(sealed_.get(), 2);
  *next.model() = *Replayed(replay);
  ASSERT_TRUE(next.GoOn(replay).ok());
  next.Put("secret key 2", "of the next owner");
  ASSERT_TRUE(next.Flush().ok());
  const absl::StatusOr<Model> model = Read(sealed_.get());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(*model, *next.model());
}

TEST_F(SealedLogTest, KeysAreReplacedOneAfterTheOther) {
  Owner owner(sealed_.get(), 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  owner.Put("a", "1");
  ASSERT_TRUE(owner.Flush().ok());
  keys_->Set({TestKey(2), TestKey(1)});
  owner.Put("b", "2");  // The segment goes on with its key.
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_EQ(*Read(sealed_.get()), *owner.model());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Read(StoreWith(std::make_shared<TestKeys>(std::vector{TestKey(2)})).get()).status()));
  ASSERT_TRUE(owner.Checkpoint().ok());
  owner.Put("c", "3");
  ASSERT_TRUE(owner.Flush().ok());
  keys_->Set({TestKey(2)});  // Nothing needs the old key any more.
  EXPECT_EQ(*Read(sealed_.get()), *owner.model());
}

// Says which keys must be kept, at each step of replacing one.
TEST_F(SealedLogTest, SaysWhichKeysAreNeeded) {
  const auto needed = [&] {
    std::map<std::string, uint64_t> counts;
    const absl::StatusOr<KeysNeeded> found = FindKeysNeeded(sealed_.get());
    EXPECT_TRUE(found.ok()) << found.status();
    for (const auto& [id, files] : found->by_key) counts[id] = files.count;
    if (found->plain.count > 0) counts["plain"] = found->plain.count;
    return counts;
  };
  using Counts = std::map<std::string, uint64_t>;
  const std::string one = IdText(TestKey(1).id()), two = IdText(TestKey(2).id());
  EXPECT_EQ(needed(), Counts());
  Owner before(&store_, 1);
  ASSERT_TRUE(before.Open(1).ok());
  before.Range({});
  ASSERT_TRUE(before.Flush().ok());
  EXPECT_EQ(needed(), (Counts{{"plain", 1}}));
  const auto taking = StoreWith(std::make_shared<TestKeys>(std::vector{TestKey(1)}, /*plain=*/true));
  LogReplay replay(taking.get(), kRegion);
  ASSERT_TRUE(taking->Fence(kRegion, 2).ok());
  ASSERT_TRUE(replay.Open().ok());
  Owner owner(sealed_.get(), 2);
  ASSERT_TRUE(owner.GoOn(replay).ok());
  EXPECT_EQ(needed(), (Counts{{"plain", 1}, {one, 1}}));
  ASSERT_TRUE(owner.Checkpoint().ok());
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_EQ(needed(), (Counts{{one, 2}}));
  keys_->Set({TestKey(2), TestKey(1)});
  owner.Put("a", "1");
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_EQ(needed(), (Counts{{one, 2}}));
  ASSERT_TRUE(owner.Checkpoint().ok());
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_EQ(needed(), (Counts{{two, 2}}));
  EXPECT_NE(FindKeysNeeded(sealed_.get())->by_key[two].example.find("log/region-7/"), std::string::npos);
}

TEST_F(SealedLogTest, SaysWhichKeyIsMissing) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  const absl::Status none = Read(&store_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_NE(none.message().find("is encrypted with key " + IdText(TestKey(1).id())), std::string::npos) << none;
  const auto others = StoreWith(std::make_shared<TestKeys>(std::vector{TestKey(9)}));
  const absl::Status wrong = Read(others.get()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(wrong));
  EXPECT_NE(wrong.message().find("which the keys does not have"), std::string::npos) << wrong;
}

TEST_F(SealedLogTest, PlainFilesAreTakenOnlyIfThatIsMeant) {
  Owner owner(&store_, 1);
  Fill(&owner);
  const absl::Status refused = Read(sealed_.get()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(refused.message().find("is not encrypted, but"), std::string::npos) << refused;
  const auto taking = StoreWith(std::make_shared<TestKeys>(std::vector{TestKey(1)}, /*plain=*/true));
  EXPECT_EQ(*Read(taking.get()), *owner.model());
}

// Each bit of all files. A marker at the end may be torn, because it has no content. The next test shows that it is not
// only the CRC that notices.
TEST_F(SealedLogTest, EachBitFlipped) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  for (const std::string& path : {CheckpointAt(24), Segment(24, 1)}) {
    std::string* const bytes = disk_.bytes(path);
    ASSERT_NE(bytes, nullptr) << path;
    const size_t end = bytes->find_last_not_of('\0') + 1;  // Zeros fill the last block.
    const bool marked = path == Segment(24, 1);
    const size_t content = marked ? end - RecordBytes(0, kSealTagBytes) : end;
    for (size_t bit = 0; bit < end * 8; ++bit) {
      (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
      const absl::StatusOr<Model> read = Read(sealed_.get());
      ASSERT_TRUE(!read.ok() || (bit / 8 >= content && *read == *owner.model())) << path << " " << bit;
      (*bytes)[bit / 8] ^= static_cast<char>(1 << bit % 8);
    }
  }
  EXPECT_TRUE(Read(sealed_.get()).ok());
}

// Somebody who can write to the files changes a record and gives it a CRC that fits.
TEST_F(SealedLogTest, AChangeIsNoticedEvenIfTheCrcFits) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  std::string* const bytes = disk_.bytes(Segment(24, 1));
  const std::string before = *bytes;
  const auto spoil = [&](size_t record, const std::function<void(char*, RecordHeader*)>& change) {
    *bytes = before;
    size_t at = 0;
    RecordHeader header;
    for (size_t i = 0; std::memcpy(&header, bytes->data() + at, sizeof(header)), i < record; ++i) {
      at += RoundUp(header.bytes, kRecordAlignment);
    }
    change(bytes->data() + at, &header);
    std::memcpy(bytes->data() + at, &header, sizeof(header));
    header.crc = Crc64(std::string_view(*bytes).substr(at + 8, header.bytes - 8), kRegion);
    std::memcpy(bytes->data() + at, &header.crc, sizeof(header.crc));
    return Read(sealed_.get()).status();
  };
  ASSERT_TRUE(spoil(1, [](char*, RecordHeader*) {}).ok());  // As it was.
  const absl::Status changed = spoil(1, [](char* record, RecordHeader*) { record[sizeof(RecordHeader)] ^= 1; });
  EXPECT_TRUE(absl::IsDataLoss(changed));
  EXPECT_NE(changed.message().find("was changed at offset"), std::string::npos) << changed;
  EXPECT_TRUE(absl::IsDataLoss(spoil(1, [](char* record, RecordHeader* header) { record[header->bytes - 1] ^= 1; })));
  EXPECT_TRUE(absl::IsDataLoss(spoil(1, [](char*, RecordHeader* header) { header->kind = RecordKind::kDelete; })));
  EXPECT_TRUE(absl::IsDataLoss(spoil(1, [](char*, RecordHeader* header) { --header->key_bytes; })));
  EXPECT_TRUE(absl::IsDataLoss(spoil(2, [](char*, RecordHeader* header) { header->unsynced = 0; })));
  // A record in plain, among sealed ones.
  EXPECT_TRUE(absl::IsDataLoss(spoil(1, [](char*, RecordHeader* header) { header->flags = 0; })));
  // Another salt, another key.
  EXPECT_TRUE(absl::IsDataLoss(spoil(0, [](char* record, RecordHeader* header) { record[header->bytes - 1] ^= 1; })));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      spoil(0, [](char* record, RecordHeader*) { record[sizeof(RecordHeader) + sizeof(SegmentBegin)] ^= 1; })));
}

// A record is no other record's, and a file no other region's, though both have the same key.
TEST_F(SealedLogTest, ARecordIsGoodWhereItWasWrittenAlone) {
  std::string plain;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  AppendRecord({kRegion, 1, 2, 0}, RecordKind::kPut, "key", "value", {}, &plain);
  const FileIdentity file = {kRegion, 1, 1, false};
  const auto open = [&](const std::string& sealed, const std::string& of, const FileIdentity& opened) {
    // The begin record of `sealed`, and the other record of `of`.
    std::string bytes = sealed;
    const LogRecord begin = ReadRecord(bytes.data());
    RecordOpener opener(keys_.get(), "file", opened);
    if (absl::Status status = opener.Begin(begin); !status.ok()) return status;
    std::string second = of.substr(begin.bytes());
    LogRecord record = ReadRecord(second.data());
    if (absl::Status status = opener.Open(&record, 0); !status.ok()) return status;
    EXPECT_EQ(record.key, "key");
    EXPECT_EQ(record.value, "value");
    return absl::OkStatus();
  };
  std::string one, two;
  ASSERT_TRUE(RecordSealer(keys_.get(), {kRegion, 1, 1}).Seal(plain, &one).ok());
  ASSERT_TRUE(RecordSealer(keys_.get(), {kRegion, 1, 1}).Seal(plain, &two).ok());
  EXPECT_NE(one, two);  // Equal content does not look equal.
  EXPECT_TRUE(open(one, one, file).ok());
  EXPECT_TRUE(absl::IsDataLoss(open(one, two, file)));
  for (const FileIdentity& other : {FileIdentity{kRegion + 1, 1, 1, false},
                                    {kRegion, 2, 1, false},
                                    {kRegion, 1, 2, false},
                                    {kRegion, 1, 1, true}}) {
    EXPECT_TRUE(absl::IsDataLoss(open(one, one, other))) << other.region << other.epoch << other.sequence;
  }
}

// A nonce is used once: with the same key stream, equal pairs would look equal, and different ones would tell their
// difference.
TEST_F(SealedLogTest, EqualRecordsOfAFileDoNotLookEqual) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  constexpr uint64_t kLast = 700;  // Such as with the same lowest byte of the number.
  for (uint64_t sequence = 2; sequence <= kLast; ++sequence) {
    AppendRecord({kRegion, 1, sequence, 0}, RecordKind::kPut, "key", std::string(100, 'v'), {}, &plain);
  }
  ASSERT_TRUE(RecordSealer(keys_.get(), {kRegion, 1, 1}).Seal(plain, &sealed).ok());
  const size_t first = ReadRecord(sealed.data()).bytes(), bytes = ReadRecord(sealed.data() + first).bytes();
  std::set<std::string> texts;
  for (size_t at = first; at < sealed.size(); at += bytes) texts.insert(sealed.substr(at + sizeof(RecordHeader), 100));
  EXPECT_EQ(texts.size(), kLast - 1);
}

// Logs of earlier releases must stay readable, so the same records with the same key and salt give the same bytes.
TEST_F(SealedLogTest, TheFormatHasNotChanged) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  AppendRecord({kRegion, 1, 2, 0}, RecordKind::kPut, "key", "value", {}, &plain);
  TestKeys keys({TestKey(1)});
  ASSERT_TRUE(RecordSealer(&keys, {kRegion, 1, 1}).Seal(plain, &sealed).ok());
  EXPECT_EQ(Crc64(sealed), 0x8092c8844dc629acu)
      << "if the change is meant, the format needs a new number (docs/versions.md)";
  // Files of formats 6, 8 and 10 differ only in that number.
  const LogRecord first = ReadRecord(sealed.data());
  for (const auto& [format, crc] :
       {std::pair{6u, 0x60fbcf0347087b99u}, std::pair{8u, 0xea02612db640a24eu}, std::pair{10u, 0xdf4a35f94b83e7bfu}}) {
    std::string value(first.value), before;
    std::memcpy(value.data() + offsetof(SegmentBegin, format), &format, sizeof(format));
    AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", value, {}, &before);
    before += sealed.substr(first.bytes());
    EXPECT_EQ(Crc64(before), crc) << format;
    RecordOpener opener(&keys, "file", {kRegion, 1, 1});
    ASSERT_TRUE(opener.Begin(ReadRecord(before.data())).ok());
    LogRecord put = ReadRecord(before.data() + first.bytes());
    ASSERT_TRUE(opener.Open(&put, first.bytes()).ok());
    EXPECT_EQ(put.key, "key");
    EXPECT_EQ(put.value, "value");
  }
}

TEST_F(SealedLogTest, WhatIsNoRecordIsNotWritten) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  RecordSealer sealer(keys_.get(), {kRegion, 1, 1});
  ASSERT_TRUE(sealer.Seal(plain, &sealed).ok());
  EXPECT_TRUE(absl::IsInternal(sealer.Seal(plain, &sealed)));  // A file has one begin record.
  EXPECT_TRUE(absl::IsInternal(sealer.Seal("half a record", &sealed)));
  std::string shorter;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", "short", {}, &shorter);
  EXPECT_TRUE(absl::IsInternal(RecordSealer(keys_.get(), {kRegion, 1, 1}).Seal(shorter, &sealed)));
}

// The begin record says how the file is encrypted, so it is stored in plain.
TEST_F(SealedLogTest, ABeginRecordIsInPlain) {
  std::string bytes;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), std::string(kSealTagBytes, 't'),
               &bytes);
  auto header = Load<RecordHeader>(AsBytes(bytes).data());
  EXPECT_TRUE(ParseRecord(bytes, kRegion).has_value());
  header.flags = kSealed;
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.crc = Crc64(std::string_view(bytes).substr(sizeof(header.crc), header.bytes - sizeof(header.crc)), kRegion);
  std::memcpy(bytes.data(), &header, sizeof(header));
  EXPECT_TRUE(ParseFrame(bytes, kRegion).has_value());
  EXPECT_FALSE(ParseRecord(bytes, kRegion).has_value());
}

// A nonce would be used twice. No caller does this; a log that failed is not gone on with.
TEST_F(SealedLogTest, NoNumberIsUsedTwiceInAFile) {
  std::string plain, again, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  AppendRecord({kRegion, 1, 2, 0}, RecordKind::kPut, "key", "value", {}, &plain);
  AppendRecord({kRegion, 1, 2, 0}, RecordKind::kPut, "key", "other", {}, &again);
  RecordSealer sealer(keys_.get(), {kRegion, 1, 1});
  ASSERT_TRUE(sealer.Seal(plain, &sealed).ok());
  EXPECT_TRUE(absl::IsInternal(sealer.Seal(again, &sealed)));
}

// A log that is cut at any byte ends with the last whole record, as without encryption.
TEST_F(SealedLogTest, CutAtEachByte) {
  Owner owner(sealed_.get(), 1);
  ASSERT_TRUE(owner.Open(1).ok());
  owner.Range({});
  std::vector<size_t> ends;  // Of the first records, from the second on.
  std::string* const bytes = disk_.bytes(Segment(1, 1));
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(owner.Flush().ok());
    owner.Put(fmt::format("key {}", i), std::string(static_cast<size_t>(i) * 5, 'v'), i % 4 == 0 ? 99 : 0);
  }
  ASSERT_TRUE(owner.Flush().ok());
  for (size_t at = 0; at < bytes->size();) {
    const std::optional<LogRecord> record = ParseRecord(std::string_view(*bytes).substr(at), kRegion);
    if (!record.has_value()) break;  // Zeros fill the last block.
    at += record->bytes();
    ends.push_back(at);
  }
  ASSERT_EQ(ends.size(), 32u);
  for (size_t size = ends.back(); size > 0; --size) {
    bytes->resize(size);
    const auto whole = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), size) - ends.begin());
    LogReplay replay(sealed_.get(), kRegion);
    const absl::Status status = replay.Open();
    if (whole < 2) {
      ASSERT_TRUE(absl::IsNotFound(status)) << size << ": " << status;
      continue;
    }
    ASSERT_TRUE(status.ok()) << size << ": " << status;
    ASSERT_EQ(replay.next_sequence(), whole + 1) << size;
    ASSERT_EQ(*Replayed(replay), owner.states().at(whole)) << size;
  }
}

// A checkpoint has an end: wherever it is cut, it is refused.
TEST_F(SealedLogTest, ACheckpointIsWholeOrRefused) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  std::string* const bytes = disk_.bytes(CheckpointAt(24));
  for (size_t size = bytes->find_last_not_of('\0'); size > 0; --size) {
    bytes->resize(size);
    ASSERT_TRUE(absl::IsDataLoss(Read(sealed_.get()).status())) << size;
  }
}

// A checkpoint that gets a later name would leave out what the log has before that. In plain nobody notices.
TEST_F(SealedLogTest, ACheckpointThatWasRenamedIsNoticed) {
  for (LogStore* const store : {sealed_.get(), static_cast<LogStore*>(&store_)}) {
    ASSERT_TRUE(store->RemoveAll().ok());
    Owner owner(store, 1);
    Fill(&owner);
    ASSERT_EQ(*Read(store), *owner.model());
    ASSERT_TRUE(host_->Rename(CheckpointAt(24), CheckpointAt(26)).ok());
    if (store == sealed_.get()) {
      EXPECT_TRUE(absl::IsDataLoss(Read(store).status()));
    } else {
      EXPECT_NE(*Read(store), *owner.model());
    }
  }
}

// Two records of a file change places, each with the number of its new place and a CRC that fits.
TEST_F(SealedLogTest, RecordsThatChangePlacesAreNoticed) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  AppendRecord({kRegion, 1, 2, 0}, RecordKind::kPut, "one", "1", {}, &plain);
  AppendRecord({kRegion, 1, 3, 0}, RecordKind::kPut, "two", "2", {}, &plain);
  ASSERT_TRUE(RecordSealer(keys_.get(), {kRegion, 1, 1}).Seal(plain, &sealed).ok());
  const size_t first = ReadRecord(sealed.data()).bytes(), bytes = ReadRecord(sealed.data() + first).bytes();
  const auto opens = [&](size_t at, uint64_t sequence) {
    std::string moved = sealed.substr(at, bytes);
    auto header = Load<RecordHeader>(AsBytes(moved).data());
    header.sequence = sequence;
    std::memcpy(moved.data(), &header, sizeof(header));
    RecordOpener opener(keys_.get(), "file", {kRegion, 1, 1});
    EXPECT_TRUE(opener.Begin(ReadRecord(sealed.data())).ok());
    LogRecord record = ReadRecord(moved.data());
    return opener.Open(&record, 0).ok();
  };
  EXPECT_TRUE(opens(first, 2));
  EXPECT_TRUE(opens(first + bytes, 3));
  EXPECT_FALSE(opens(first, 3));
  EXPECT_FALSE(opens(first + bytes, 2));
}

// A later release's file is that, whatever keys there are, and not one that somebody has put there.
TEST_F(SealedLogTest, AFileOfALaterFormatIsNotTakenForAPlainOne) {
  std::string plain;
  const SegmentBegin begin{kLogMagic, kSealedLogFormat + 1, kRegion};
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", {reinterpret_cast<const char*>(&begin), sizeof(begin)}, {},
               &plain);
  ASSERT_TRUE(store_.Fence(kRegion, 1).ok());
  auto writer = store_.BeginCheckpoint(kRegion, 1, 1);
  ASSERT_TRUE(writer.ok() && (*writer)->Append(plain).ok() && (*writer)->Sync().ok());
  ASSERT_TRUE(store_.CommitCheckpoint(kRegion, 1, 1).ok());
  const absl::Status status = Read(sealed_.get()).status();
  EXPECT_NE(
      status.message().find(fmt::format("was written by another release: it has format {}", kSealedLogFormat + 1)),
      std::string::npos)
      << status;
}

}  // namespace
}  // namespace cell

#include "cell/log/sealed_log_store.h"

#include <cstring>
#include <functional>

#include "cell/base/crc64.h"
#include "cell/log/record_cipher.h"
#include "cell/log/test_log.h"

namespace cell {
namespace {

DataKey KeyOf(int seed) {
  DataKey key;
  for (size_t i = 0; i < key.key.size(); ++i) key.key[i] = static_cast<std::byte>(static_cast<size_t>(seed) * 31 + i);
  return key;
}

class Keys : public KeySource {
 public:
  explicit Keys(std::vector<DataKey> keys, bool plain = false)
      : keys_(std::make_shared<const DataKeys>(std::move(keys))), plain_(plain) {}
  std::shared_ptr<const DataKeys> Current() override { return keys_; }
  std::string name() const override { return "the keys"; }
  bool takes_plain() const override { return plain_; }
  std::string about_plain() const override { return "Allow it."; }
  void Set(std::vector<DataKey> keys) { keys_ = std::make_shared<const DataKeys>(std::move(keys)); }

 private:
  std::shared_ptr<const DataKeys> keys_;
  const bool plain_;
};

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

  const std::shared_ptr<Keys> keys_ = std::make_shared<Keys>(std::vector<DataKey>{KeyOf(1)});
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
  keys_->Set({KeyOf(2), KeyOf(1)});
  owner.Put("b", "2");  // The segment goes on with its key.
  ASSERT_TRUE(owner.Flush().ok());
  EXPECT_EQ(*Read(sealed_.get()), *owner.model());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(Read(StoreWith(std::make_shared<Keys>(std::vector{KeyOf(2)})).get()).status()));
  ASSERT_TRUE(owner.Checkpoint().ok());
  owner.Put("c", "3");
  ASSERT_TRUE(owner.Flush().ok());
  keys_->Set({KeyOf(2)});  // Nothing needs the old key any more.
  EXPECT_EQ(*Read(sealed_.get()), *owner.model());
}

TEST_F(SealedLogTest, SaysWhichKeyIsMissing) {
  Owner owner(sealed_.get(), 1);
  Fill(&owner);
  const absl::Status none = Read(&store_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none));
  EXPECT_NE(none.message().find("is encrypted with key " + IdText(KeyOf(1).id())), std::string::npos) << none;
  const auto others = StoreWith(std::make_shared<Keys>(std::vector{KeyOf(9)}));
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
  const auto taking = StoreWith(std::make_shared<Keys>(std::vector{KeyOf(1)}, /*plain=*/true));
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
  const auto open = [&](const std::string& sealed, const std::string& of, uint32_t region, uint32_t epoch) {
    // The begin record of `sealed`, and the other record of `of`.
    std::string bytes = sealed;
    const LogRecord begin = ReadRecord(bytes.data());
    RecordOpener opener(keys_.get(), "file", region, epoch);
    if (absl::Status status = opener.Begin(begin); !status.ok()) return status;
    std::string second = of.substr(begin.bytes());
    LogRecord record = ReadRecord(second.data());
    if (absl::Status status = opener.Open(&record, 0); !status.ok()) return status;
    EXPECT_EQ(record.key, "key");
    EXPECT_EQ(record.value, "value");
    return absl::OkStatus();
  };
  std::string one, two;
  ASSERT_TRUE(RecordSealer(keys_.get(), kRegion, 1).Seal(plain, &one).ok());
  ASSERT_TRUE(RecordSealer(keys_.get(), kRegion, 1).Seal(plain, &two).ok());
  EXPECT_NE(one, two);  // Equal content does not look equal.
  EXPECT_TRUE(open(one, one, kRegion, 1).ok());
  EXPECT_TRUE(absl::IsDataLoss(open(one, two, kRegion, 1)));
  EXPECT_TRUE(absl::IsDataLoss(open(one, one, kRegion + 1, 1)));
  EXPECT_TRUE(absl::IsDataLoss(open(one, one, kRegion, 2)));
}

// A nonce is used once: with the same key stream, equal pairs would look equal, and different ones would tell their
// difference.
TEST_F(SealedLogTest, EqualRecordsOfAFileDoNotLookEqual) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  for (const uint64_t sequence : {2u, 3u}) {
    AppendRecord({kRegion, 1, sequence, 0}, RecordKind::kPut, "key", std::string(100, 'v'), {}, &plain);
  }
  ASSERT_TRUE(RecordSealer(keys_.get(), kRegion, 1).Seal(plain, &sealed).ok());
  const size_t first = ReadRecord(sealed.data()).bytes(), bytes = ReadRecord(sealed.data() + first).bytes();
  const auto text = [&](size_t at) { return sealed.substr(at + sizeof(RecordHeader), 100); };
  EXPECT_NE(text(first), text(first + bytes));
}

TEST_F(SealedLogTest, WhatIsNoRecordIsNotWritten) {
  std::string plain, sealed;
  AppendRecord({kRegion, 1, 1, 0}, RecordKind::kBegin, "", BeginValue(kRegion), {}, &plain);
  RecordSealer sealer(keys_.get(), kRegion, 1);
  ASSERT_TRUE(sealer.Seal(plain, &sealed).ok());
  EXPECT_TRUE(absl::IsInternal(sealer.Seal(plain, &sealed)));  // A file has one begin record.
  EXPECT_TRUE(absl::IsInternal(sealer.Seal("half a record", &sealed)));
}

}  // namespace
}  // namespace cell

#include "tools/backup_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_fiber.h"
#include "cell/io/sim/sim_object_store.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kPieceBytes = 10;
constexpr const char* kPlace = "rados:pool/name";

using Names = std::vector<std::string>;

std::string Content(size_t bytes, char first = 'a') {
  std::string content;
  for (size_t i = 0; i < bytes; ++i) content += static_cast<char>(first + i % 20);
  return content;
}

absl::StatusOr<std::string> ReadAll(BackupBytes* from, size_t at_once = 7) {
  ASSIGN_OR_RETURN(const uint64_t size, from->Size());
  std::string content;
  std::string part(at_once, '\0');
  for (;;) {
    const MutableBytes to(reinterpret_cast<std::byte*>(part.data()), part.size());
    ASSIGN_OR_RETURN(const size_t got, from->Read(content.size(), to));
    content += part.substr(0, got);
    if (got < at_once) break;
  }
  EXPECT_EQ(content.size(), size);
  return content;
}

class BackupPoolTest : public ::testing::Test {
 protected:
  PoolBackup Place(ObjectStore* store, const std::string& name = "name") {
    return PoolBackup(store, name, kPlace, {.piece_bytes = kPieceBytes, .attempt = [this] { return ++attempts_; }});
  }
  absl::Status Make(ObjectStore* store, const std::string& content, const std::string& name = "name") {
    PoolBackup place = Place(store, name);
    ASSIGN_OR_RETURN(const std::unique_ptr<UnfinishedBackup> backup, place.Begin());
    const size_t half = content.size() / 2;
    RETURN_IF_ERROR(backup->Append(std::string_view(content).substr(0, half)));
    RETURN_IF_ERROR(backup->Append(std::string_view(content).substr(half)));
    RETURN_IF_ERROR(backup->Finish());
    ASSIGN_OR_RETURN(const std::string written, ReadAll(backup.get()));
    if (written != content) return absl::DataLossError("it is another one");
    return backup->Commit();
  }
  // Returns a backup of Content(25) that only has to be committed.
  static std::unique_ptr<UnfinishedBackup> Finished(PoolBackup* place) {
    std::unique_ptr<UnfinishedBackup> backup = *place->Begin();
    EXPECT_TRUE(backup->Append(Content(25)).ok());
    EXPECT_TRUE(backup->Finish().ok());
    return backup;
  }
  absl::StatusOr<std::string> Restore(const std::string& name = "name") {
    PoolBackup place = Place(store_.get(), name);
    ASSIGN_OR_RETURN(const std::unique_ptr<BackupBytes> backup, place.Open());
    return ReadAll(backup.get());
  }
  absl::StatusOr<bool> Remove() { return Place(store_.get()).Remove(); }

  SimObjects objects_{1};
  const std::unique_ptr<SimObjectStore> store_ = objects_.NewHost();
  uint64_t attempts_ = 0;
};

TEST_F(BackupPoolTest, GivesBackWhatWasAppended) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kPieceBytes - 1, kPieceBytes, kPieceBytes + 1, 10 * kPieceBytes}) {
    ASSERT_TRUE(Make(store_.get(), Content(bytes)).ok());
    EXPECT_EQ(*Restore(), Content(bytes));
    EXPECT_EQ(objects_.names().size(), 1 + (bytes + kPieceBytes - 1) / kPieceBytes);
    EXPECT_TRUE(*Remove());
  }
}

TEST_F(BackupPoolTest, IsThereFromItsCommitOn) {
  EXPECT_TRUE(absl::IsNotFound(Restore().status()));
  PoolBackup place = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> backup = Finished(&place);
  const absl::Status unfinished = Restore().status();
  EXPECT_TRUE(absl::IsNotFound(unfinished)) << unfinished;
  EXPECT_NE(unfinished.message().find("one that is unfinished"), std::string::npos) << unfinished;
  ASSERT_TRUE(backup->Commit().ok());
  backup.reset();
  EXPECT_EQ(*Restore(), Content(25));
  const absl::Status second = Make(store_.get(), "other");
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_EQ(*Restore(), Content(25));
}

TEST_F(BackupPoolTest, LeavesNothingIfItFails) {
  {
    PoolBackup place = Place(store_.get());
    const std::unique_ptr<UnfinishedBackup> backup = *place.Begin();
    ASSERT_TRUE(backup->Append(Content(25)).ok());
    objects_.set_full(true);
    EXPECT_TRUE(absl::IsResourceExhausted(backup->Append(Content(10))));
  }
  EXPECT_EQ(objects_.names(), Names());
}

// Other backups and logs stay.
TEST_F(BackupPoolTest, WhatAKilledOneHasLeftIsRemoved) {
  ASSERT_TRUE(store_->Update("region-1", {.create = true}).ok());
  ASSERT_TRUE(Make(store_.get(), Content(12), "name-2").ok());
  const Names others = objects_.names();
  const auto host = objects_.NewHost();
  PoolBackup place = Place(host.get());
  const std::unique_ptr<UnfinishedBackup> killed = *place.Begin();
  ASSERT_TRUE(killed->Append(Content(35)).ok());
  ASSERT_TRUE(killed->Finish().ok());
  ASSERT_EQ(objects_.names().size(), others.size() + 5);
  EXPECT_TRUE(*Remove());
  EXPECT_EQ(objects_.names(), others);
  EXPECT_FALSE(*Remove());
  const std::unique_ptr<UnfinishedBackup> again = *place.Begin();
  ASSERT_TRUE(again->Append(Content(35)).ok());
  ASSERT_TRUE(Make(store_.get(), Content(15)).ok());
  EXPECT_EQ(objects_.names().size(), others.size() + 3);
  EXPECT_EQ(*Restore(), Content(15));
  EXPECT_EQ(*Restore("name-2"), Content(12));
}

TEST_F(BackupPoolTest, OnlyTheLastOfTwoAtTheSameTimeSucceeds) {
  const auto host = objects_.NewHost();
  PoolBackup place = Place(host.get());
  std::unique_ptr<UnfinishedBackup> first = *place.Begin();
  ASSERT_TRUE(first->Append(Content(25)).ok());
  PoolBackup other = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> second = *other.Begin();
  ASSERT_TRUE(second->Append(Content(33, 'A')).ok());
  ASSERT_TRUE(first->Append(Content(25)).ok());
  ASSERT_TRUE(first->Finish().ok());
  const absl::Status refused = first->Commit();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  first.reset();
  ASSERT_TRUE(second->Finish().ok());
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(*Restore(), Content(33, 'A'));
  EXPECT_EQ(objects_.names().size(), 5u);  // Nothing is left of the first.
}

TEST_F(BackupPoolTest, TheFirstOfTwoIsNotCalledDamagedIfItsPiecesAreGone) {
  PoolBackup place = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> first = *place.Begin();
  ASSERT_TRUE(first->Append(Content(25)).ok());
  ASSERT_TRUE(first->Finish().ok());
  const std::unique_ptr<UnfinishedBackup> second = *place.Begin();
  const absl::Status status = ReadAll(first.get()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("another backup was begun"), std::string::npos) << status;
}

TEST_F(BackupPoolTest, DamageIsNamed) {
  const std::string head = "backup-name", second = "backup-name/0000000000000001.1";
  const std::vector<std::pair<std::function<void()>, std::string>> damages = {
      {[&] { objects_.Erase(second); }, second + " is missing"},
      {[&] { objects_.bytes(second)->resize(4); }, second + " has 4 bytes instead of 10"},
      {[&] { objects_.bytes(second)->append("x"); }, second + " has more than 10 bytes"},
      {[&] { objects_.entries(head)->erase("format"); }, head + " has no entry \"format\""},
      {[&] { objects_.entries(head)->erase("attempt"); }, head + " has no entry \"attempt\""},
      {[&] { (*objects_.entries(head))["attempt"] = "2"; }, "backup-name/2.0 is missing"},
      {[&] { (*objects_.entries(head))["piece_bytes"] = "0"; }, head + " has no sound entry \"piece_bytes\""},
      {[&] { (*objects_.entries(head))["piece_bytes"] = "99999999999"; }, head + " has no sound entry \"piece_bytes\""},
      {[&] { (*objects_.entries(head))["bytes"] = "-1"; }, head + " has no sound entry \"bytes\""},
      {[&] { (*objects_.entries(head))["bytes"] = "25 "; }, head + " has no sound entry \"bytes\""},
      {[&] { (*objects_.entries(head))["bytes"] = "2500000000000"; }, "0000000000000001.2 has 5 bytes instead of 10"},
  };
  for (const auto& [damage, said] : damages) {
    attempts_ = 0;
    ASSERT_TRUE(Make(store_.get(), Content(25)).ok());
    damage();
    const absl::Status read = Restore().status();
    EXPECT_TRUE(absl::IsDataLoss(read)) << read;
    EXPECT_NE(read.message().find(said), std::string::npos) << read << said;
    EXPECT_TRUE(*Remove());
    EXPECT_EQ(objects_.names(), Names());
  }
  ASSERT_TRUE(Make(store_.get(), Content(25)).ok());
  (*objects_.entries(head))["format"] = "2";
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore().status()));
}

TEST_F(BackupPoolTest, AStoreThatDoesNotAnswerIsAskedForEachStepOnce) {
  PoolBackup place = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> backup = *place.Begin();
  ASSERT_TRUE(backup->Append(Content(1'000)).ok());
  store_->set_silent(true);
  const uint64_t before = store_->calls();
  EXPECT_TRUE(absl::IsUnavailable(backup->Append(Content(10))));
  backup.reset();
  EXPECT_LE(store_->calls() - before, 3u);
}

// Lets something happen before an update arrives, and loses answers.
class HookedStore : public ObjectStore {
 public:
  explicit HookedStore(ObjectStore* store) : store_(store) {}

  absl::Status Update(const std::string& name, const ObjectUpdate& update) override {
    if (before_update) std::exchange(before_update, nullptr)();
    const absl::Status status = store_->Update(name, update);
    return std::exchange(lose_update, false) ? absl::UnavailableError("the answer was lost") : status;
  }
  absl::StatusOr<Head> ReadHead(const std::string& name) override {
    if (std::exchange(lose_head, false)) return absl::UnavailableError("the answer was lost");
    return store_->ReadHead(name);
  }
  absl::StatusOr<size_t> Read(const std::string& name, uint64_t offset, MutableBytes to) override {
    return store_->Read(name, offset, to);
  }
  absl::StatusOr<uint64_t> Size(const std::string& name) override { return store_->Size(name); }
  absl::StatusOr<Names> List() override { return store_->List(); }

  std::function<void()> before_update;
  bool lose_update = false;  // The update is made.
  bool lose_head = false;

 private:
  ObjectStore* const store_;
};

TEST_F(BackupPoolTest, ACommitWhoseAnswerIsLostIsLookedUp) {
  HookedStore hooked(store_.get());
  PoolBackup place = Place(&hooked);
  std::unique_ptr<UnfinishedBackup> backup = Finished(&place);
  hooked.lose_update = true;
  EXPECT_TRUE(backup->Commit().ok());
  backup.reset();
  EXPECT_EQ(*Restore(), Content(25));
}

TEST_F(BackupPoolTest, ACommitThatCannotBeLookedUpStays) {
  HookedStore hooked(store_.get());
  PoolBackup place = Place(&hooked);
  std::unique_ptr<UnfinishedBackup> backup = Finished(&place);
  hooked.lose_update = true;
  hooked.lose_head = true;
  EXPECT_TRUE(absl::IsUnavailable(backup->Commit()));
  backup.reset();
  EXPECT_EQ(*Restore(), Content(25));
}

TEST_F(BackupPoolTest, ARemovalThatArrivesLateRemovesNoBackupThatWasUnfinished) {
  PoolBackup place = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> backup = Finished(&place);
  HookedStore hooked(store_.get());
  hooked.before_update = [&] { EXPECT_TRUE(backup->Commit().ok()); };
  EXPECT_TRUE(absl::IsAborted(Place(&hooked).Remove().status()));
  backup.reset();
  EXPECT_EQ(*Restore(), Content(25));
}

TEST_F(BackupPoolTest, ARemovalThatArrivesLateRemovesNoLaterBackup) {
  ASSERT_TRUE(Make(store_.get(), Content(25)).ok());
  HookedStore hooked(store_.get());
  hooked.before_update = [&] {
    EXPECT_TRUE(*Remove());
    EXPECT_TRUE(Make(store_.get(), Content(25, 'A')).ok());
  };
  EXPECT_TRUE(absl::IsAborted(Place(&hooked).Remove().status()));
  EXPECT_EQ(*Restore(), Content(25, 'A'));
}

TEST_F(BackupPoolTest, AClaimThatArrivesLateTakesNothingFromALaterOne) {
  PoolBackup place = Place(store_.get());
  const std::unique_ptr<UnfinishedBackup> killed = *place.Begin();
  HookedStore hooked(store_.get());
  PoolBackup late = Place(&hooked), other = Place(store_.get());
  std::unique_ptr<UnfinishedBackup> later;
  hooked.before_update = [&] { later = *other.Begin(); };
  EXPECT_TRUE(absl::IsAborted(late.Begin().status()));
  ASSERT_TRUE(later->Append(Content(25)).ok());
  ASSERT_TRUE(later->Finish().ok());
  EXPECT_TRUE(later->Commit().ok());
  EXPECT_EQ(*Restore(), Content(25));
}

// Several hosts make backups of one name and remove it at the same time, step by step. Answers are lost, updates arrive
// late, and hosts die. What is found at any time is one of the backups, whole; and what was made and not removed stays.
class BackupPoolRun {
 public:
  explicit BackupPoolRun(uint64_t seed) : random_(seed), objects_(seed) {}

  void Go() {
    for (int host = 0; host < 4; ++host) Start(host);
    for (int step = 0; step < 3'000 && !works_.empty(); ++step) {
      const size_t chosen = random_.Below(works_.size());
      works_[chosen]->Resume();
      const bool dies = random_.Below(400) == 0;
      if (dies) stores_[chosen]->Crash();
      if (works_[chosen]->ended() || dies) {
        works_.erase(works_.begin() + static_cast<ptrdiff_t>(chosen));
        ended_.push_back(std::move(stores_[chosen]));
        stores_.erase(stores_.begin() + static_cast<ptrdiff_t>(chosen));
      }
      if (random_.Below(50) == 0) Look();
    }
    objects_.MakeAllLate();
    Look();
    EXPECT_TRUE(Place(looker_.get()).Remove().ok());
    EXPECT_EQ(objects_.names(), Names());
  }
  uint64_t found() const { return found_; }

 private:
  PoolBackup Place(ObjectStore* store) {
    return PoolBackup(store, "name", kPlace, {.piece_bytes = kPieceBytes, .attempt = [this] { return ++attempts_; }});
  }

  void Start(int host) {
    stores_.push_back(objects_.NewHost());
    SimObjectStore* const store = stores_.back().get();
    store->set_loss(random_.Below(2) == 0 ? 0 : 5);
    works_.push_back(std::make_unique<SimFiber>([this, store, host] {
      for (int round = 0; round < 3; ++round) {
        if (random_.Below(3) == 0) {
          kept_.clear();
          ++removals_;
          ++removing_;
          (void)Place(store).Remove();
          --removing_;
          kept_.clear();
        } else {
          Make(store, Content(5 + random_.Below(40), static_cast<char>('A' + host * 3 + round)));
        }
      }
    }));
  }

  void Make(SimObjectStore* store, const std::string& content) {
    PoolBackup place = Place(store);
    absl::StatusOr<std::unique_ptr<UnfinishedBackup>> backup = place.Begin();
    if (!backup.ok() || !(*backup)->Append(content).ok() || !(*backup)->Finish().ok()) return;
    const absl::StatusOr<std::string> written = ReadAll(backup->get());
    if (!written.ok()) return;
    EXPECT_EQ(*written, content);
    contents_.push_back(content);
    const bool alone = removing_ == 0;
    const int removals = removals_;
    const absl::Status committed = (*backup)->Commit();
    // A removal that has seen it meanwhile may come late.
    if (committed.ok() && alone && removals_ == removals) kept_ = content;
  }

  void Look() {
    PoolBackup place = Place(looker_.get());
    const absl::StatusOr<std::unique_ptr<BackupBytes>> backup = place.Open();
    if (!backup.ok()) {
      EXPECT_TRUE(absl::IsNotFound(backup.status())) << backup.status();
      EXPECT_TRUE(kept_.empty()) << kept_;
      return;
    }
    const absl::StatusOr<std::string> content = ReadAll(backup->get());
    ASSERT_TRUE(content.ok()) << content.status();
    ++found_;
    EXPECT_NE(std::find(contents_.begin(), contents_.end(), *content), contents_.end());
    if (!kept_.empty()) {
      EXPECT_EQ(*content, kept_);
    }
  }

  Random random_;
  SimObjects objects_;
  const std::unique_ptr<SimObjectStore> looker_ = objects_.NewHost();
  std::vector<std::unique_ptr<SimObjectStore>> stores_;  // Of each work.
  std::vector<std::unique_ptr<SimFiber>> works_;
  std::vector<std::unique_ptr<SimObjectStore>> ended_;
  uint64_t attempts_ = 0;
  std::vector<std::string> contents_;  // Of all attempts that came to their commit.
  std::string kept_;                   // The last one that was made, if nobody has removed since. Empty: none.
  int removals_ = 0;                   // That were begun.
  int removing_ = 0;                   // That are under way.
  uint64_t found_ = 0;
};

TEST(BackupPoolRandom, IsWholeOrNotThere) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    BackupPoolRun run(seed);
    run.Go();
    found += run.found();
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(found, 1'000u);
}

TEST(BackupPlace, SaysWhatIsWrongWithItsText) {
  for (const char* text : {"", "dir:", "rados:", "rados:/name", "rados:cell/", "rados:cell/a b", "rados:cell/a/b",
                           "rados:cell/name@", "rados:cell/name?user="}) {
    const absl::Status status = OpenBackupPlace(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << status;
    EXPECT_NE(status.message().find("rados:POOL[/NAME]"), std::string::npos) << status;
  }
  for (const char* text : {"rados:cell@/nowhere/ceph.conf", "rados:cell/name@/nowhere/ceph.conf?user=me"}) {
    const absl::Status status = OpenBackupPlace(text).status();
    EXPECT_TRUE(absl::IsNotFound(status)) << text << status;
    EXPECT_NE(status.message().find("Ceph configuration /nowhere/ceph.conf:"), std::string::npos) << status;
  }
  EXPECT_TRUE(OpenBackupPlace("some/directory").ok());
}

TEST(BackupPlace, ADirectoryIsThereFromItsCommitOn) {
  const std::string directory = ::testing::TempDir() + "/backup-place";
  const std::unique_ptr<BackupPlace> place = *OpenBackupPlace("dir:" + directory);
  (void)place->Remove();
  {
    const std::unique_ptr<UnfinishedBackup> failed = *place->Begin();
    ASSERT_TRUE(failed->Append("failed").ok());
  }
  EXPECT_TRUE(absl::IsNotFound(place->Open().status()));
  EXPECT_FALSE(*place->Remove());
  {
    const std::unique_ptr<UnfinishedBackup> backup = *place->Begin();
    ASSERT_TRUE(backup->Append("some bytes").ok());
    ASSERT_TRUE(backup->Finish().ok());
    EXPECT_TRUE(absl::IsNotFound(place->Open().status()));
    ASSERT_TRUE(backup->Commit().ok());
  }
  EXPECT_EQ(*(*place->Open())->Size(), 10u);
  EXPECT_TRUE(absl::IsAlreadyExists(place->Begin().status()));
  EXPECT_TRUE(*place->Remove());
  EXPECT_TRUE(absl::IsNotFound(place->Open().status()));
}

}  // namespace
}  // namespace cell

// What every ObjectStore must do (object_store.h), as tests that run for each of them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cell/io/object/object_store.h"
#include "fmt/format.h"

namespace cell {

// Makes a store that is empty at first.
using MakeObjectStore = std::function<std::unique_ptr<ObjectStore>()>;

class ObjectStoreConformance : public ::testing::TestWithParam<MakeObjectStore> {
 protected:
  void SetUp() override {
    store_ = GetParam()();
    if (store_ == nullptr) GTEST_SKIP() << "this store is not here; //tests:rados_test has one";
  }
  void TearDown() override {
    if (store_ == nullptr) return;
    for (const std::string& name : store_->List().value_or(std::vector<std::string>())) {
      EXPECT_TRUE(store_->Update(name, {.remove_object = true}).ok());
    }
  }
  absl::Status Update(const ObjectUpdate& update) { return store_->Update("a", update); }
  std::string Bytes(const std::string& name = "a") {
    const absl::StatusOr<uint64_t> size = store_->Size(name);
    if (!size.ok()) return std::string(size.status().message());
    std::string bytes(*size, '\0');
    const absl::StatusOr<size_t> read =
        store_->Read(name, 0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    EXPECT_TRUE(read.ok()) << read.status();
    bytes.resize(read.value_or(0));
    return bytes;
  }

  std::unique_ptr<ObjectStore> store_;
};

TEST_P(ObjectStoreConformance, ObjectsAreMadeAppendedToAndRemoved) {
  std::byte byte;
  EXPECT_TRUE(absl::IsNotFound(Update({.append = "x"})));
  EXPECT_TRUE(absl::IsNotFound(Update({.epoch = 5})));
  EXPECT_TRUE(absl::IsNotFound(Update({.epoch_max = 5, .epoch = 5})));
  EXPECT_TRUE(absl::IsNotFound(Update({.remove_object = true})));
  EXPECT_TRUE(absl::IsNotFound(store_->ReadHead("a").status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Read("a", 0, {&byte, 1}).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Size("a").status()));
  EXPECT_TRUE(store_->List()->empty());
  ASSERT_TRUE(Update({.create = true, .append = "one"}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Update({.create = true, .append = "two"})));
  ASSERT_TRUE(Update({.append = " two"}).ok());
  EXPECT_EQ(Bytes(), "one two");
  ASSERT_TRUE(store_->Update("b", {.create = true}).ok());
  EXPECT_EQ(Bytes("b"), "");
  std::vector<std::string> names = *store_->List();
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(Update({.remove_object = true}).ok());
  EXPECT_EQ(*store_->List(), std::vector<std::string>{"b"});
}

TEST_P(ObjectStoreConformance, ReadsEndWithTheObject) {
  std::string bytes;
  for (int i = 0; i < 2'000; ++i) bytes += fmt::format("{},", i);
  ASSERT_TRUE(Update({.create = true, .append = bytes}).ok());
  char read[100];
  const auto from = [&](uint64_t offset) {
    const absl::StatusOr<size_t> got = store_->Read("a", offset, {reinterpret_cast<std::byte*>(read), sizeof(read)});
    EXPECT_TRUE(got.ok()) << got.status();
    return std::string(read, got.value_or(0));
  };
  EXPECT_EQ(from(0), bytes.substr(0, 100));
  EXPECT_EQ(from(4'321), bytes.substr(4'321, 100));
  EXPECT_EQ(from(bytes.size() - 30), bytes.substr(bytes.size() - 30));
  EXPECT_EQ(from(bytes.size()), "");
  EXPECT_EQ(from(bytes.size() + 1'000'000), "");
}

// Numbers are compared as numbers, however many digits they have.
TEST_P(ObjectStoreConformance, AHigherEpochRefusesALowerOne) {
  ASSERT_TRUE(Update({.create = true, .epoch = 9}).ok());
  EXPECT_EQ(store_->ReadHead("a")->epoch, 9u);
  EXPECT_TRUE(Update({.epoch_max = 9, .append = "9"}).ok());
  EXPECT_TRUE(Update({.epoch_max = 10, .epoch = 10, .append = "10"}).ok());
  EXPECT_EQ(store_->ReadHead("a")->epoch, 10u);
  EXPECT_TRUE(absl::IsAborted(Update({.epoch_max = 9, .epoch = 9, .append = "late"})));
  EXPECT_TRUE(absl::IsAborted(Update({.epoch_max = 9, .remove_object = true})));
  EXPECT_TRUE(Update({.epoch_max = UINT32_MAX, .epoch = UINT32_MAX}).ok());
  EXPECT_TRUE(absl::IsAborted(Update({.epoch_max = 4'000'000'000u, .append = "late"})));
  EXPECT_TRUE(Update({.append = "."}).ok());  // Without a condition.
  EXPECT_EQ(Bytes(), "910.");
  ASSERT_TRUE(store_->Update("b", {.create = true}).ok());
  EXPECT_EQ(store_->ReadHead("b")->epoch, 0u);
  EXPECT_TRUE(store_->Update("b", {.epoch_max = 0, .append = "0"}).ok());
}

TEST_P(ObjectStoreConformance, EntriesAreConditionsAndAreChanged) {
  ASSERT_TRUE(Update({.create = true, .set = {{"a", "1"}, {"b", ""}, {"with space and \xff", "2"}}}).ok());
  EXPECT_EQ(store_->ReadHead("a")->entries, (ObjectEntries{{"a", "1"}, {"b", ""}, {"with space and \xff", "2"}}));
  EXPECT_TRUE(Update({.expected = {{"a", "1"}}, .absent = {"c", "b"}, .set = {{"c", "3"}}, .remove = {"b", "d"}}).ok());
  EXPECT_TRUE(absl::IsAborted(Update({.expected = {{"a", "10"}}, .set = {{"e", "5"}}})));
  EXPECT_TRUE(absl::IsAborted(Update({.expected = {{"a", "1"}, {"d", "1"}}, .set = {{"e", "5"}}})));
  EXPECT_TRUE(absl::IsAborted(Update({.absent = {"a"}, .append = "x"})));
  EXPECT_TRUE(absl::IsAborted(Update({.expected = {{"a", ""}}, .remove = {"a"}})));
  EXPECT_EQ(store_->ReadHead("a")->entries, (ObjectEntries{{"a", "1"}, {"c", "3"}, {"with space and \xff", "2"}}));
  EXPECT_EQ(Bytes(), "");
}

// More than an OSD returns at once.
TEST_P(ObjectStoreConformance, AnObjectHasThousandsOfEntries) {
  ObjectUpdate update{.create = true, .epoch = 3};
  for (int i = 0; i < 2'500; ++i) update.set[fmt::format("key{}", i)] = fmt::format("{}", i);
  ASSERT_TRUE(Update(update).ok());
  const ObjectStore::Head head = *store_->ReadHead("a");
  EXPECT_EQ(head.epoch, 3u);
  EXPECT_EQ(head.entries, update.set);
}

TEST_P(ObjectStoreConformance, MoreEntriesThanAnybodyWritesAreDamage) {
  ASSERT_TRUE(Update({.create = true}).ok());
  for (size_t entries = 0; entries <= kObjectEntriesMax;) {
    ObjectUpdate update;
    for (int i = 0; i < 5'000; ++i) update.set[fmt::format("key{}", entries++)] = "";
    ASSERT_TRUE(Update(update).ok());
  }
  EXPECT_TRUE(absl::IsDataLoss(store_->ReadHead("a").status()));
}

TEST_P(ObjectStoreConformance, LargeObjectsAreAppendedAndReadInPieces) {
  const std::string piece(kObjectAppendMax, 'p');
  ASSERT_TRUE(Update({.create = true, .append = piece}).ok());
  ASSERT_TRUE(Update({.append = piece}).ok());
  ASSERT_TRUE(Update({.append = "end"}).ok());
  EXPECT_EQ(*store_->Size("a"), 2 * piece.size() + 3);
  std::string read(kObjectReadMax, '\0');
  const MutableBytes to(reinterpret_cast<std::byte*>(read.data()), read.size());
  EXPECT_EQ(*store_->Read("a", 0, to), kObjectReadMax);
  EXPECT_TRUE(read == piece);
  EXPECT_EQ(*store_->Read("a", 2 * piece.size(), to), 3u);
  EXPECT_EQ(read.substr(0, 3), "end");
}

}  // namespace cell

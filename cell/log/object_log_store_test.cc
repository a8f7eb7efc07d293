// Checks ObjectLogStore, and with it the fencing by single objects, against every order of an owner's and its
// successor's updates, lost answers, updates that arrive late, a full pool, and objects that somebody has removed.
//
// To see that it finds a mutant (cell/base/mutant.h):
//   ./bazelw test --config=mutants --test_env=CELL_MUTANT=segments-fenced-first //cell/log:object_log_store_test
#include "cell/log/object_log_store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_fiber.h"
#include "cell/io/sim/sim_files.h"
#include "cell/io/sim/sim_object_store.h"
#include "cell/log/directory_log_store.h"
#include "cell/log/log_store_conformance.h"
#include "cell/log/object_entries.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kRegion = 7;
constexpr uint64_t kChunkBytes = 10'000;  // Not a multiple of a block.
constexpr size_t kAppendBytes = 3'000;

#ifdef CELL_MUTANTS
[[maybe_unused]] const bool mutated = [] {
  const char* const wanted = std::getenv("CELL_MUTANT");
  for (const MutantName& one : kMutantNames) {
    if (wanted != nullptr && one.name == wanted) mutant_at_work = one.mutant;
  }
  return mutant_at_work != Mutant::kNone;
}();
#endif

// A server: its view of the objects, and the store on it.
struct Server {
  explicit Server(SimObjects* objects, uint32_t first_nonce)
      : host(objects->NewHost()),
        store(host.get(), {kChunkBytes, kAppendBytes, [next = first_nonce]() mutable { return next++; }}) {}
  std::unique_ptr<SimObjectStore> host;
  ObjectLogStore store;
};

class ObjectHarness : public LogStoreHarness {
 public:
  std::unique_ptr<LogStore> NewStore() override {
    hosts_.push_back(objects_.NewHost());
    return std::make_unique<ObjectLogStore>(
        hosts_.back().get(), ObjectLogStore::Options{kChunkBytes, kAppendBytes, [this] { return nonce_++; }});
  }

 private:
  SimObjects objects_{1};
  std::vector<std::unique_ptr<SimObjectStore>> hosts_;
  uint32_t nonce_ = 1;
};

class DirectoryHarness : public LogStoreHarness {
 public:
  std::unique_ptr<LogStore> NewStore() override {
    hosts_.push_back(disk_.NewHost());
    return std::make_unique<DirectoryLogStore>(hosts_.back().get(), "log");
  }

 private:
  SimDisk disk_{1};
  std::vector<std::unique_ptr<SimFiles>> hosts_;
};

INSTANTIATE_TEST_SUITE_P(Objects, LogStoreConformance,
                         ::testing::Values([] { return std::make_unique<ObjectHarness>(); }));
INSTANTIATE_TEST_SUITE_P(Directory, LogStoreConformance,
                         ::testing::Values([] { return std::make_unique<DirectoryHarness>(); }));

// Record i of the owner, of a length of its own.
std::string Record(int i) { return fmt::format("<{}{}>", i, std::string(static_cast<size_t>(i) * 700, 'r')); }

// Returns all that the segments of a log have, in order, or nullopt after an error. A checkpoint must be whole.
std::optional<std::string> ReadAll(ObjectLogStore* store, absl::Status* status) {
  std::string all;
  const absl::StatusOr<std::vector<LogPart>> parts = store->List(kRegion);
  *status = parts.status();
  if (absl::IsNotFound(*status)) return "";
  if (!status->ok()) return std::nullopt;
  for (const LogPart& part : *parts) {
    const absl::StatusOr<uint64_t> size = store->Size(kRegion, part);
    *status = size.status();
    if (!status->ok()) return std::nullopt;
    std::string bytes(*size, '\0');
    const absl::StatusOr<size_t> read =
        store->Read(kRegion, part, 0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()});
    *status = read.status();
    if (!status->ok()) return std::nullopt;
    if (part.kind == LogPart::Kind::kSegment) {
      all += bytes.substr(0, *read);
    } else {
      EXPECT_TRUE(bytes == Record(40) || bytes == Record(25) || bytes == Record(26)) << bytes.size();
    }
  }
  return all;
}

// Returns the parts of the log as text, with how many objects each has.
std::string PartsOf(ObjectLogStore* store) {
  std::string text;
  const absl::StatusOr<std::vector<LogPart>> parts = store->List(kRegion);
  if (!parts.ok()) return "";
  for (const LogPart& part : *parts) text += part.name + "\n";
  return text;
}

// Checks that there is nothing but the head and the objects that its entries name.
void ExpectNothingUnfinished(const SimObjects& objects, Server* server) {
  const absl::StatusOr<ObjectStore::Head> head = server->host->ReadHead("region-7");
  ASSERT_TRUE(head.ok()) << head.status();
  size_t named = 1;
  for (const auto& [key, value] : head->entries) {
    EXPECT_NE(key[0], '+') << key << ": " << value;
    named += std::stoul(value);
  }
  EXPECT_EQ(objects.names().size(), named);
}

// What an owner does, as far as it is not refused: it writes records into segments, and counts those that were synced.
struct Owner {
  explicit Owner(Server* server) : server(server) {}

  void Run() {
    std::unique_ptr<LogWriter> writer;
    for (int i = 1; i <= 12; ++i) {
      if (i % 5 == 1) {
        absl::StatusOr<std::unique_ptr<LogWriter>> opened;
        for (int attempt = 0; attempt < 3; ++attempt) {
          opened = server->store.Open(kRegion, 1, static_cast<uint64_t>(i), i == 6 ? Record(i) : "");
          if (!absl::IsUnavailable(opened.status())) break;
        }
        if (!opened.ok()) return Stop(opened.status());
        writer = *std::move(opened);
        if (i == 6) {
          synced = i;
          continue;
        }
      }
      absl::Status status = writer->Append(Record(i));
      if (status.ok()) status = writer->Sync();
      if (!status.ok()) return Stop(status);
      synced = i;
    }
    absl::Status status = absl::UnavailableError("not tried yet");
    for (int attempt = 0; attempt < 3 && absl::IsUnavailable(status); ++attempt) status = Checkpoint();
    Stop(status);
  }
  absl::Status Checkpoint() {
    ASSIGN_OR_RETURN(const std::unique_ptr<LogWriter> writer, server->store.BeginCheckpoint(kRegion, 1, 11));
    RETURN_IF_ERROR(writer->Append(Record(40)));
    RETURN_IF_ERROR(writer->Sync());
    return server->store.CommitCheckpoint(kRegion, 1, 11);
  }
  void Stop(absl::Status why) { status = std::move(why); }

  Server* const server;
  int synced = 0;
  absl::Status status;
};

std::string Written(int records) {
  std::string all;
  for (int i = 1; i <= records; ++i) all += Record(i);
  return all;
}

// A successor comes at each moment of the owner's life. It reads all that the owner has acknowledged or ever will, and
// nothing is left of what the owner could not finish.
TEST(ObjectLogStore, ASuccessorSeesAllThatWasEverAcknowledged) {
  bool ended = false;
  int told = 0;
  for (int steps = 0; !ended; ++steps) {
    SCOPED_TRACE(steps);
    SimObjects objects(1);
    Server first(&objects, 1), second(&objects, 1000);
    Owner owner(&first);
    SimFiber running([&] { owner.Run(); });
    for (int i = 0; i < steps && !running.ended(); ++i) running.Resume();
    ended = running.ended();
    ASSERT_TRUE(second.store.Fence(kRegion, 2).ok());
    absl::Status status;
    const std::optional<std::string> seen = ReadAll(&second.store, &status);
    ASSERT_TRUE(seen.has_value()) << status;
    const std::string parts = PartsOf(&second.store);
    while (!running.ended()) running.Resume();
    EXPECT_TRUE(owner.status.ok() || absl::IsAborted(owner.status)) << owner.status;
    told += absl::IsAborted(owner.status);
    EXPECT_TRUE(seen->starts_with(Written(owner.synced)));
    EXPECT_TRUE(*ReadAll(&second.store, &status) == *seen);
    EXPECT_EQ(PartsOf(&second.store), parts);
    ExpectNothingUnfinished(objects, &second);
    ASSERT_TRUE(second.store.Remove(kRegion, 2).ok());
    EXPECT_TRUE(objects.names().empty()) << objects.names().front();
  }
  EXPECT_GT(told, 20);
}

// An owner dies at each moment of its life, and what it had sent is made or not. A fence knows all that it has left.
// With the mutant made-before-entered this fails.
TEST(ObjectLogStore, NoObjectOfADeadOwnerIsForgotten) {
  bool ended = false;
  for (int steps = 0; !ended; ++steps) {
    SCOPED_TRACE(steps);
    SimObjects objects(static_cast<uint64_t>(steps) + 1);
    Server first(&objects, 1), second(&objects, 1000);
    Owner owner(&first);
    SimFiber running([&] { owner.Run(); });
    for (int i = 0; i < steps && !running.ended(); ++i) running.Resume();
    ended = running.ended();
    first.host->Crash();
    objects.MakeAllLate();
    ASSERT_TRUE(second.store.Fence(kRegion, 2).ok());
    absl::Status status;
    const std::optional<std::string> seen = ReadAll(&second.store, &status);
    ASSERT_TRUE(seen.has_value()) << status;
    EXPECT_TRUE(seen->starts_with(Written(owner.synced)));
    ExpectNothingUnfinished(objects, &second);
  }
}

// The same in any order of both servers' steps, with answers that are lost, updates that arrive late, and owners that
// die.
TEST(ObjectLogStore, ASuccessorSeesAllThatWasAcknowledgedWhateverIsLost) {
  int failed = 0, died = 0;
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SimObjects objects(seed);
    Server first(&objects, 1), second(&objects, 1000);
    Owner owner(&first);
    first.host->set_loss(random.Below(3) == 0 ? 10 : 0);
    second.host->set_loss(random.Below(3) == 0 ? 20 : 0);
    std::optional<std::string> seen;
    std::string parts;
    SimFiber running([&] { owner.Run(); });
    SimFiber taking_over([&] {
      while (!second.store.Fence(kRegion, 2).ok()) {
      }
      while ((parts = PartsOf(&second.store)).empty() && !absl::IsNotFound(second.store.List(kRegion).status())) {
      }
      absl::Status status;
      while (!(seen = ReadAll(&second.store, &status)).has_value()) {
        if (!absl::IsUnavailable(status)) return;
      }
    });
    const uint64_t begins = random.Below(80), dies = random.Below(2) == 0 ? random.Below(100) : UINT64_MAX;
    bool dead = false;
    for (uint64_t step = 0; !(running.ended() || dead) || !taking_over.ended(); ++step) {
      if (step == dies) {
        dead = true;
        first.host->Crash();
      }
      const bool others_turn =
          step >= begins && !taking_over.ended() && (random.Below(2) == 0 || running.ended() || dead);
      if (others_turn) {
        taking_over.Resume();
      } else if (!running.ended() && !dead) {
        running.Resume();
      }
    }
    died += dead;
    failed += !owner.status.ok();
    ASSERT_TRUE(seen.has_value());
    EXPECT_TRUE(seen->starts_with(Written(owner.synced)));
    second.host->set_loss(0);
    for (int i = 0; i < 40; ++i) objects.MakeSomeLate();
    absl::Status status;
    const std::optional<std::string> again = ReadAll(&second.store, &status);
    ASSERT_TRUE(again.has_value()) << status;
    EXPECT_TRUE(*again == *seen);
    EXPECT_EQ(PartsOf(&second.store), parts);
    ASSERT_TRUE(second.store.RemoveAll().ok());
    EXPECT_TRUE(objects.names().empty()) << objects.names().front();
  }
  EXPECT_GT(failed, 1000);
  EXPECT_GT(died, 1000);
}

// An owner whose update has failed tries again at the next epoch, as its own successor. Its late updates do not get in
// the way.
TEST(ObjectLogStore, AnOwnerGoesOnAtTheNextEpoch) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SimObjects objects(seed);
    Server server(&objects, 1);
    std::string acknowledged;
    uint32_t epoch = 1;
    std::unique_ptr<LogWriter> writer;
    server.host->set_loss(10);
    for (int i = 0; i < 40; ++i) {
      if (writer == nullptr) {
        ++epoch;
        while (!server.store.Fence(kRegion, epoch).ok()) {
        }
        absl::Status status;
        std::optional<std::string> all;
        while (!(all = ReadAll(&server.store, &status)).has_value()) ASSERT_TRUE(absl::IsUnavailable(status)) << status;
        ASSERT_EQ(all->find(acknowledged), 0u);
        acknowledged = *all;
        absl::StatusOr<std::unique_ptr<LogWriter>> opened = server.store.Open(kRegion, epoch, epoch);
        if (!opened.ok()) continue;
        writer = *std::move(opened);
      }
      const std::string record = Record(static_cast<int>(random.Below(10)));
      absl::Status status = writer->Append(record);
      if (status.ok()) status = writer->Sync();
      if (status.ok()) {
        acknowledged += record;
      } else {
        writer = nullptr;
      }
    }
  }
}

// An owner tries the same once more after an answer was lost. What the first attempt had sent arrives after the second
// has succeeded.
TEST(ObjectLogStore, ALateUpdateOfAFirstAttemptDoesNotUndoTheSecond) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    for (uint64_t lost = 0; lost < 15; ++lost) {
      SCOPED_TRACE(fmt::format("seed {}, call {}", seed, lost));
      SimObjects objects(seed);
      Server server(&objects, 1);
      ASSERT_TRUE(server.store.Fence(kRegion, 1).ok());
      server.host->LoseAt(lost);
      absl::StatusOr<std::unique_ptr<LogWriter>> segment = server.store.Open(kRegion, 1, 1, Record(20));
      for (int i = 0; i < 5 && absl::IsUnavailable(segment.status()); ++i) {  // What comes late may fail it once more.
        segment = server.store.Open(kRegion, 1, 1, Record(20));
      }
      const bool twice = absl::IsAlreadyExists(segment.status());  // The first attempt succeeded.
      ASSERT_TRUE(segment.ok() || twice) << segment.status();
      if (!twice) {
        absl::Status status = (*segment)->Append("more");
        if (status.ok()) status = (*segment)->Sync();
        ASSERT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
        if (!status.ok()) continue;
      }
      server.host->LoseAt(lost);
      std::string wanted;
      for (const int record : {25, 26, 26, 26}) {  // What comes late may fail it again.
        absl::StatusOr<std::unique_ptr<LogWriter>> checkpoint = server.store.BeginCheckpoint(kRegion, 1, 5);
        if (!checkpoint.ok()) continue;
        absl::Status status = (*checkpoint)->Append(Record(record));
        if (status.ok()) status = (*checkpoint)->Sync();
        if (status.ok()) status = server.store.CommitCheckpoint(kRegion, 1, 5);
        if (!status.ok()) continue;
        wanted = Record(record);
        break;
      }
      for (int i = 0; i < 40; ++i) objects.MakeSomeLate();
      absl::Status status;
      const std::optional<std::string> all = ReadAll(&server.store, &status);
      ASSERT_TRUE(all.has_value()) << status;
      EXPECT_TRUE(*all == Record(20) + (twice ? "" : "more"));
      if (wanted.empty()) continue;
      const LogPart part = server.store.List(kRegion)->back();
      ASSERT_EQ(part.kind, LogPart::Kind::kCheckpoint);
      std::string bytes(*server.store.Size(kRegion, part), '\0');
      ASSERT_TRUE(server.store.Read(kRegion, part, 0, {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}).ok());
      EXPECT_TRUE(bytes == wanted);  // They are long.
    }
  }
}

TEST(ObjectLogStore, AProbeLeavesNoObject) {
  SimObjects objects(1);
  Server server(&objects, 1);
  ASSERT_TRUE(server.store.Probe(kRegion).ok());
  EXPECT_TRUE(objects.names().empty());
}

TEST(ObjectLogStore, ObjectsThatAreMissingOrTooShortAreNamed) {
  SimObjects objects(1);
  Server server(&objects, 1);
  const std::unique_ptr<LogWriter> writer = *server.store.Open(kRegion, 1, 1);
  const std::string bytes(35'000, 'x');
  ASSERT_TRUE(writer->Append(bytes).ok() && writer->Sync().ok());
  const LogPart part = server.store.List(kRegion)->front();
  std::string read(bytes.size(), '\0');
  const MutableBytes to(reinterpret_cast<std::byte*>(read.data()), read.size());
  EXPECT_EQ(*server.store.Read(kRegion, part, 0, to), bytes.size());
  const std::string second = "region-7/0000000000000001.00000001.log.00000001.1";
  objects.bytes(second)->pop_back();
  const absl::Status shorter = server.store.Read(kRegion, part, 0, to).status();
  EXPECT_TRUE(absl::IsDataLoss(shorter));
  EXPECT_NE(shorter.message().find(second), std::string::npos) << shorter;
  objects.Erase(second);
  const absl::Status missing = server.store.Read(kRegion, part, 0, to).status();
  EXPECT_TRUE(absl::IsDataLoss(missing));
  EXPECT_NE(missing.message().find(second), std::string::npos) << missing;
  objects.Erase("region-7/0000000000000001.00000001.log.00000001.3");
  EXPECT_TRUE(absl::IsDataLoss(server.store.Size(kRegion, part).status()));
  EXPECT_TRUE(server.store.Fence(kRegion, 2).ok());  // Whoever reads it will say so.
}

TEST(ObjectLogStore, TheOwnerOfALogIsToldThatAnObjectIsMissing) {
  SimObjects objects(1);
  Server server(&objects, 1);
  const std::unique_ptr<LogWriter> writer = *server.store.Open(kRegion, 1, 1, "first");
  objects.Erase("region-7/0000000000000001.00000001.log.00000001.0");
  ASSERT_TRUE(writer->Append("second").ok());
  const absl::Status missing = writer->Sync();
  EXPECT_TRUE(absl::IsDataLoss(missing)) << missing;
  EXPECT_NE(missing.message().find("lacks an object"), std::string::npos) << missing;
}

// Somebody has changed an object by hand. The log of that region is not read, that of another is.
class DamagedObjects : public ::testing::Test {
 protected:
  static constexpr uint32_t kOther = 8;
  const std::string head_ = "region-7";
  const std::string segment_ = "0000000000000001.00000001.log";

  DamagedObjects() {
    for (const uint32_t region : {kRegion, kOther}) Write(region, 1, 25'000);
  }
  void Write(uint32_t region, uint32_t epoch, size_t bytes) {
    const std::unique_ptr<LogWriter> writer = *server_.store.Open(region, epoch, 1);
    ASSERT_TRUE(writer->Append(std::string(bytes, 'x')).ok() && writer->Sync().ok());
  }
  static void ExpectNamed(const absl::Status& status, const std::string& what) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_NE(status.message().find(what), std::string::npos) << status;
  }
  std::vector<std::string> NamesOf(uint32_t region) const {
    std::vector<std::string> names = objects_.names();
    std::erase_if(names, [&](const std::string& name) { return !name.starts_with(fmt::format("region-{}", region)); });
    return names;
  }

  SimObjects objects_{1};
  Server server_{&objects_, 1};
};

TEST_F(DamagedObjects, AnEntryIsNamedAndGoesWithItsRegion) {
  const ObjectEntries damages = {{segment_, "3"},
                                 {segment_, "0 00000001"},
                                 {segment_, "4294967295 00000001"},
                                 {"+" + segment_, "65537 00000001"},
                                 {"0000000000000001.00000001.lag", "3 00000001"}};
  for (const auto& [key, value] : damages) {
    SCOPED_TRACE(testing::Message() << key << ": " << value);
    SimObjects objects(1);
    Server server(&objects, 1);
    ASSERT_TRUE(server.store.Open(kRegion, 1, 1, std::string(25'000, 'x')).ok());
    ASSERT_TRUE(server.store.Open(kOther, 1, 1, "other").ok());
    (*objects.entries(head_))[key] = value;
    ExpectNamed(server.store.List(kRegion).status(), head_);
    ExpectNamed(server.store.List(kRegion).status(), key);
    ExpectNamed(server.store.Has(kRegion).status(), key);
    ExpectNamed(server.store.Fence(kRegion, 2), key);
    EXPECT_TRUE(*server.store.Has(kOther));
    const uint64_t calls = server.host->calls();
    ASSERT_TRUE(server.store.Remove(kRegion, 2).ok());
    EXPECT_LT(server.host->calls() - calls, 20u);
    EXPECT_EQ(objects.names().size(), 2u);  // The other's.
    ASSERT_TRUE(server.store.RemoveAll().ok());
    EXPECT_TRUE(objects.names().empty());
  }
}

TEST_F(DamagedObjects, AnEarlierRegionGoesAndALaterOneStays) {
  Write(kRegion, 5, 100);
  const std::vector<std::string> before = NamesOf(kRegion);
  ObjectEntries* const entries = objects_.entries(head_);
  (*entries)[segment_] = "4294967295 00000001";
  ASSERT_TRUE(server_.store.Remove(kRegion, 4).ok());
  EXPECT_EQ(NamesOf(kRegion).size(), before.size() - 3);
  EXPECT_EQ(entries->size(), 1u);
  EXPECT_EQ(server_.store.List(kRegion)->front().epoch, 5u);
  EXPECT_EQ(*server_.store.Size(kRegion, server_.store.List(kRegion)->front()), 100u);
}

// A caller allocates what Size returns.
TEST_F(DamagedObjects, SizeCountsOnlyObjectsThatAreThere) {
  (*objects_.entries(head_))[segment_] = fmt::format("65536 {}", (*objects_.entries(head_))[segment_].substr(2));
  const std::string object = fmt::format("region-7/{}.00000001.", segment_);
  ASSERT_TRUE(server_.host->Update(object + "65535", {.create = true, .append = "x"}).ok());
  const LogPart part = server_.store.List(kRegion)->front();
  const uint64_t calls = server_.host->calls();
  ExpectNamed(server_.store.Size(kRegion, part).status(), object + "2");  // It is shorter than one that others follow.
  EXPECT_LT(server_.host->calls() - calls, 10u);
  objects_.bytes(object + "2")->resize(kChunkBytes);
  ExpectNamed(server_.store.Size(kRegion, part).status(), object + "3");
}

// A request for each object that an entry claims would take minutes.
TEST_F(DamagedObjects, ObjectsThatAreNotThereAreNotRemovedOneByOne) {
  (*objects_.entries(head_))["+" + segment_] = fmt::format("65536 {}", (*objects_.entries(head_))[segment_].substr(2));
  const std::string next = fmt::format("region-7/{}.00000001.3", segment_);
  ASSERT_TRUE(server_.host->Update(next, {.create = true, .append = "x"}).ok());
  const uint64_t calls = server_.host->calls();
  ASSERT_TRUE(server_.store.Fence(kRegion, 2).ok());
  EXPECT_EQ(NamesOf(kRegion).size(), 4u);  // The head, and the objects that belong to the log.
  (*objects_.entries(head_))[segment_] = (*objects_.entries(head_))[segment_].replace(0, 1, "65536");
  ASSERT_TRUE(server_.store.Remove(kRegion, 2).ok());
  EXPECT_TRUE(NamesOf(kRegion).empty());
  EXPECT_LT(server_.host->calls() - calls, 40u);
}

TEST_F(DamagedObjects, AnObjectThatIsTooLongIsNamed) {
  const std::string last = fmt::format("region-7/{}.00000001.2", segment_);
  objects_.bytes(last)->resize(kChunkBytes + 1);
  ExpectNamed(server_.store.Size(kRegion, server_.store.List(kRegion)->front()).status(), last);
}

TEST_F(DamagedObjects, AnEpochAboveThatOfTheHeadIsNamed) {
  const std::string last = fmt::format("region-7/{}.00000001.2", segment_);
  *objects_.epoch(last) = UINT32_MAX;
  ExpectNamed(server_.store.Fence(kRegion, 2), last);
  EXPECT_TRUE(server_.store.Fence(kOther, 2).ok());
}

TEST_F(DamagedObjects, AHeadWithTooManyEntriesGoesWithAllOthers) {
  for (size_t i = 0; i <= kObjectEntriesMax; ++i) (*objects_.entries(head_))[fmt::format("{}", i)] = "x";
  EXPECT_TRUE(absl::IsDataLoss(server_.store.Has(kRegion).status()));
  EXPECT_TRUE(absl::IsDataLoss(server_.store.Remove(kRegion, 9)));
  ASSERT_TRUE(server_.store.RemoveAll().ok());
  EXPECT_TRUE(objects_.names().empty());
}

// Readers take a part with more objects for damaged, so a writer refuses to make one.
TEST(ObjectLogStore, APartHasNoMoreObjectsThanReadersBelieve) {
  SimObjects objects(1);
  const std::unique_ptr<SimObjectStore> host = objects.NewHost();
  ObjectLogStore store(host.get(), {/*chunk_bytes=*/1, /*append_bytes=*/1, [] { return 1u; }});
  const std::unique_ptr<LogWriter> writer = *store.Open(kRegion, 1, 1);
  EXPECT_TRUE(absl::IsResourceExhausted(writer->Append(std::string(kPartObjectsMax + 1, 'x'))));
  EXPECT_EQ(*store.Size(kRegion, store.List(kRegion)->front()), kPartObjectsMax);
  ASSERT_TRUE(store.BeginCheckpoint(kRegion, 1, 5).ok());
  EXPECT_FALSE(store.CommitCheckpoint(kRegion, 1, 5).ok());  // It is empty.
  EXPECT_TRUE(*store.Has(kRegion));
}

TEST(ObjectLogStore, AFullPoolFailsWritesAndLeavesNothing) {
  SimObjects objects(1);
  Server server(&objects, 1);
  const std::unique_ptr<LogWriter> writer = *server.store.Open(kRegion, 1, 1);
  const std::vector<std::string> before = objects.names();
  objects.set_full(true);
  EXPECT_TRUE(absl::IsResourceExhausted(writer->Append(std::string(5'000, 'x'))));
  EXPECT_TRUE(absl::IsResourceExhausted(writer->Sync()));
  EXPECT_TRUE(absl::IsResourceExhausted(server.store.Open(kRegion, 1, 2).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(server.store.Probe(kRegion)));
  EXPECT_EQ(objects.names(), before);
  EXPECT_TRUE(server.store.Fence(kRegion, 2).ok());  // It raises epochs, and adds nothing.
}

}  // namespace
}  // namespace cell

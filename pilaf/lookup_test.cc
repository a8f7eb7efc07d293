// Runs readers beside the writer. Each read goes word by word, in an order that the seed chooses, between the writer's
// steps. A reader must never return a value that the key did not have during its lookup, and must never report a key as
// absent that was there.
#include "pilaf/lookup.h"

#include <gtest/gtest.h>

#include <map>

#include "cell/base/random.h"
#include "cell/region/extent_compaction.h"
#include "pilaf/hash_join.h"
#include "pilaf/hash_split.h"
#include "pilaf/test_table.h"

namespace cell {
namespace {

// The successive states of a key; nullopt: absent.
struct History {
  std::vector<std::optional<std::string>> states = {std::nullopt};
  size_t ended = 0;  // State of the last finished write. Readers must see at least this state.
};

struct Options {
  uint32_t bucket_bytes = 0;
  LookupOptions lookup = {};
  bool kick_from_front = false;
  bool values_change = true;  // If false, keys are only put, moved and deleted.
  bool split = false;         // The upper half of the range is moved to another region meanwhile.
  bool clean_late = false;
  bool compacts = false;  // Extents are moved meanwhile.
  bool join = false;      // There are two regions, and the lower one takes in the upper one meanwhile.
  bool widen_early = false;
  bool upper_stays = false;
  bool undo_late = false;  // The upper region is written while a join that was given up is undone.

  // So few that there are holes, and extents have to be moved.
  uint64_t extents_bytes() const {
    if (!compacts) return 256 << 10;
    return bucket_bytes == 0 ? 16 << 10 : 4 << 10;  // Few pairs of buckets are in extents.
  }
};

struct Totals {
  uint64_t lookups = 0, found = 0, absent = 0, gave_up = 0, torn = 0, torn_extents = 0, moved = 0, kicked = 0,
           elsewhere = 0, compacted = 0, joined = 0, undone = 0;
};

class Race {
 public:
  Race(double fill, uint64_t seed, const Options& options, Totals* totals)
      : table_(
            ShapeOf(options.bucket_bytes == 0 ? 128u << seed % 3 : 8u, options.extents_bytes(), options.bucket_bytes),
            options.bucket_bytes, 7, {0, options.join ? kHalf - 1 : UINT32_MAX}),
        right_(
            ShapeOf(options.bucket_bytes == 0 ? 128u << seed % 3 : 8u, options.extents_bytes(), options.bucket_bytes),
            options.bucket_bytes, 8, {kHalf, UINT32_MAX}),
        options_(options),
        random_(seed),
        totals_(totals) {
    table_->set_kick_from_front(options.kick_from_front);
    table_->set_thorough(options.bucket_bytes != 0);  // Fuller than regions get in practice.
    const uint64_t most = table_->geometry().units * (options.bucket_bytes == 0 ? 1 : options.bucket_bytes / 40);
    keys_ = static_cast<uint64_t>(2 * fill * static_cast<double>(most)) + 1;
    for (uint64_t i = 0; i < 5 * keys_ && Fill() < fill && Write(true); ++i) {
    }
    for (int i = 0; i < 12; ++i) readers_.push_back(NewReader());
  }

  // Returns what was wrong, or an empty string.
  std::string Run(int writes) {
    table_.memory()->set_after_step([this] { Step(); });
    right_.memory()->set_after_step([this] { Step(); });
    const double target = Fill();
    for (int i = 0; i < writes && violation_.empty(); ++i) {
      Write(Fill() < (has_cut_ ? 0.5 : 1) * target);
      if (random_.Below(4) == 0) Step();
      if (options_.split && i > writes / 4) GoOnWithSplit();
      if (options_.compacts) GoOnWithCompaction();
      if (options_.join && i > writes / 8) GoOnWithJoin();
    }
    table_.memory()->set_after_step({});
    right_.memory()->set_after_step({});
    totals_->kicked += table_->counters().kicked;
    while (split_.has_value()) GoOnWithSplit();
    if (join_.has_value()) {
      while (!join_->Undo(1)) {
      }
      join_.reset();
    }
    for (TestTable* table : {&table_, &right_}) {
      if (joined_ && table == &right_) continue;  // Nothing in it is whole.
      if (violation_.empty() && !(*table)->Check().ok()) violation_ = (*table)->Check().ToString();
    }
    return violation_;
  }

 private:
  static constexpr uint32_t kHalf = UINT32_MAX / 2 + 1;

  struct Reader {
    std::string key;
    TestTable* at;
    std::unique_ptr<Lookup> lookup;
    uint64_t pause = 0;  // Steps until it continues.
    size_t least = 0;    // The reader must see this state or a later one.
    std::vector<std::vector<std::byte>> images;
    std::vector<std::pair<size_t, uint32_t>> words;  // Image and offset of the words still to be read.
  };

  void GoOnWithSplit() {
    if (!split_.has_value()) {
      if (has_cut_) return;
      split_.emplace(table_.get(), right_.get());
      split_->set_clean_late(options_.clean_late);
    }
    const auto units = static_cast<uint32_t>(random_.Below(4));
    if (!has_cut_) {
      const absl::StatusOr<bool> copied = split_->Copy(units);
      EXPECT_TRUE(copied.ok()) << copied.status();
      if (!*copied || random_.Below(20) != 0) return;
      has_cut_ = true;
      EXPECT_TRUE(split_->Finish().ok());
    } else if (random_.Below(4) == 0 && split_->Clean(units)) {
      split_.reset();
    }
  }

  void GoOnWithCompaction() {
    if (!compaction_.has_value() || compaction_->ended()) {
      compaction_.emplace(table_.get(), random_.Below(options_.extents_bytes() * 3 / 4));
    } else {
      const uint64_t before = compaction_->moved();
      EXPECT_TRUE(compaction_->Step(table_.get(), 1 + random_.Below(2'000)).ok());
      totals_->compacted += compaction_->moved() - before;
    }
  }

  // Joins are given up twice as often as made, at any step.
  void GoOnWithJoin() {
    if (joined_ || random_.Below(3) != 0) return;
    if (!join_.has_value()) {
      if (random_.Below(20) != 0) return;
      frozen_ = true;
      join_.emplace(table_.get(), right_.get());
      join_->set_widen_early(options_.widen_early);
      join_->set_upper_stays(options_.upper_stays);
    }
    const auto units = static_cast<uint32_t>(random_.Below(1 + table_->geometry().units / 8));
    if (undoing_) {
      undoing_ = !join_->Undo(units);
      frozen_ = undoing_ && !options_.undo_late;
      totals_->undone += !undoing_;
      if (!undoing_) join_.reset();
      return;
    }
    const absl::StatusOr<bool> copied = join_->Copy(units);
    undoing_ = !copied.ok() || random_.Below(30) == 0;
    if (undoing_ || !*copied) return;
    if (random_.Below(3) != 0) {
      undoing_ = true;
    } else if (random_.Below(3) == 0) {
      join_->Finish();
      join_.reset();
      frozen_ = false;
      joined_ = true;
      ++totals_->joined;
    }
  }

  // Returns the region that takes the writes of a key.
  TestTable& RegionOf(const std::string& key) {
    const bool upper = options_.join ? !joined_ : has_cut_;
    return upper && HashKey(key).position >= kHalf ? right_ : table_;
  }
  double Fill() {
    if (options_.join) return table_->unit_fill() + (joined_ ? 0 : right_->unit_fill());
    return (has_cut_ ? right_ : table_)->unit_fill();
  }

  std::string Key(uint64_t i) const { return fmt::format("key {}", i); }

  size_t ValueBytes() {
    if (options_.bucket_bytes == 0) return random_.Below(120);
    return random_.Below(8) == 0 ? 300 : random_.Below(24);  // Most of them are inline.
  }

  // Returns false if the table is full.
  bool Write(bool put) {
    const std::string key = Key(random_.Below(keys_));
    History& history = histories_[key];
    if (frozen_ && HashKey(key).position >= kHalf) return true;
    if (put && !options_.values_change && history.states.back().has_value()) return true;
    std::optional<std::string> state;
    if (put) {
      state = fmt::format("{} {} ", key, history.states.size()) +
              std::string(ValueBytes(), static_cast<char>('a' + history.states.size() % 26));
    }
    history.states.push_back(state);
    bool done = true;
    TestTable& table = RegionOf(key);
    if (put) {
      done = table.Put(key, *state).ok();
    } else {
      EXPECT_TRUE(table->Delete(key).ok());
    }
    if (!done) history.states.push_back(*(history.states.rbegin() + 1));  // The state is as before.
    history.ended = history.states.size() - 1;
    return done;
  }

  std::unique_ptr<Reader> NewReader() {
    auto reader = std::make_unique<Reader>();
    reader->key = Key(random_.Below(keys_));
    reader->least = histories_[reader->key].ended;
    reader->at = &table_;  // Begin as a client that does not know of the split...
    if (options_.join && HashKey(reader->key).position >= kHalf && random_.Below(2) == 0) {
      reader->at = &right_;  // ...or that knows of it, and not of the join.
    }
    LookUpAt(reader.get());
    return reader;
  }
  void LookUpAt(Reader* reader) {
    reader->lookup = NewLookup(reader->key, HashKey(reader->key), (*reader->at)->geometry(), options_.lookup);
    Begin(reader);
  }

  void Begin(Reader* reader) {
    reader->images.clear();
    reader->words.clear();
    reader->pause = random_.Below(2) == 0 ? random_.Below(300) : 0;
    for (const Lookup::Read& read : reader->lookup->wants()) {
      for (uint32_t at = 0; at < read.bytes; at += kWordBytes) reader->words.emplace_back(reader->images.size(), at);
      reader->images.emplace_back(read.bytes);
    }
    Shuffle(&reader->words);
    if (random_.Below(2) == 0) return;
    // Do one read after the other, in any order.
    std::vector<uint64_t> turns(reader->images.size());
    for (uint64_t& turn : turns) turn = random_.Next();
    std::stable_sort(reader->words.begin(), reader->words.end(),
                     [&turns](const auto& a, const auto& b) { return turns[a.first] < turns[b.first]; });
  }
  template <typename T>
  void Shuffle(std::vector<T>* all) {
    for (size_t i = all->size(); i > 1; --i) std::swap((*all)[i - 1], (*all)[random_.Below(i)]);
  }

  // Lets some readers read some words, and occasionally many.
  void Step() {
    for (auto& reader : readers_) {
      if (reader->pause > 0 && reader->pause-- > 0) continue;
      const uint64_t most[] = {1, 1, 8, 100 + options_.bucket_bytes / 2};
      for (uint64_t words = random_.Below(most[random_.Below(4)]); words > 0; --words) {
        const auto [image, at] = reader->words.back();
        reader->words.pop_back();
        CopyFromShared(reader->at->memory()->at(reader->lookup->wants()[image].offset + at),
                       reader->images[image].data() + at, kWordBytes);
        if (!reader->words.empty()) continue;
        std::vector<ConstBytes> images(reader->images.begin(), reader->images.end());
        const Lookup::Step step = reader->lookup->Visit(images);
        if (step == Lookup::Step::kRead) {
          Begin(reader.get());
        } else if (step == Lookup::Step::kElsewhere && has_cut_ && reader->at == &table_) {
          ++totals_->elsewhere;
          reader->at = &right_;
          LookUpAt(reader.get());
        } else if (step == Lookup::Step::kElsewhere && options_.join) {
          ++totals_->elsewhere;
          reader->at = reader->at == &table_ ? &right_ : &table_;
          LookUpAt(reader.get());
        } else {
          Finish(*reader, step);
          reader = NewReader();
        }
      }
    }
  }

  void Finish(const Reader& reader, Lookup::Step step) {
    const Lookup::Counters& counters = reader.lookup->counters();
    ++totals_->lookups;
    totals_->torn += static_cast<uint64_t>(counters.torn);
    totals_->torn_extents += static_cast<uint64_t>(counters.torn_extents);
    totals_->moved += static_cast<uint64_t>(counters.moved);
    if (step == Lookup::Step::kGaveUp) {
      ++totals_->gave_up;
      return;
    }
    std::optional<std::string> seen;
    if (step == Lookup::Step::kFound) seen = std::string(reader.lookup->value());
    if (step == Lookup::Step::kElsewhere) violation_ = "the region is there";
    ++(seen.has_value() ? totals_->found : totals_->absent);
    const std::vector<std::optional<std::string>>& states = histories_[reader.key].states;
    for (size_t i = reader.least; i < states.size(); ++i) {
      if (states[i] == seen) return;
    }
    violation_ = fmt::format("{}: saw {}, which none of states {} to {} is", reader.key, seen.value_or("absent"),
                             reader.least, states.size() - 1);
  }

  TestTable table_;
  TestTable right_;
  std::optional<HashSplit> split_;
  bool has_cut_ = false;
  std::optional<ExtentCompaction> compaction_;
  std::optional<HashJoin> join_;
  bool frozen_ = false;   // The upper region takes no writes.
  bool undoing_ = false;  // The join was given up.
  bool joined_ = false;
  const Options options_;
  Random random_;
  Totals* const totals_;
  uint64_t keys_;
  std::map<std::string, History> histories_;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::string violation_;
};

constexpr double kFills[] = {0.1, 0.5, 0.75, 0.85, 0.9, 0.95};
constexpr double kBucketFills[] = {0.1, 0.5, 0.9, 0.97, 0.98, 0.99};
constexpr double kJoinFills[] = {0.1, 0.2, 0.3, 0.35, 0.4, 0.45};  // Of both regions together.

// Returns the first seed that shows a violation, or 0.
uint64_t FindViolation(const Options& options, uint64_t seeds, int writes, Totals* totals) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const size_t i = seed % std::size(kFills);
    const double fill = options.join ? kJoinFills[i] : options.bucket_bytes == 0 ? kFills[i] : kBucketFills[i];
    const std::string violation = Race(fill, seed, options, totals).Run(writes);
    if (violation.empty()) continue;
    fmt::print("seed {}, {:.0f} % full: {}\n", seed, 100 * fill, violation);
    return seed;
  }
  return 0;
}

class LookupRace : public ::testing::TestWithParam<uint32_t> {
 protected:
  Options OfLayout() const {
    Options options;
    options.bucket_bytes = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, LookupRace, ::testing::Values(0, 512));  // Bucket sizes; 0: slots.

TEST_P(LookupRace, NeverAWrongValueAndNoPresentKeyAbsent) {
  Totals totals;
  EXPECT_EQ(FindViolation(OfLayout(), 240, 2'000, &totals), 0u);
  EXPECT_GT(totals.found, 100'000u);
  EXPECT_GT(totals.absent, 10'000u);
  EXPECT_GT(totals.torn, 1'000u);
  EXPECT_GT(totals.torn_extents, 500u);
  EXPECT_GT(totals.moved, 100u);
  EXPECT_GT(totals.kicked, 5'000u);
  EXPECT_LT(totals.gave_up, totals.lookups / 1'000);
  fmt::print(
      "{} lookups: {} found, {} absent, {} gave up; again: {} for torn slots, {} for extents, {} for moved slots; "
      "{} keys kicked\n",
      totals.lookups, totals.found, totals.absent, totals.gave_up, totals.torn, totals.torn_extents, totals.moved,
      totals.kicked);
}

TEST_P(LookupRace, WhileExtentsAreMoved) {
  Totals totals;
  Options options = OfLayout();
  options.compacts = true;
  EXPECT_EQ(FindViolation(options, 240, 2'000, &totals), 0u);
  EXPECT_GT(totals.compacted, 5'000u);
  EXPECT_GT(totals.found, 50'000u);
  EXPECT_GT(totals.absent, 10'000u);
  EXPECT_LT(totals.gave_up, totals.lookups / 1'000);
  fmt::print("{} lookups: {} found, {} gave up; {} extents were moved\n", totals.lookups, totals.found, totals.gave_up,
             totals.compacted);
}

TEST_P(LookupRace, OverASplit) {
  Totals totals;
  Options options = OfLayout();
  options.split = true;
  EXPECT_EQ(FindViolation(options, 240, 2'000, &totals), 0u);
  EXPECT_GT(totals.found, 50'000u);
  EXPECT_GT(totals.absent, 10'000u);
  EXPECT_GT(totals.elsewhere, 10'000u);
  EXPECT_LT(totals.gave_up, totals.lookups / 1'000);
}

TEST_P(LookupRace, ANewRegionThatDoesNotWaitForTheOldOneToBeCleanedShowsStalePairs) {
  Totals totals;
  Options options = OfLayout();
  options.split = options.clean_late = true;
  EXPECT_GT(FindViolation(options, 240, 2'000, &totals), 0u);
}

TEST_P(LookupRace, OverAJoin) {
  Totals totals;
  Options options = OfLayout();
  options.join = true;
  EXPECT_EQ(FindViolation(options, 240, 2'000, &totals), 0u);
  EXPECT_GT(totals.found, 50'000u);
  EXPECT_GT(totals.absent, 10'000u);
  EXPECT_GT(totals.elsewhere, 10'000u);
  EXPECT_GT(totals.joined, 80u);
  EXPECT_GT(totals.undone, 300u);
  EXPECT_LT(totals.gave_up, totals.lookups / 1'000);
}

TEST_P(LookupRace, AJoinedRegionThatIsNotInvalidatedShowsStalePairs) {
  Totals totals;
  Options options = OfLayout();
  options.join = options.upper_stays = true;
  EXPECT_GT(FindViolation(options, 240, 2'000, &totals), 0u);
}

TEST_P(LookupRace, AJoinThatIsUndoneTooLateShowsStalePairs) {
  Totals totals;
  Options options = OfLayout();
  options.join = options.undo_late = true;
  EXPECT_GT(FindViolation(options, 240, 2'000, &totals), 0u);
}

// Slots have no range: the header gets that of both at the end.
TEST(BucketLookup, ARangeThatIsWidenedTooEarlyHidesPairs) {
  Totals totals;
  Options options;
  options.bucket_bytes = 512;
  options.join = options.widen_early = true;
  EXPECT_GT(FindViolation(options, 240, 2'000, &totals), 0u);
}

// Works like the tests below, but with all protections.
TEST_P(LookupRace, NoPresentKeyIsAbsentWhileKeysAreKicked) {
  Totals totals;
  Options options = OfLayout();
  options.values_change = false;
  EXPECT_EQ(FindViolation(options, 400, 2'000, &totals), 0u);
  EXPECT_GT(totals.moved, 200u);
}

// Thesis, 3.4: without the second read, a key is missed if it is moved from a slot not yet read to one already read.
TEST_P(LookupRace, WithoutTheSecondLookKeysAreMissed) {
  Totals totals;
  Options options = OfLayout();
  options.lookup.serializable = false;
  options.values_change = false;
  EXPECT_GT(FindViolation(options, 400, 2'000, &totals), 0u);
}

// Reads that are sent together have no last one, so reading two slots again is not enough.
TEST(CuckooLookup, TwoSlotsReadAgainAreNotEnough) {
  Totals totals;
  Options options;
  options.lookup.slots_confirmed = 2;
  options.values_change = false;
  EXPECT_GT(FindViolation(options, 400, 2'000, &totals), 0u);
}

TEST_P(LookupRace, AChainMovedFromItsFrontLosesKeys) {
  Totals totals;
  Options options = OfLayout();
  options.kick_from_front = true;
  options.values_change = false;
  EXPECT_GT(FindViolation(options, 400, 2'000, &totals), 0u);
}

// Makes all reads of a lookup, one after the other, while nobody writes.
Lookup::Step LookUp(TestTable& table, const std::string& key, std::string* value, Lookup::Counters* counters) {
  const std::unique_ptr<Lookup> lookup = NewLookup(key, HashKey(key), table->geometry());
  for (;;) {
    std::vector<std::vector<std::byte>> images;
    for (const Lookup::Read& read : lookup->wants()) {
      images.emplace_back(table.memory()->at(read.offset), table.memory()->at(read.offset + read.bytes));
    }
    std::vector<ConstBytes> views(images.begin(), images.end());
    const Lookup::Step step = lookup->Visit(views);
    if (step == Lookup::Step::kRead) continue;
    if (step == Lookup::Step::kFound) *value = std::string(lookup->value());
    *counters = lookup->counters();
    return step;
  }
}

TEST_P(LookupRace, FindsWhatIsThere) {
  TestTable table(ShapeOf(1024, 4 << 20, GetParam()), GetParam());
  Random random(1);
  std::map<std::string, std::string> model;
  for (int i = 0; i < 800; ++i) {
    const std::string key = fmt::format("key {}", i);
    model[key] = std::string(i == 0 ? kValueBytesMax : random.Below(300), 'v');
    ASSERT_TRUE(table.Put(key, model[key]).ok());
  }
  std::string value;
  Lookup::Counters counters;
  for (const auto& [key, expected] : model) {
    ASSERT_EQ(LookUp(table, key, &value, &counters), Lookup::Step::kFound);
    ASSERT_EQ(value, expected);
    ASSERT_LE(counters.reads, 5);
    ASSERT_EQ(LookUp(table, key + "x", &value, &counters), Lookup::Step::kAbsent);
  }
}

TEST_P(LookupRace, OfAnotherPartOrAGoneRegion) {
  TestTable table(ShapeOf(1024, 1 << 20, GetParam()), GetParam(), 1, {0, UINT32_MAX / 2});
  std::string value;
  Lookup::Counters counters;
  int here = 0, elsewhere = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string key = fmt::format("{}", i);
    const bool has = HashKey(key).position <= UINT32_MAX / 2;
    EXPECT_EQ(LookUp(table, key, &value, &counters), has ? Lookup::Step::kAbsent : Lookup::Step::kElsewhere);
    ++(has ? here : elsewhere);
  }
  EXPECT_GT(std::min(here, elsewhere), 30);
  // The header says that the region was invalidated, and no slot is whole.
  HashHeader header = table->hash_header();
  header.invalidated = 1;
  header.crc = HeaderCrc(header);
  table.memory()->Store(kHashHeaderOffset, reinterpret_cast<const std::byte*>(&header), sizeof(header));
  for (uint64_t at = kUnitsOffset; at < table->geometry().extents_offset; at += kWordBytes) {
    table.memory()->StoreWord(at, 0x5555);
  }
  EXPECT_EQ(LookUp(table, "1", &value, &counters), Lookup::Step::kElsewhere);
  // With arbitrary memory there is no answer, but the lookup ends.
  header.crc ^= 1;
  table.memory()->Store(kHashHeaderOffset, reinterpret_cast<const std::byte*>(&header), sizeof(header));
  EXPECT_EQ(LookUp(table, "1", &value, &counters), Lookup::Step::kGaveUp);
  EXPECT_GT(counters.torn, Lookup::kRestartsMax);
}

}  // namespace
}  // namespace cell

// A client that searches step by step while a test writes, and what it may find then.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/region/region_memory.h"
#include "cell/tree/walk.h"
#include "fmt/format.h"

namespace cell {

inline std::string KeyOf(uint64_t i) { return fmt::format("key-{:010}", i); }

// Records the writes of each key, numbered from 1 on, and says whether what a reader found was stored at some moment
// between the reader's begin and its end.
class History {
 public:
  // Write `n` of a key either stores the value "n" or deletes the pair.
  struct Key {
    std::vector<bool> stored = {false};  // By number. 0: nothing was written yet.
    size_t ended = 0;                    // The last write that has ended.
    size_t seen = 0;                     // The last write that a reader which has ended has seen.
  };

  size_t Begin(const std::string& key, bool stores) {
    keys_[key].stored.push_back(stores);
    return keys_[key].stored.size() - 1;
  }
  void End(const std::string& key) { keys_[key].ended = keys_[key].stored.size() - 1; }
  // Returns the first write that a reader which begins now may find.
  size_t First(const std::string& key) { return std::max(keys_[key].ended, keys_[key].seen); }
  // Notes what a reader has found. Returns whether it may.
  bool Found(const std::string& key, size_t first, const std::optional<std::string>& value) {
    Key& its = keys_[key];
    for (size_t n = first; n < its.stored.size(); ++n) {
      if (its.stored[n] != value.has_value() || (value.has_value() && *value != std::to_string(n))) continue;
      its.seen = std::max(its.seen, n);
      return true;
    }
    return false;
  }

 private:
  std::map<std::string, Key> keys_;
};

// A client that searches step by step, while the writer is between any two of its stores. It keeps inner nodes that it
// has read, however old.
class Reader {
 public:
  // Region r is in memories[r - 1]. Searches begin at the root of region 1.
  Reader(std::vector<const RegionMemory*> memories, History* history, uint64_t seed)
      : memories_(std::move(memories)), history_(history), random_(seed) {}

  void Step() {
    if (!walk_.has_value()) {
      key_ = KeyOf(random_.Below(kKeys));
      first_ = history_->First(key_);
      walk_.emplace(key_, RootOf(1));
    }
    const Pointer node = walk_->wants();
    NodeView view;
    Walk::Step step = Walk::Step::kRead;
    if (const auto kept = kept_.find(node.raw()); kept != kept_.end() && walk_->may_use_cache()) {
      view = NodeView::Trusted(kept->second.data(), kNodeBytes);
      step = walk_->Visit(view);
    } else {
      const RegionMemory* const memory = memories_.at(node.region() - 1);
      image_.assign(memory->at(node.offset()), memory->at(node.offset()) + kNodeBytes);
      const NodeFault fault = NodeView::Parse(image_, node, &view);
      step = fault == NodeFault::kNone ? walk_->Visit(view) : walk_->Failed(fault);
      if (fault == NodeFault::kNone && view.level() > 0 && random_.Below(4) == 0) kept_[node.raw()] = image_;
    }
    if (step == Walk::Step::kRead) return;
    if (step == Walk::Step::kElsewhere) {
      const Pointer root = walk_->wants();
      walk_.emplace(key_, root);
      return;
    }
    if (step == Walk::Step::kArrived) {
      const std::optional<int> slot = view.Find(key_);
      std::optional<std::string> value;
      if (slot.has_value()) value = std::string(view.pair(*slot).value);
      EXPECT_TRUE(history_->Found(key_, first_, value)) << key_ << " " << value.value_or("(none)");
      ++found_;
    }
    if (step == Walk::Step::kRestart) kept_.clear();  // What led to a meganode that is gone would do so again.
    walk_.reset();
  }

  uint64_t found() const { return found_; }

  static constexpr uint64_t kKeys = 1'000;
  static constexpr uint32_t kNodeBytes = 512;

 private:
  const std::vector<const RegionMemory*> memories_;
  History* history_;
  Random random_;
  std::string key_;
  size_t first_ = 0;
  std::optional<Walk> walk_;
  std::vector<std::byte> image_;
  std::map<uint64_t, std::vector<std::byte>> kept_;
  uint64_t found_ = 0;
};

// Returns eight readers, whose choices follow from `seed`.
inline std::vector<std::unique_ptr<Reader>> NewReaders(const std::vector<const RegionMemory*>& memories,
                                                       History* history, uint64_t seed) {
  std::vector<std::unique_ptr<Reader>> readers;
  for (uint64_t i = 0; i < 8; ++i) readers.push_back(std::make_unique<Reader>(memories, history, 100 * seed + i));
  return readers;
}

}  // namespace cell

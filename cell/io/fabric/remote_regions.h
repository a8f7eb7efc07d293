// RemoteRegions holds what a client knows of one server's regions, and the reads that wait until the server has said
// where a region is. `Access` says how to read a region: a mapping, or a memory key. Its member `bytes` is the region's
// size.
//
// Invariants
//   1. The server is asked for a region at most once until it answers.
//   2. A read that waits ends by Answer, Expire or Fail. After Fail the owner adds no more reads.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "cell/base/shared_words.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

template <typename Access>
class RemoteRegions {
 public:
  // Holds a read that waits for its regions.
  struct WaitingRead {
    std::vector<ReadPart> parts;
    int64_t deadline_ns;
    Completion* completion;
  };

  // Returns how to read a region, or null if that is not known (yet). Valid until the next Ask, Forget or Answer.
  const Access* Find(uint32_t region) const {
    const auto it = regions_.find(region);
    return it != regions_.end() && it->second.access.has_value() ? &*it->second.access : nullptr;
  }

  // Returns whether a part is inside a region and consists of whole words.
  static bool Holds(const Access& region, const ReadPart& part) {
    const uint64_t offset = part.from.offset();
    return offset <= region.bytes && part.bytes <= region.bytes - offset && (offset | part.bytes) % kWordBytes == 0;
  }

  enum class Readiness {
    kReady,
    kUnknown,  // The location of the part's region is not known (yet), so the read has to Wait.
    kOutside,  // Holds is false for the part, so the read fails.
  };
  // Returns whether a read can start, and the first part that prevents it. The part is null for kReady.
  std::pair<Readiness, const ReadPart*> Check(absl::Span<const ReadPart> parts) const {
    for (const ReadPart& part : parts) {
      const Access* const region = Find(part.from.region());
      if (region == nullptr) return {Readiness::kUnknown, &part};
      if (!Holds(*region, part)) return {Readiness::kOutside, &part};
    }
    return {Readiness::kReady, nullptr};
  }

  // Marks a region as asked for. Returns whether the server must be asked now; false if it has not answered yet.
  [[nodiscard]] bool Ask(uint32_t region) { return !std::exchange(regions_[region].asked, true); }

  // Forgets where a region is, so that the next read of it asks again.
  void Forget(uint32_t region) {
    const auto it = regions_.find(region);
    if (it != regions_.end() && !it->second.asked) regions_.erase(it);
  }

  // Adds a read that waits. Ask for its region after this: if that breaks the connection, Fail must find the read.
  void Wait(absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
    waiting_.push_back({{parts.begin(), parts.end()}, deadline_ns, completion});
  }
  bool waiting() const { return !waiting_.empty(); }

  // Takes the server's answer: how to read a region, or nullopt if the server does not hold it. Calls refuse(read) for
  // each waiting read of a region that is not held, and start(read) for all others, some of which may wait again.
  // Returns false if the region was not asked for, which means that the server is faulty.
  template <typename Refuse, typename Start>
  [[nodiscard]] bool Answer(uint32_t region, std::optional<Access> access, const Refuse& refuse, const Start& start) {
    const auto it = regions_.find(region);
    if (it == regions_.end() || !it->second.asked) return false;
    const bool held = access.has_value();
    it->second = {std::move(access), /*asked=*/false};
    // No iterator is used from here on: `start` may ask for other regions.
    std::vector<WaitingRead> waiting;
    waiting.swap(waiting_);
    for (const WaitingRead& read : waiting) {
      const auto names = [region](const ReadPart& part) { return part.from.region() == region; };
      if (!held && std::any_of(read.parts.begin(), read.parts.end(), names)) {
        refuse(read);
      } else {
        start(read);
      }
    }
    return true;
  }
  // Returns whether the server was asked for a region and has not answered.
  bool asked(uint32_t region) const {
    const auto it = regions_.find(region);
    return it != regions_.end() && it->second.asked;
  }

  // Calls tell(completion) for each waiting read whose deadline has passed, and forgets it. Returns the next deadline,
  // or INT64_MAX if there is none.
  template <typename Tell>
  int64_t Expire(int64_t now_ns, const Tell& tell) {
    int64_t next_ns = INT64_MAX;
    std::erase_if(waiting_, [&](const WaitingRead& read) {
      if (read.deadline_ns > now_ns) {
        next_ns = std::min(next_ns, read.deadline_ns);
        return false;
      }
      tell(read.completion);
      return true;
    });
    return next_ns;
  }

  // Ends all waiting reads when the connection is broken: calls tell(completion) for each.
  template <typename Tell>
  void Fail(const Tell& tell) {
    for (const WaitingRead& read : std::exchange(waiting_, {})) tell(read.completion);
  }

 private:
  struct Remote {
    std::optional<Access> access;
    bool asked = false;
  };

  absl::flat_hash_map<uint32_t, Remote> regions_;
  std::vector<WaitingRead> waiting_;
};

}  // namespace cell

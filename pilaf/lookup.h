// Lookup: the search for one key in a hash region, as a step machine without I/O (the thesis, Algorithm 1).
//
// It says what it wants to read; its driver reads all of that, in any order and at the same time, and hands the images
// to Visit; and so on until there is an answer. Reads that do not depend on each other are asked for together: all
// slots that may have the key; then the extents of those that look like it; and, before the key is called absent, the
// slots once more, and the header.
//
// The thesis reads slots one by one and then again all but the last: a key that was missed went from a slot that was
// read late to one that was read before, whose version tells. Read at the same time no slot is the last, so all are
// read again. See README.md for why that is enough.
//
// Not thread-safe. The key must outlive it, and the images of the last Visit what is done with value().
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "pilaf/hash_layout.h"

namespace cell {

class Lookup {
 public:
  static constexpr int kRestartsMax = 64;

  struct Options {
    // Else a key that is moved meanwhile may be called absent, as in the thesis without the extension.
    bool serializable = true;
    // For tests: how many slots are read again.
    int slots_confirmed = kProbes;
  };

  enum class Step {
    kRead,   // Fetch wants().
    kFound,  // value()
    kAbsent,
    kElsewhere,  // The region does not have the key's part of the table, or is gone.
    kGaveUp,     // Out of budget: what was read was torn each time.
  };
  struct Read {
    uint64_t offset;  // In the region; a multiple of 8.
    uint32_t bytes;   // Also.
  };

  Lookup(std::string_view key, const KeyHash& hash, const HashPlace& place, const Options& options);
  Lookup(std::string_view key, const KeyHash& hash, const HashPlace& place) : Lookup(key, hash, place, Options()) {}

  absl::Span<const Read> wants() const { return wants_; }
  // Of wants(), each whole.
  Step Visit(absl::Span<const ConstBytes> images);
  std::string_view value() const { return value_; }

  // How many reads were asked for, and why they had to be made again.
  struct Counters {
    int reads = 0, torn_slots = 0, torn_extents = 0, moved = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  enum class Phase { kSlots, kExtents, kConfirm };

  void Want(uint64_t offset, uint64_t bytes);
  Step ReadSlots(bool with_header);
  Step ReadExtents();
  Step Restart(int* why);
  // Nothing: not all of them are whole.
  bool ParseSlots(absl::Span<const ConstBytes> images, int count, std::array<HashSlot, kProbes>* slots) const;
  Step VisitSlots(absl::Span<const ConstBytes> images);
  Step VisitExtents(absl::Span<const ConstBytes> images);
  Step VisitConfirm(absl::Span<const ConstBytes> images);

  const std::string_view key_;
  const KeyHash hash_;
  const HashPlace place_;
  const Options options_;
  std::array<uint32_t, kProbes> at_;
  Phase phase_ = Phase::kSlots;
  std::vector<Read> wants_;
  std::array<HashSlot, kProbes> slots_{};
  std::vector<HashSlot> candidates_;  // Whose extents are wanted.
  int restarts_ = 0;
  std::string_view value_;
  Counters counters_;
};

}  // namespace cell

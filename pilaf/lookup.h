// Lookup: the search for one key in a hash region, as a step machine without I/O.
//
// It says what it wants to read; its driver reads all of that, in any order and at the same time, and hands the images
// to Visit; and so on until there is an answer. Reads that do not depend on each other are asked for together.
//
// Not thread-safe. The key must outlive it, and the images of the last Visit what is done with value().
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "pilaf/hash_layout.h"

namespace cell {

struct LookupOptions {
  // Else a key that is moved meanwhile may be called absent, as in the thesis without the extension.
  bool serializable = true;
  // For tests: how many slots are read again.
  int slots_confirmed = kProbes;
};

class Lookup {
 public:
  static constexpr int kRestartsMax = 64;

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

  virtual ~Lookup() = default;

  absl::Span<const Read> wants() const { return wants_; }
  // Of wants(), each whole.
  Step Visit(absl::Span<const ConstBytes> images);
  std::string_view value() const { return value_; }

  // How many reads were asked for, and why they had to be made again.
  struct Counters {
    int reads = 0, torn = 0, torn_extents = 0, moved = 0;
  };
  const Counters& counters() const { return counters_; }

 protected:
  Lookup(std::string_view key, const KeyHash& hash, const HashPlace& place, const LookupOptions& options)
      : key_(key), hash_(hash), place_(place), options_(options) {}

  // The first reads, after wants_ was cleared.
  virtual Step Begin() = 0;
  virtual Step VisitImages(absl::Span<const ConstBytes> images) = 0;

  void Want(uint64_t offset, uint64_t bytes) {
    wants_.push_back({offset, static_cast<uint32_t>(RoundUp(bytes, kWordBytes))});
    ++counters_.reads;
  }
  // From the beginning, with the header: a region that was invalidated has nothing whole any more. `why`: a counter.
  Step Restart(int* why);
  // Wants the extents of candidates_, and nothing else; and then what they are. Nothing: none is the key's.
  Step ReadExtents();
  std::optional<Step> VisitExtents(absl::Span<const ConstBytes> images);

  const std::string_view key_;
  const KeyHash hash_;
  const HashPlace place_;
  const LookupOptions options_;
  absl::InlinedVector<Read, kProbes + 1> wants_;
  absl::InlinedVector<HashSlot, kProbes> candidates_;  // What looks like the key's.
  std::string_view value_;
  Counters counters_;

 private:
  int restarts_ = 0;
  bool with_header_ = false;  // The last of wants_ is the header.
};

// For the layout of this place.
std::unique_ptr<Lookup> NewLookup(std::string_view key, const KeyHash& hash, const HashPlace& place,
                                  const LookupOptions& options = {});

}  // namespace cell

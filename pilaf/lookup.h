// Lookup searches for one key in a hash region, as a step machine without I/O.
//
// It says what it wants to read. Its driver makes all these reads, in any order or at the same time, and passes the
// images to Visit. This repeats until there is an answer. Reads that do not depend on each other are requested
// together.
//
// Not thread-safe. The key must outlive it. The images of the last Visit must outlive the use of value().
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
  // If false, a key that is moved meanwhile may be reported as absent, as in the thesis without the extension.
  bool serializable = true;
  // For tests: how many slots are read again.
  int slots_confirmed = kProbes;
};

class Lookup {
 public:
  static constexpr int kRestartsMax = 64;

  enum class Step {
    kRead,   // Fetch wants().
    kFound,  // The result is value().
    kAbsent,
    kElsewhere,  // The region does not have the key's part of the table, or is gone.
    kHeld,       // A transaction holds the key, or one beside it: only the owner can tell.
    kGaveUp,     // Out of budget: the images were torn each time.
  };
  struct Read {
    uint64_t offset;  // Offset in the region, a multiple of 8.
    uint32_t bytes;   // Also a multiple of 8.
  };

  virtual ~Lookup() = default;

  absl::Span<const Read> wants() const { return wants_; }
  // Continues with the images of wants(), each complete.
  Step Visit(absl::Span<const ConstBytes> images);
  std::string_view value() const { return pair_.value; }
  // Returns the expiry of the pair that was found. Whether it has expired is for the caller to decide.
  Expiry expiry() const { return pair_.expiry; }

  // Counts the reads that were requested, and why they had to be repeated.
  struct Counters {
    int reads = 0, torn = 0, torn_extents = 0, moved = 0;
  };
  const Counters& counters() const { return counters_; }

 protected:
  Lookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry, const LookupOptions& options)
      : key_(key), hash_(hash), geometry_(geometry), options_(options) {}

  // Requests the first reads. REQUIRES: wants_ is empty.
  virtual Step Begin() = 0;
  virtual Step VisitImages(absl::Span<const ConstBytes> images) = 0;

  void Want(uint64_t offset, uint64_t bytes) {
    wants_.push_back({offset, static_cast<uint32_t>(RoundUp(bytes, kWordBytes))});
    ++counters_.reads;
  }
  // Starts over and reads the header as well, because an invalidated region has no valid units. `why` is a counter.
  Step Restart(int* why);
  // ReadExtents requests the extents of candidates_ and nothing else. VisitExtents then checks them; it returns nullopt
  // if none belongs to the key.
  Step ReadExtents();
  std::optional<Step> VisitExtents(absl::Span<const ConstBytes> images);

  const std::string_view key_;
  const KeyHash hash_;
  const HashGeometry geometry_;
  const LookupOptions options_;
  absl::InlinedVector<Read, kProbes + 1> wants_;
  absl::InlinedVector<HashSlot, kProbes> candidates_;  // Slots that match the key.
  HashPair pair_;                                      // The pair that was found.
  Counters counters_;

 private:
  int restarts_ = 0;
  bool with_header_ = false;  // The last of wants_ is the header.
};

// Makes a lookup for the layout of this region.
std::unique_ptr<Lookup> NewLookup(std::string_view key, const KeyHash& hash, const HashGeometry& geometry,
                                  const LookupOptions& options = {});

}  // namespace cell

// LeavesAhead holds images of leaves that a scan will probably come to, so that one round of reads brings several of
// them.
//
// The parent of a leaf names the leaves beside it. They are guesses, because the parent may be older than they are: a
// scan uses an image only if the leaf before it leads there, and verifies it like every node that it reads. Internal to
// cell/client. Not thread-safe.
#pragma once

#include <deque>
#include <vector>

#include "cell/client/session/session.h"
#include "cell/tree/scan_position.h"

namespace cell {

class LeavesAhead {
 public:
  // Images are never more than these.
  static constexpr size_t kLeavesMax = 16;

  // The pool must outlive this.
  LeavesAhead(NodePool* pool, uint32_t node_bytes) : pool_(pool), node_bytes_(node_bytes) {}

  // Drops all images.
  void Clear() {
    leaves_.clear();
    asked_ = taken_ = 0;
  }
  // Plans to read `leaf`. REQUIRES: no image is left.
  void Plan(Pointer leaf);
  // Plans to read up to `count` leaves behind `leaf` in the position's direction, as far as `parent` names them and the
  // range has keys there. None, if `parent` is empty or does not name `leaf` as the leaf of the position.
  void PlanBehind(Pointer leaf, const NodeView& parent, const ScanPosition& position, size_t count);
  // Adds the reads of what is planned and not asked for yet. Returns their number. The images are there once these
  // reads are done.
  size_t AddReads(std::vector<ReadPart>* parts);

  // Returns the pointer to the leaf whose image Take gives next. Null: no image is left.
  Pointer next() const { return taken_ < leaves_.size() ? leaves_[taken_] : Pointer(); }
  // Exchanges the next image with that in `buffer`. REQUIRES: next() is not null.
  void Take(NodeBuffer* buffer) { buffers_[taken_++].Swap(buffer); }

 private:
  NodePool* const pool_;
  const uint32_t node_bytes_;
  std::vector<Pointer> leaves_;
  std::deque<NodeBuffer> buffers_;  // Of leaves_, in the same order; perhaps more.
  size_t asked_ = 0;                // How many of leaves_ AddReads has seen.
  size_t taken_ = 0;
};

}  // namespace cell

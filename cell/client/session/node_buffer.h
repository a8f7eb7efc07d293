// Provides buffers for nodes that a client reads. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "cell/layout/limits.h"
#include "cell/tree/node_view.h"

namespace cell {

// Allocates buffers of kNodeBytesMax. Deletes itself once it is released and all buffers were returned, because buffers
// may outlive their session.
class NodePool {
 public:
  std::byte* Take();
  void Give(std::byte* buffer);
  // Called when the session ends.
  void Release();

 private:
  ~NodePool();

  std::vector<std::byte*> free_;
  size_t taken_ = 0;
  bool released_ = false;
};

// A buffer for one node. The destructor returns it to the pool.
class NodeBuffer {
 public:
  explicit NodeBuffer(NodePool* pool) : pool_(pool), bytes_(pool_->Take()) {}
  ~NodeBuffer() { pool_->Give(bytes_); }
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;

  std::byte* data() { return bytes_; }
  static constexpr size_t size() { return kNodeBytesMax; }
  // Exchanges the contents of two buffers.
  void Swap(NodeBuffer* other) { std::swap(bytes_, other->bytes_); }

 private:
  NodePool* const pool_;
  std::byte* bytes_;
};

// The last nodes that a walk to a leaf has read.
struct WalkedLeaf {
  explicit WalkedLeaf(NodePool* pool) : buffer(pool), parent_buffer(pool) {}

  NodeBuffer buffer;
  NodeView leaf;  // The leaf, in `buffer`, after kArrived.
  NodeBuffer parent_buffer;
  NodeView parent;            // The leaf's parent, in `parent_buffer`. Empty if it does not exist, or is not kept.
  bool keeps_parent = false;  // Keep the parent, also if it comes from the cache.
  bool cached = false;        // True if the last node came from the cache.
};

}  // namespace cell

#include "cell/client/session/node_buffer.h"

#include <cstdlib>

namespace cell {

std::byte* NodePool::Take() {
  ++taken_;
  if (free_.empty()) return static_cast<std::byte*>(std::aligned_alloc(64, kNodeBytesMax));
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void NodePool::Give(std::byte* buffer) {
  free_.push_back(buffer);
  --taken_;
  if (released_ && taken_ == 0) delete this;
}

void NodePool::Release() {
  released_ = true;
  if (taken_ == 0) delete this;
}

NodePool::~NodePool() {
  for (std::byte* const buffer : free_) std::free(buffer);
}

}  // namespace cell

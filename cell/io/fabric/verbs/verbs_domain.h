// VerbsDomain holds what all connections of one endpoint share on one device: the protection domain, the completion
// queue, the shared receive queue with its buffers, send buffers, and the registered regions. Internal to VerbsFabric.
//
// Each connection takes kReceivesPerLink receive buffers of kChunkBytes (76 KB). Send buffers come from a pool that
// grows with the number in use, up to kSendChunksMax.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/fabric/verbs/verbs_objects.h"
#include "cell/io/memory/shm_memory.h"

namespace cell {

// Memory that a device may read and write, aligned to pages.
struct RegisteredMemory {
  std::unique_ptr<std::byte[], void (*)(std::byte*)> bytes{
      nullptr, [](std::byte* memory) { ::operator delete[](memory, std::align_val_t(4096)); }};
  MemoryRegistration registration;

  static absl::StatusOr<RegisteredMemory> Make(ibv_pd* pd, size_t bytes);
};

// Marks the wr_id of a receive; the other bits are the buffer's number.
inline constexpr uint64_t kReceiveTag = uint64_t{1} << 63;

// Limits the completions that are handled before their buffers can be used for receives again. Their credits may be
// returned earlier, so there are this many more buffers than credits.
inline constexpr uint32_t kCompletionsAtOnce = 64;

class VerbsDomain {
 public:
  static constexpr uint32_t kChunksPerSlab = 256;
  static constexpr uint32_t kSendChunksMax = 4096;  // 16 MB

  // Opens a domain for up to `links_max` connections, or fewer if the device has less room.
  static absl::StatusOr<std::unique_ptr<VerbsDomain>> Open(ibv_context* context, size_t links_max);

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_srq* srq() const { return srq_.get(); }
  int events_fd() const { return channel_->fd; }
  uint8_t reads_max() const { return reads_max_; }  // In flight, per connection.

  // Reserves room for one more connection with up to `sends` sends in flight. Returns ResourceExhausted if the device
  // has none.
  absl::Status AddLink(uint32_t sends);
  void RemoveLink(uint32_t sends);

  // Receive buffers, by their number.
  const std::byte* received(uint32_t chunk) const { return receive_slabs_.at(chunk); }
  // Frees a buffer whose bytes were used. The next PostReceives makes it available for receives again.
  void Free(uint32_t chunk);
  void PostReceives();

  // Send buffers. TakeSendChunk returns null bytes if none is free.
  struct SendChunk {
    std::byte* bytes = nullptr;
    uint32_t number = 0;
    uint32_t key = 0;
  };
  SendChunk TakeSendChunk();
  void GiveSendChunk(uint32_t number) { free_sends_.push_back(number); }
  // Returns whether so many send buffers are in use that each further one must come back by itself. (Sends that ask for
  // no completion keep theirs until a later send of the same connection completes. A connection that stops sending
  // keeps them indefinitely.)
  bool send_chunks_scarce() const { return send_slabs_.chunks() - free_sends_.size() > kSendChunksMax / 2; }

  // Registers a region's memory if it is not registered.
  absl::Status Register(const ShmMemory& memory);
  // Returns null if the memory is not registered.
  const ibv_mr* Find(const ShmMemory& memory) const {
    const auto it = regions_.find(memory.base());
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // Requests an event for the next completion.
  void RequestEvent() { (void)::ibv_req_notify_cq(cq_.get(), 0); }
  void TakeEvents();

 private:
  class Slabs {
   public:
    std::byte* at(uint32_t chunk) const {
      return slabs_[chunk / kChunksPerSlab].bytes.get() + chunk % kChunksPerSlab * kChunkBytes;
    }
    uint32_t key(uint32_t chunk) const { return slabs_[chunk / kChunksPerSlab].registration->lkey; }
    uint32_t chunks() const { return static_cast<uint32_t>(slabs_.size()) * kChunksPerSlab; }
    absl::Status Grow(ibv_pd* pd, std::vector<uint32_t>* fresh);

   private:
    std::vector<RegisteredMemory> slabs_;
  };

  explicit VerbsDomain(ibv_context* context) : context_(context) {}

  ibv_context* const context_;
  ProtectionDomain pd_;
  CompletionChannel channel_;
  CompletionQueue cq_;
  SharedReceiveQueue srq_;
  uint8_t reads_max_ = 1;
  uint32_t completions_max_ = 0;
  uint32_t receives_max_ = 0;
  uint32_t completions_wanted_ = kCompletionsAtOnce;
  uint32_t receives_wanted_ = kCompletionsAtOnce;
  uint32_t receives_posted_ = 0;  // Includes those that are about to be posted.
  Slabs receive_slabs_, send_slabs_;
  std::vector<uint32_t> free_receives_, free_sends_, to_post_;
  absl::flat_hash_map<const std::byte*, MemoryRegistration> regions_;
};

}  // namespace cell

// VerbsDomain: what all connections of one endpoint share on one device. The protection domain, the completion queue,
// the shared receive queue with its buffers, buffers to send from, and the registered regions. Internal to VerbsFabric.
//
// Memory, per connection: kReceivesPerLink receive buffers of kChunkBytes (76 KB). Send buffers are taken from a pool
// that grows to kSendChunksMax as they are used at once.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "cell/io/fabric/verbs/verbs_messages.h"
#include "cell/io/fabric/verbs/verbs_objects.h"
#include "cell/io/memory/shm_memory.h"

namespace cell {

// Memory for a device to read and write, aligned to pages.
struct RegisteredMemory {
  std::unique_ptr<std::byte[], void (*)(std::byte*)> bytes{
      nullptr, [](std::byte* memory) { ::operator delete[](memory, std::align_val_t(4096)); }};
  MemoryRegistration registration;

  static absl::StatusOr<RegisteredMemory> Make(ibv_pd* pd, size_t bytes);
};

// Of a receive's wr_id: the rest is the buffer's number.
inline constexpr uint64_t kReceiveTag = uint64_t{1} << 63;

// Completions that are handled before their buffers can be received into again. Credits for them may be told earlier,
// so there are so many buffers more than credits.
inline constexpr uint32_t kCompletionsAtOnce = 64;

class VerbsDomain {
 public:
  static constexpr uint32_t kChunksPerSlab = 256;
  static constexpr uint32_t kSendChunksMax = 4096;  // 16 MB

  // For up to `links_max` connections, if the device has room for so many.
  static absl::StatusOr<std::unique_ptr<VerbsDomain>> Open(ibv_context* context, size_t links_max);

  ibv_context* context() const { return context_; }
  ibv_pd* pd() const { return pd_.get(); }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_srq* srq() const { return srq_.get(); }
  int events_fd() const { return channel_->fd; }
  uint8_t reads_max() const { return reads_max_; }  // In flight, of one connection.

  // Room for one connection more that has up to `sends` sends in flight. ResourceExhausted: the device has none.
  absl::Status AddLink(uint32_t sends);
  void RemoveLink(uint32_t sends);

  // Receive buffers, by their number.
  const std::byte* received(uint32_t chunk) const { return receive_slabs_.at(chunk); }
  // Its bytes were used: it may be received into again, after the next PostReceives.
  void Free(uint32_t chunk);
  void PostReceives();

  // Send buffers. Null: none is free.
  struct SendChunk {
    std::byte* bytes = nullptr;
    uint32_t number = 0;
    uint32_t key = 0;
  };
  SendChunk TakeSendChunk();
  void GiveSendChunk(uint32_t number) { free_sends_.push_back(number); }
  // So many are in use that each that is taken must come back by itself. (Sends that ask for no completion keep theirs
  // until a later one of the same connection does; a connection that falls silent keeps them for good.)
  bool send_chunks_scarce() const { return send_slabs_.chunks() - free_sends_.size() > kSendChunksMax / 2; }

  // Registers a region's memory, once.
  absl::Status Register(const ShmMemory& memory);
  // Null: it is not.
  const ibv_mr* Find(const ShmMemory& memory) const {
    const auto it = regions_.find(memory.base());
    return it == regions_.end() ? nullptr : it->second.get();
  }

  // Asks to be woken by the next completion.
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
  uint32_t receives_posted_ = 0;  // With those that are about to be.
  Slabs receive_slabs_, send_slabs_;
  std::vector<uint32_t> free_receives_, free_sends_, to_post_;
  absl::flat_hash_map<const std::byte*, MemoryRegistration> regions_;
};

}  // namespace cell

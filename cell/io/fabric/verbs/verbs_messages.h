// What verbs_fabric sends over a connection, and the two decisions in it that need no hardware: credits, and messages
// put together from chunks.
//
// A message goes as chunks, each one SEND into one receive buffer of the peer. Buffers come from a receive queue that
// all of a worker's connections share, so a sender needs a credit for each chunk: at first kCredits; each chunk of the
// other direction gives some back. So no peer can use up the buffers that others count on. A side that has received
// much and sends nothing tells its credits by a message of their own, for which every receiver keeps kCreditMessages
// buffers more: such a message gives back at least half, so more than that are never under way.
#pragma once

#include <cstdint>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/layout/wire.h"

namespace cell {

enum class MessageType : uint8_t {
  kHandshake = 1,
  kCall = 2,
  kReply = 3,
  kAskRegion = 4,  // id: the region. No bytes.
  kRegion = 5,     // id: the region. RegionKey, or no bytes: it is not held.
  kCredits = 6,    // Nothing but what the header gives back. Takes no credit itself.
};

struct ChunkHeader {
  MessageType type;
  uint8_t reserved;
  uint16_t credits;        // Given back.
  uint32_t message_bytes;  // Of the whole message; at most kMessageBytesMax.
  uint32_t offset;         // Of this chunk in it.
  uint32_t reply_bytes_max;
  uint64_t id;
};
static_assert(sizeof(ChunkHeader) == 24);

struct RegionKey {
  uint64_t address;
  uint64_t bytes;
  uint32_t key;
  uint32_t reserved;
};
static_assert(sizeof(RegionKey) == 24);

inline constexpr size_t kChunkBytes = 4096;
inline constexpr size_t kChunkPayloadMax = kChunkBytes - sizeof(ChunkHeader);
inline constexpr uint32_t kCredits = 16;
inline constexpr uint32_t kCreditMessages = 3;
inline constexpr uint32_t kReceivesPerLink = kCredits + kCreditMessages;

// One connection's credits, both directions.
class CreditWindow {
 public:
  bool CanSend() const { return credits_ > 0; }
  void Sent() { --credits_; }

  // A chunk has come. False: the peer gave back what it never had, or sent without credit.
  bool Received(const ChunkHeader& header) {
    credits_ += header.credits;
    if (credits_ > kCredits) return false;
    if (header.type == MessageType::kCredits) return header.credits > 0;
    return ++held_ <= kCredits;
  }
  // So many chunks' buffers are free again.
  void Freed(uint32_t chunks) { owed_ += chunks; }
  // Whether the peer should be told, though there is nothing else to say.
  bool ShouldTell() const { return owed_ >= kCredits / 2; }
  // What the next chunk gives back.
  uint16_t TakeOwed() {
    const uint32_t owed = owed_;
    owed_ = 0;
    held_ -= owed;
    return static_cast<uint16_t>(owed);
  }

 private:
  uint32_t credits_ = kCredits;  // Chunks that may be sent.
  uint32_t held_ = 0;            // Chunks of the peer whose credit it has not got back...
  uint32_t owed_ = 0;            // ...and of them those that may be given.
};

// Puts a connection's chunks together.
class MessageAssembler {
 public:
  enum class State { kMore, kWhole, kNonsense };
  struct Message {
    ChunkHeader header;
    ConstBytes bytes;  // In the chunk or here, until the next Take.
  };

  // `chunk`: as received, header first. Whatever a header says, no more is kept than what came.
  State Take(ConstBytes chunk, Message* message) {
    if (chunk.size() < sizeof(ChunkHeader)) return State::kNonsense;
    const auto header = Load<ChunkHeader>(chunk.data());
    const ConstBytes payload = chunk.subspan(sizeof(ChunkHeader));
    if (header.type == MessageType::kCredits) {  // It may come in the midst of another message.
      *message = {header, {}};
      return payload.empty() && header.message_bytes == 0 && header.offset == 0 ? State::kWhole : State::kNonsense;
    }
    const bool first = bytes_.empty();
    if (header.message_bytes > kMessageBytesMax || header.offset != bytes_.size() ||
        payload.size() > header.message_bytes - header.offset ||
        (payload.empty() && header.message_bytes != header.offset) || (!first && !SameMessage(header))) {
      return State::kNonsense;
    }
    *message = {header, payload};
    if (first && payload.size() == header.message_bytes) return State::kWhole;
    first_ = header;
    bytes_.insert(bytes_.end(), payload.begin(), payload.end());
    if (bytes_.size() < header.message_bytes) return State::kMore;
    whole_.swap(bytes_);
    bytes_.clear();
    message->bytes = whole_;
    return State::kWhole;
  }

 private:
  bool SameMessage(const ChunkHeader& header) const {
    return header.type == first_.type && header.id == first_.id && header.message_bytes == first_.message_bytes &&
           header.reply_bytes_max == first_.reply_bytes_max;
  }

  ChunkHeader first_{};
  std::vector<std::byte> bytes_;  // Of a message that is not whole.
  std::vector<std::byte> whole_;
};

}  // namespace cell

// Defines the messages that VerbsFabric sends over a connection, and the two parts that need no hardware: credits, and
// assembling messages from chunks.
//
// A message is sent as chunks. Each is one SEND into one receive buffer of the peer. Buffers come from a receive queue
// that all of a worker's connections share, so a sender needs a credit for each chunk. It starts with kCredits, and
// chunks of the other direction return some. So no peer can use up the buffers that others rely on. A side that has
// received much and sends nothing returns its credits in a message of their own. Each receiver reserves kCreditMessages
// buffers for such messages. That is enough, because each returns at least half of the credits.
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
  kRegion = 5,     // id: the region. Carries a RegionKey, no bytes if the region is not held, or one byte if
                   // the peer may not read regions.
  kCredits = 6,    // Only returns credits, in the header. Needs no credit itself.
};

struct ChunkHeader {
  MessageType type;
  uint8_t reserved;
  uint16_t credits;        // Credits returned.
  uint32_t message_bytes;  // Size of the whole message; at most kMessageBytesMax.
  uint32_t offset;         // Offset of this chunk in the message.
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

// Counts one connection's credits, in both directions.
class CreditWindow {
 public:
  bool CanSend() const { return credits_ > 0; }
  void Sent() { --credits_; }

  // Records a received chunk. Returns false if the peer returned credits that it never had, or sent without credit.
  bool Received(const ChunkHeader& header) {
    credits_ += header.credits;
    if (credits_ > kCredits) return false;
    if (header.type == MessageType::kCredits) return header.credits > 0;
    return ++held_ <= kCredits;
  }
  // Records that the buffers of `chunks` chunks are free again.
  void Freed(uint32_t chunks) { owed_ += chunks; }
  // Returns whether to return credits to the peer though there is no message to send.
  bool ShouldTell() const { return owed_ >= kCredits / 2; }
  // Returns the credits that the next chunk returns.
  uint16_t TakeOwed() {
    const uint32_t owed = owed_;
    owed_ = 0;
    held_ -= owed;
    return static_cast<uint16_t>(owed);
  }

 private:
  uint32_t credits_ = kCredits;  // Chunks that may be sent.
  uint32_t held_ = 0;            // Chunks of the peer whose credits were not returned yet...
  uint32_t owed_ = 0;            // ...and the number of those that may be returned.
};

// Assembles a connection's messages from chunks.
class MessageAssembler {
 public:
  enum class State { kMore, kWhole, kNonsense };
  struct Message {
    ChunkHeader header;
    ConstBytes bytes;  // In the chunk or in this object, valid until the next Take.
  };

  // Takes a received chunk, header first. Never keeps more bytes than came, whatever a header says.
  State Take(ConstBytes chunk, Message* message) {
    if (chunk.size() < sizeof(ChunkHeader)) return State::kNonsense;
    const auto header = Load<ChunkHeader>(chunk.data());
    const ConstBytes payload = chunk.subspan(sizeof(ChunkHeader));
    if (header.type == MessageType::kCredits) {  // It may come in the middle of another message.
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
  std::vector<std::byte> bytes_;  // Bytes of a message that is not complete.
  std::vector<std::byte> whole_;
};

}  // namespace cell

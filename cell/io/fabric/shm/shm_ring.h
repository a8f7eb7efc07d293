// A ring of messages in shared memory: one process writes, one reads (after FaRM's ring buffers, NSDI 2014, 3.1).
//
// Neither side trusts the other. Each keeps its own position in private memory and only publishes it. It checks what it
// reads from the other side (position, message header). Anything impossible is reported as damage, and the connection
// is closed.
//
//   [RingControl][bytes: frames, each RingFrame and message, padded to 16]
//
// A frame never wraps. A frame that does not fit before the end is preceded by a frame with bytes = kWrap.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

#include "cell/base/bytes.h"
#include "cell/base/check.h"

namespace cell {

struct RingControl {
  alignas(64) std::atomic<uint64_t> written;   // Set by the writer: total bytes of whole frames.
  alignas(64) std::atomic<uint64_t> consumed;  // Set by the reader.
  alignas(64) std::atomic<uint32_t> sleeping;  // Set by the reader: ring after writing. The writer clears it.
};
static_assert(sizeof(RingControl) == 192);

struct RingFrame {
  uint32_t bytes;            // Size of the message. kWrap: continue at the ring's start.
  uint32_t reply_bytes_max;  // For requests: the room that is kept for the reply.
  uint64_t id;
};

inline constexpr size_t kFrameAlign = 16;
inline constexpr uint32_t kWrap = 0xffffffff;

constexpr size_t FrameBytes(size_t message_bytes) { return RoundUp(sizeof(RingFrame) + message_bytes, kFrameAlign); }

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(RingControl* control, std::byte* bytes, size_t capacity)
      : control_(control), bytes_(bytes), capacity_(capacity) {}

  // Returns room for a message of up to `message_bytes`, or null if the ring is full or damaged. Publishes nothing.
  std::byte* Begin(size_t message_bytes) {
    const size_t frame_bytes = FrameBytes(message_bytes);
    size_t at = written_ % capacity_;
    const size_t to_end = capacity_ - at;
    const size_t needed = frame_bytes <= to_end ? frame_bytes : to_end + frame_bytes;
    if (!HasRoom(needed)) return nullptr;
    if (frame_bytes > to_end) {
      Store(bytes_ + at, RingFrame{kWrap, 0, 0});
      written_ += to_end;
      at = 0;
    }
    return bytes_ + at + sizeof(RingFrame);
  }
  // Ends the message that Begin began. `message_bytes` is its real size, at most that passed to Begin.
  void End(size_t message_bytes, uint64_t id, uint32_t reply_bytes_max) {
    Store(bytes_ + written_ % capacity_, RingFrame{static_cast<uint32_t>(message_bytes), reply_bytes_max, id});
    written_ += FrameBytes(message_bytes);
  }
  bool unpublished() const { return published_ != written_; }
  // Makes all ended messages visible. Returns whether to ring: the reader sleeps, and this is the first call since it
  // said so. Sequentially consistent with RingReader::Sleep, so that one of the two sides sees the other.
  bool Publish() {
    published_ = written_;
    control_->written.store(written_, std::memory_order_seq_cst);
    return control_->sleeping.load(std::memory_order_seq_cst) != 0 &&
           control_->sleeping.exchange(0, std::memory_order_seq_cst) != 0;
  }

 private:
  bool HasRoom(size_t needed) {
    if (written_ - consumed_ + needed <= capacity_) return true;
    const uint64_t consumed = control_->consumed.load(std::memory_order_acquire);
    if (consumed < consumed_ || consumed > written_)
      return false;  // The ring is damaged: there will never be more
                     // room.
    consumed_ = consumed;
    return written_ - consumed_ + needed <= capacity_;
  }

  RingControl* control_ = nullptr;
  std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  uint64_t written_ = 0;
  uint64_t published_ = 0;
  uint64_t consumed_ = 0;  // As last seen.
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingControl* control, const std::byte* bytes, size_t capacity, size_t message_bytes_max)
      : control_(control), bytes_(bytes), capacity_(capacity), message_bytes_max_(message_bytes_max) {}

  struct Message {
    RingFrame frame;
    const std::byte* bytes;  // Points into the ring, where the writer can still change it. Copy, then parse.
  };

  bool HasMore() const {
    if (written_ != consumed_) return true;
    written_ = control_->written.load(std::memory_order_acquire);
    return written_ != consumed_;
  }

  // Returns the next message, or nullopt if there is none or the ring is damaged.
  std::optional<Message> Next() {
    while (HasMore()) {
      const size_t at = consumed_ % capacity_;
      const uint64_t available = written_ - consumed_;
      if (available > capacity_ || available % kFrameAlign != 0 || available < sizeof(RingFrame)) return Damaged();
      const auto frame = Load<RingFrame>(bytes_ + at);
      if (frame.bytes == kWrap) {
        if (capacity_ - at > available) return Damaged();
        consumed_ += capacity_ - at;
        continue;
      }
      if (frame.bytes > message_bytes_max_ || FrameBytes(frame.bytes) > available ||
          FrameBytes(frame.bytes) > capacity_ - at) {
        return Damaged();
      }
      consumed_ += FrameBytes(frame.bytes);
      return Message{frame, bytes_ + at + sizeof(RingFrame)};
    }
    return std::nullopt;
  }
  // Returns the room of all messages taken so far to the writer.
  void Release() {
    if (released_ == consumed_) return;
    released_ = consumed_;
    control_->consumed.store(consumed_, std::memory_order_release);
  }
  bool damaged() const { return damaged_; }

  // Tells the writer to ring. Returns true if there is something to read already.
  bool Sleep() {
    control_->sleeping.store(1, std::memory_order_seq_cst);
    return control_->written.load(std::memory_order_seq_cst) != consumed_;
  }
  void Wake() { control_->sleeping.store(0, std::memory_order_relaxed); }

 private:
  std::optional<Message> Damaged() {
    damaged_ = true;
    return std::nullopt;
  }

  RingControl* control_ = nullptr;
  const std::byte* bytes_ = nullptr;
  size_t capacity_ = 0;
  size_t message_bytes_max_ = 0;
  uint64_t consumed_ = 0;
  uint64_t released_ = 0;
  mutable uint64_t written_ = 0;  // As last seen.
  bool damaged_ = false;
};

}  // namespace cell

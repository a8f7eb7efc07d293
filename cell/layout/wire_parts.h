// Holds what makes and parses messages from their parts. Internal to cell/layout.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/base/bytes.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

// Takes pieces off the front of a message. Once a piece is missing, all later pieces are missing too.
class Cursor {
 public:
  explicit Cursor(ConstBytes bytes) : left_(bytes) {}

  template <typename T>
  T Take() {
    if (left_.size() < sizeof(T)) {
      ok_ = false;
      return T{};
    }
    const T value = Load<T>(left_.data());
    left_.remove_prefix(sizeof(T));
    return value;
  }

  std::string_view TakeText(size_t bytes) {
    if (!ok_ || left_.size() < bytes) {
      ok_ = false;
      return {};
    }
    const std::string_view text = AsText(left_.subspan(0, bytes));
    left_.remove_prefix(bytes);
    return text;
  }

  bool ok() const { return ok_; }
  bool ended() const { return ok_ && left_.empty(); }
  size_t left() const { return left_.size(); }

 private:
  ConstBytes left_;
  bool ok_ = true;
};

inline absl::Status BadRequest(MessageKind kind, size_t bytes) {
  return absl::InvalidArgumentError(
      fmt::format("malformed request of kind {} ({} bytes)", static_cast<int>(kind), bytes));
}

inline absl::Status BadReply(MessageKind kind, size_t bytes) {
  return absl::DataLossError(
      fmt::format("malformed reply to a request of kind {} ({} bytes)", static_cast<int>(kind), bytes));
}

// Returns whether the reply header fits the request and the bytes.
inline bool FitsReply(ConstBytes message, MessageKind kind) {
  if (message.size() < sizeof(ReplyHeader)) return false;
  const auto header = Load<ReplyHeader>(message.data());
  // A request that could not be read is refused without its kind. Most likely it has another version.
  const bool refused = header.kind == MessageKind{} && header.code != 0;
  return (header.kind == kind || refused) && header.bytes == message.size();
}

// Returns the server's error, or DataLoss unless the reply header fits the request and the bytes.
inline absl::Status CheckReply(ConstBytes message, MessageKind kind) {
  if (!FitsReply(message, kind)) return BadReply(kind, message.size());
  const auto header = Load<ReplyHeader>(message.data());
  if (header.code == 0) return absl::OkStatus();
  const std::string_view text = AsText(message.subspan(sizeof(ReplyHeader)));
  return absl::Status(static_cast<absl::StatusCode>(header.code), {text.data(), text.size()});
}

// Makes a request of its fixed part and what follows it. `more_bytes` of it are sent from elsewhere.
template <typename T>
std::string WithFixed(T fixed, size_t more_bytes, std::initializer_list<std::string_view> parts) {
  size_t bytes = sizeof(T) + more_bytes;
  for (std::string_view part : parts) bytes += part.size();
  fixed.header.version = kWireVersion;
  fixed.header.bytes = static_cast<uint32_t>(bytes);
  std::string message;
  message.reserve(bytes - more_bytes);
  message.append(reinterpret_cast<const char*>(&fixed), sizeof(T));
  for (std::string_view part : parts) message.append(part);
  return message;
}

}  // namespace cell

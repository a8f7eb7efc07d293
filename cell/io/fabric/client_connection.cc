#include "cell/io/fabric/client_connection.h"

namespace cell {

void ClientConnection::BeginBreak(std::string_view why) {
  CELL_CHECK(!broken());
  state_ = State::kBroken;
  lost_ = absl::UnavailableError(fmt::format("connection to {}: {}", address_, why));
}

absl::Status ClientConnection::Refusal(const ClientConnection* connection) {
  if (connection != nullptr && connection->broken()) return connection->lost_;
  return absl::UnavailableError("not connected");
}

absl::Status ClientConnection::OutcomeUnknown() const { return absl::UnknownError(lost_.message()); }

absl::Status ClientConnection::LateCall() const {
  return absl::DeadlineExceededError(fmt::format("no answer from {} in time", address_));
}

absl::Status ClientConnection::LateRead() const {
  return absl::DeadlineExceededError(fmt::format("no reply to a read from {} in time", address_));
}

absl::Status ClientConnection::Outside(const ReadPart& part) const {
  return absl::OutOfRangeError(
      fmt::format("read of {} bytes at {} is outside the regions of {}", part.bytes, ToString(part.from), address_));
}

absl::Status ClientConnection::NotHeld(uint32_t region) const {
  return absl::OutOfRangeError(fmt::format("region {} is not held by the server at {}", region, address_));
}

absl::Status ClientConnection::MayNotRead() const {
  return absl::PermissionDeniedError(fmt::format(
      "the server at {} lets this client read no memory: that takes a grant of scan for everything", address_));
}

}  // namespace cell

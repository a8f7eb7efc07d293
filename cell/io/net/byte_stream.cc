#include "cell/io/net/byte_stream.h"

#include <algorithm>

#include "cell/io/net/tcp_socket.h"

namespace cell {
namespace {

constexpr size_t kSendAtOnce = size_t{16} << 10;  // One record.

}  // namespace

bool ByteStream::Receive(MutableBytes scratch, ByteQueue* to) {
  if (tls_ == nullptr) return ReceiveSome(socket_.get(), scratch, to);
  for (size_t received = 0; received < scratch.size() || tls_->pending() > 0;) {
    const absl::StatusOr<std::optional<size_t>> bytes = tls_->Receive(scratch);
    if (!bytes.ok()) why_ = std::string(bytes.status().message());
    if (!bytes.ok() || *bytes == 0) return false;
    if (!bytes->has_value()) return true;
    to->Append(scratch.first(**bytes));
    received += **bytes;
  }
  return true;
}

bool ByteStream::Send(ByteQueue* from) {
  if (tls_ == nullptr) return SendSome(socket_.get(), from);
  while (!from->empty()) {
    const absl::StatusOr<std::optional<size_t>> bytes =
        tls_->Send(ConstBytes(from->data(), std::min(from->size(), kSendAtOnce)));
    if (!bytes.ok()) return false;
    if (!bytes->has_value()) return true;
    from->Consume(**bytes);
  }
  return true;
}

}  // namespace cell

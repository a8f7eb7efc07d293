#include "cell/server/request/uploads.h"

#include <algorithm>

#include "cell/base/status_macros.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"

namespace cell {
namespace {

absl::Status Dropped() {
  return absl::UnavailableError(
      "the upload was discarded, because it was idle for too long or other uploads needed its memory; nothing was "
      "written");
}

}  // namespace

absl::Status Uploads::Add(ConnectionId peer, uint16_t number, uint32_t offset, std::string_view piece, int64_t now_ns) {
  if (offset == 0 && piece.empty()) {
    Forget(peer, number);
    return absl::OkStatus();
  }
  Peer& its = peers_[peer];
  Upload& upload = its.uploads[number - 1];
  if (offset == 0) {
    Clear(&its, &upload);
    upload.dropped = false;
  }
  if (upload.dropped) return Dropped();
  if (offset != upload.bytes.size()) {
    return absl::InvalidArgumentError(
        fmt::format("the upload must continue at byte {}, not at {}", upload.bytes.size(), offset));
  }
  RETURN_IF_ERROR(MakeRoom(peer, piece.size()));
  upload.bytes.append(piece);
  upload.grown_ns = now_ns;
  its.bytes += piece.size();
  bytes_ += piece.size();
  oldest_ns_ = std::min(oldest_ns_, now_ns);
  return absl::OkStatus();
}

absl::Status Uploads::MakeRoom(ConnectionId peer, size_t bytes) {
  while (bytes_ + bytes > limits_.bytes_max) {
    const auto holds = [](const auto& one) { return one.second.bytes > 0 ? 1 : 0; };
    size_t holders = 0;
    Peer* most = nullptr;
    for (auto& one : peers_) {
      holders += one.first == peer ? 1 : holds(one);
      if (most == nullptr || one.second.bytes > most->bytes) most = &one.second;
    }
    // A value fits into a share if all shares together fit.
    const size_t share = std::max(limits_.bytes_max / holders, std::min(kValueBytesMax, limits_.bytes_max));
    if (peers_[peer].bytes + bytes > share || most->bytes <= share) {
      return absl::ResourceExhaustedError("too many large values are being uploaded to this server: try again");
    }
    Upload* idle = nullptr;
    for (Upload& upload : most->uploads) {
      if (!upload.bytes.empty() && (idle == nullptr || upload.grown_ns < idle->grown_ns)) idle = &upload;
    }
    Drop(most, idle);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Uploads::Find(ConnectionId peer, uint16_t number, size_t bytes) const {
  const auto its = peers_.find(peer);
  if (its != peers_.end() && its->second.uploads[number - 1].dropped) return Dropped();
  const std::string_view value = its == peers_.end() ? std::string_view() : its->second.uploads[number - 1].bytes;
  if (value.size() == bytes) return value;
  return absl::InvalidArgumentError(fmt::format("only {} of {} bytes of the value were uploaded", value.size(), bytes));
}

void Uploads::Forget(ConnectionId peer, uint16_t number) {
  const auto its = peers_.find(peer);
  if (its == peers_.end()) return;
  Clear(&its->second, &its->second.uploads[number - 1]);
  its->second.uploads[number - 1].dropped = false;
  const auto& uploads = its->second.uploads;
  const bool any = std::any_of(uploads.begin(), uploads.end(),
                               [](const Upload& upload) { return upload.dropped || !upload.bytes.empty(); });
  if (!any) peers_.erase(its);
}

void Uploads::Forget(ConnectionId peer) {
  const auto its = peers_.find(peer);
  if (its == peers_.end()) return;
  bytes_ -= its->second.bytes;
  peers_.erase(its);
}

void Uploads::Expire(int64_t now_ns) {
  if (oldest_ns_ == INT64_MAX || now_ns - oldest_ns_ < limits_.idle_ns) return;
  oldest_ns_ = INT64_MAX;
  for (auto& [id, peer] : peers_) {
    for (Upload& upload : peer.uploads) {
      if (upload.bytes.empty()) continue;
      if (now_ns - upload.grown_ns >= limits_.idle_ns) {
        Drop(&peer, &upload);
      } else {
        oldest_ns_ = std::min(oldest_ns_, upload.grown_ns);
      }
    }
  }
}

size_t Uploads::capacity() const {
  size_t bytes = 0;
  for (const auto& [id, peer] : peers_) {
    for (const Upload& upload : peer.uploads) bytes += upload.bytes.capacity();
  }
  return bytes;
}

void Uploads::Drop(Peer* peer, Upload* upload) {
  Clear(peer, upload);
  upload->dropped = true;
  ++dropped_;
}

void Uploads::Clear(Peer* peer, Upload* upload) {
  peer->bytes -= upload->bytes.size();
  bytes_ -= upload->bytes.size();
  std::string().swap(upload->bytes);  // An assignment would keep the memory.
}

}  // namespace cell

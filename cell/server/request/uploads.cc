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

absl::Status Uploads::Add(std::string_view user, ConnectionId peer, uint16_t number, uint32_t offset,
                          std::string_view piece, int64_t now_ns) {
  if (offset == 0 && piece.empty()) {
    Forget(peer, number);
    return absl::OkStatus();
  }
  Peer& its = peers_[peer];
  its.user = user;
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
    Peer* const most = InTheWayOf(peers_[peer], bytes);
    if (most == nullptr) {
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

Uploads::Peer* Uploads::InTheWayOf(const Peer& peer, size_t bytes) {
  std::map<std::string_view, size_t> by_user = {{peer.user, 0}};
  for (const auto& [id, one] : peers_) {
    if (one.bytes > 0) by_user[one.user] += one.bytes;
  }
  // A value fits into a share if all shares together fit.
  const auto share_of = [](size_t all, size_t holders) {
    return std::max(all / holders, std::min(kValueBytesMax, all));
  };
  const auto heaviest_of = [this](std::string_view user) {
    Peer* most = nullptr;
    for (auto& [id, one] : peers_) {
      if (one.user == user && (most == nullptr || one.bytes > most->bytes)) most = &one;
    }
    return most;
  };
  const size_t share = share_of(limits_.bytes_max, by_user.size());
  if (by_user[peer.user] + bytes <= share) {
    const auto most = std::max_element(by_user.begin(), by_user.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most->second > share ? heaviest_of(most->first) : nullptr;
  }
  // The user has its share. Its connections share it.
  size_t connections = 0;
  for (const auto& [id, one] : peers_) connections += one.user == peer.user && (one.bytes > 0 || &one == &peer) ? 1 : 0;
  const size_t part = share_of(share, connections);
  Peer* const most = heaviest_of(peer.user);
  return peer.bytes + bytes <= part && most->bytes > part ? most : nullptr;
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

#include "cell/server/request/large_values.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

LargeValues::LargeValues(const Clock* clock, const ServedRegions* served, HeldWrites* held, std::string server,
                         Uploads::Limits limits)
    : clock_(clock), served_(served), held_(held), server_(std::move(server)), uploads_(limits) {}

// The bytes may belong to another extent by now: the client checks the CRC over all pieces.
absl::StatusOr<size_t> LargeValues::Fetch(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const FetchRequest request, ParseFetchRequest(call.request));
  if (request.copy != 0) {
    const std::optional<std::string_view> piece =
        copies_.Find(call.peer, request.copy, request.from.offset(), request.bytes);
    if (!piece.has_value() || request.bytes > to.size() - sizeof(ReplyHeader)) {
      return absl::OutOfRangeError(fmt::format("the requested bytes are not in copy {} on {}", request.copy, server_));
    }
    const size_t bytes = WriteTextReply(to, MessageKind::kFetch, *piece);
    copies_.Fetched(call.peer, request.copy, request.from.offset() + request.bytes);
    return bytes;
  }
  const HeldRegion* region = served_->FindReadable(request.from.region());
  if (region != nullptr && region->store->ExtentInBounds(request.from, request.bytes) &&
      request.bytes <= to.size() - sizeof(ReplyHeader)) {
    Store(to.data(),
          ReplyHeader{MessageKind::kFetch, 0, static_cast<uint32_t>(sizeof(ReplyHeader) + request.bytes), {}});
    std::memcpy(to.data() + sizeof(ReplyHeader), region->store->Extent(request.from), request.bytes);
    return sizeof(ReplyHeader) + request.bytes;
  }
  return absl::OutOfRangeError(
      fmt::format("no extent of {} bytes at {} on {}", request.bytes, ToString(request.from), server_));
}

absl::StatusOr<size_t> LargeValues::Upload(const IncomingCall& call, MutableBytes to) {
  ASSIGN_OR_RETURN(const Parsed<UploadRequest> request, ParseUploadRequest(call.request));
  if (request.fixed.offset == 0) held_->Withdraw(call.peer, request.fixed.upload);
  RETURN_IF_ERROR(uploads_.Add(ToString(*call.from), call.peer, request.fixed.upload, request.fixed.offset,
                               request.value, clock_->NowNs()));
  if (request.value.empty()) ++empty_uploads_;
  return WriteTextReply(to, MessageKind::kUpload, "");
}

void LargeValues::Step() {
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Expire(clock_->NowNs());
}

void LargeValues::Disconnected(ConnectionId peer) {
  copies_.Disconnected(peer);
  if (!Mutated(Mutant::kUploadsOfTheDead)) uploads_.Forget(peer);
}

}  // namespace cell

// Implements the server half of VerbsFabric: greetings, requests for regions, served calls.
#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/verbs/verbs_link.h"

namespace cell {
namespace {

constexpr int64_t kLastWordNs = 100'000'000;
constexpr size_t kIdleInBytesMax = size_t{64} << 10;

}  // namespace

void VerbsFabric::TakeGreeting(Link* link, ConstBytes message) {
  ServerHandshake& handshake = *link->server_handshake;
  if (handshake.wants() == 0) return Break(link, "the peer is not a Cell client");  // It was refused already.
  std::string answer;
  const absl::Status taken = handshake.Take(message, &answer);
  if (!taken.ok()) {
    warnings_.Warn(NowNs(), "refused a connection: {}", std::string(taken.message()));
    if (!answer.empty()) Send(link, static_cast<uint8_t>(MessageType::kHandshake), 0, 0, AsBytes(answer), {});
    link->since_ns = NowNs() - options_.handshake_ns + kLastWordNs;  // Its time ends once the answer has reached it.
    return;
  }
  if (handshake.done()) {
    link->of_user = users_.Add(handshake.peer());
    if (!link->of_user) {
      warnings_.Warn(NowNs(), "refused a connection: {} has {} already, and others need some, too",
                     ToString(handshake.peer()), users_.max());
      return Break(link, "its user has too many connections");
    }
    link->state = Link::State::kUp;
    --unfinished_;
    ++peers_;
  }
  Send(link, static_cast<uint8_t>(MessageType::kHandshake), 0, 0, AsBytes(answer), {});
}

void VerbsFabric::TellRegion(Link* link, uint32_t region) {
  const auto type = static_cast<uint8_t>(MessageType::kRegion);
  if (!pool()->MayRead(link->server_handshake->peer())) {
    const std::byte denied{};
    return Send(link, type, region, 0, {&denied, 1}, {});
  }
  RegionKey key{};
  const auto found = pool()->Find(region);
  const ibv_mr* registration = found.has_value() ? link->device->domain->Find(*found->shm) : nullptr;
  if (registration != nullptr) {
    key = {reinterpret_cast<uint64_t>(found->shm->base()), found->bytes, registration->rkey, 0};
  }
  // Until now the device has refused all reads of this peer, so that it could not guess keys.
  if (registration != nullptr && !link->has_region && !link->queue_pair->AllowReads()) {
    return Break(link, "the device refuses to answer reads");
  }
  link->has_region |= registration != nullptr;
  Send(link, type, region, 0, {reinterpret_cast<const std::byte*>(&key), registration != nullptr ? sizeof(key) : 0},
       {});
}

void VerbsFabric::SetReaders(Readers readers) {
  PollingFabric::SetReaders(std::move(readers));
  for (const auto& [id, link] : links_) {
    if (link->accepted && link->state == Link::State::kUp && link->has_region &&
        !pool()->MayRead(link->server_handshake->peer())) {
      Break(link.get(), "the peer may not read regions any more");
    }
  }
}

void VerbsFabric::TakeCall(Link* link, uint64_t id, size_t reply_bytes_max, ConstBytes request) {
  if (!IsReplyRoom(reply_bytes_max)) return Break(link, "the peer's requests are malformed");
  link->in.Append(request);
  link->calls_in.push_back({id, reply_bytes_max, request.size()});
  MakeReady(link);
}

// Adds the peer to ready_ if it has a call and room for the reply.
void VerbsFabric::MakeReady(Link* link) {
  if (link->ready || link->calls_in.empty() || link->Full() || link->state != Link::State::kUp) return;
  link->ready = true;
  ready_.push_back(link->id);
}

size_t VerbsFabric::ServeCalls() {
  if (ready_.empty()) return 0;
  calls_.clear();
  // Take a call from each peer in turn. The bytes stay in place, because nothing is received meanwhile.
  while (!ready_.empty() && calls_.size() < kCallsMax) {
    Link* link = Find(ready_.front());
    ready_.pop_front();
    if (link == nullptr) continue;
    link->ready = false;
    if (link->state != Link::State::kUp || link->calls_in.empty()) continue;
    const Link::QueuedCall call = link->calls_in.front();
    link->calls_in.pop_front();
    calls_.push_back({link->id, &link->server_handshake->peer(), call.id, ConstBytes(link->in.data(), call.bytes),
                      call.reply_bytes_max});
    link->in.Consume(call.bytes);
    link->promised += call.reply_bytes_max;
    link->window.Freed(1);
    MakeReady(link);
  }
  serving_ = true;
  serving_since_ns_ = NowNs();
  if (!calls_.empty()) service_->Serve(calls_);
  serving_ = false;
  for (const IncomingCall& call : calls_) {
    Link* link = Find(call.peer);
    if (link == nullptr || link->state != Link::State::kUp) continue;
    link->in.Shrink(kIdleInBytesMax);
    if (link->window.ShouldTell()) MarkActive(link);
    MakeReady(link);
  }
  return calls_.size();
}

ServiceTimes VerbsFabric::TimesOf(const IncomingCall& call, uint64_t read_bytes) const {
  const auto link = links_.find(call.peer);
  if (link == links_.end()) return {};
  ServiceTimes times;
  times.read_ns = static_cast<uint32_t>(link->second->byte_ns * static_cast<double>(read_bytes));
  if (serving_) {
    const int64_t taken_ns = (NowNs() - serving_since_ns_) / static_cast<int64_t>(calls_.size());
    times.call_ns = static_cast<uint32_t>(std::clamp<int64_t>(taken_ns, 1, UINT32_MAX));
  }
  return times;
}

MutableBytes VerbsFabric::BeginReply(const IncomingCall& call) { return {reply_bytes_.data(), call.reply_bytes_max}; }

void VerbsFabric::EndReply(const IncomingCall& call, size_t bytes) {
  CELL_CHECK_LE(bytes, call.reply_bytes_max);
  Link* link = Find(call.peer);
  if (link == nullptr || link->state != Link::State::kUp) return;
  link->promised -= call.reply_bytes_max;
  Send(link, static_cast<uint8_t>(MessageType::kReply), call.id, 0, {reply_bytes_.data(), bytes}, {});
  if (!serving_) MakeReady(link);
}

}  // namespace cell

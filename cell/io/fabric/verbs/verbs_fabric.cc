// Implements what both halves of VerbsFabric share: completions, messages in both directions, polling, waiting.
#include "cell/io/fabric/verbs/verbs_fabric.h"

#include <sys/epoll.h>

#include <algorithm>

#include "cell/base/check.h"
#include "cell/io/fabric/verbs/verbs_link.h"

namespace cell {
namespace {

constexpr uint32_t kPollsBetweenEvents = 1024;

}  // namespace

VerbsFabric::VerbsFabric(VerbsFabricOptions options, std::shared_ptr<RegionPool> pool)
    : PollingFabric(options.polling, std::move(pool), options.huge_pages),
      options_(std::move(options)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      cm_(std::make_unique<CmChannel>()),
      reply_bytes_(kMessageBytesMax) {}

VerbsFabric::~VerbsFabric() {
  (void)this->pool()->SetOnMemory(nullptr);
  for (auto& [id, link] : links_) Break(link.get(), "this endpoint is closing");
  service_ = nullptr;
  TearDownBroken();
  TellNow();
  links_.clear();
}

size_t VerbsFabric::Poll() {
  if (++polls_ % kPollsBetweenEvents == 0 || unfinished_ > 0) TakeCmEvents();
  size_t done = PollCompletions();
  done += ServeCalls();
  TearDownBroken();
  done += TellNow();
  Flush();
  if (MillisecondPassed()) ExpireLinks();
  return done;
}

// Makes the next Flush look at this link.
void VerbsFabric::MarkActive(Link* link) {
  if (!std::exchange(link->active, true)) active_.push_back(link->id);
}

// Posts the requested reads, and returns credits where no message did.
void VerbsFabric::Flush() {
  for (const uint32_t id : std::exchange(active_, {})) {
    Link* link = Find(id);
    if (link == nullptr) continue;
    link->active = false;
    if (link->state == Link::State::kBroken) continue;
    PostReads(link);
    PumpOut(link);
  }
  for (const auto& device : devices_) device->domain->PostReceives();
}

void VerbsFabric::PullCompletions(Device* device) const {
  if (device->count > 0) return;
  device->count = std::max(0, ::ibv_poll_cq(device->domain->cq(), kCompletionsAtOnce, device->completions));
}

bool VerbsFabric::HasWork() const {
  if (HasToTell() || !ready_.empty() || !broken_.empty()) return true;
  for (const auto& device : devices_) {
    PullCompletions(device.get());
    if (device->count > 0) return true;
  }
  return false;
}

bool VerbsFabric::BeginSleep() {
  for (const auto& device : devices_) device->domain->RequestEvent();
  return HasWork();  // A completion before the request causes no event.
}

void VerbsFabric::EndSleep() {
  for (const auto& device : devices_) device->domain->TakeEvents();
}

void VerbsFabric::AfterWait() {
  TakeCmEvents();
  ExpireLinks();
}

size_t VerbsFabric::PollCompletions() {
  size_t done = 0;
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device* device = devices_[i].get();
    PullCompletions(device);
    const int count = std::exchange(device->count, 0);
    for (int j = 0; j < count; ++j) {
      const ibv_wc completion = device->completions[j];
      if ((completion.wr_id & kReceiveTag) != 0) {
        const auto chunk = static_cast<uint32_t>(completion.wr_id);
        if (completion.status == IBV_WC_SUCCESS) {
          done += TakeChunk(device, completion.qp_num, chunk, completion.byte_len);
        }
        device->domain->Free(chunk);
        continue;
      }
      Link* link = Find(static_cast<uint32_t>(completion.wr_id >> 32));
      if (link == nullptr || link->state == Link::State::kBroken) continue;
      if (completion.status != IBV_WC_SUCCESS) {
        Break(link, completion.status == IBV_WC_REM_ACCESS_ERR || completion.status == IBV_WC_REM_INV_REQ_ERR
                        ? "the server's NIC refused a request"
                        : ::ibv_wc_status_str(completion.status));
        continue;
      }
      done += FinishSends(link, static_cast<uint32_t>(completion.wr_id));
    }
    if (count > 0) device->domain->PostReceives();
  }
  return done;
}

// Handles the success of all requests up to this one. Calls the completions of finished reads, and returns their
// number.
size_t VerbsFabric::FinishSends(Link* link, uint32_t to_sequence) {
  size_t told = 0;
  while (!link->posted.empty() && static_cast<int32_t>(to_sequence - link->posted.front().sequence) >= 0) {
    const Link::Posted posted = link->posted.front();
    link->posted.pop_front();
    if (posted.send_chunk.has_value()) link->device->domain->GiveSendChunk(*posted.send_chunk);
    if (!posted.is_read) continue;
    if (posted.to != nullptr) {
      std::memcpy(posted.to, link->staging->bytes.get() + posted.staged_at, posted.bytes);
    }
    link->staging_used -= posted.staging;
    --link->reads_posted;
    if (!posted.last) continue;
    Completion* completion = link->reads.front().completion;
    link->reads.pop_front();
    if (completion == nullptr) continue;
    ++told;
    completion->Done(absl::OkStatus(), {});
    if (link->state == Link::State::kBroken) return told;
  }
  PostReads(link);
  PumpOut(link);
  return told;
}

// Takes one chunk of a message. Returns the number of completions called.
size_t VerbsFabric::TakeChunk(Device* device, uint32_t queue_pair, uint32_t chunk, uint32_t bytes) {
  const auto it = by_queue_pair_.find(queue_pair);
  if (it == by_queue_pair_.end() || it->second->device != device) return 0;  // From a connection that is gone.
  Link* link = it->second;
  if (link->state == Link::State::kBroken) return 0;
  const ConstBytes received(device->domain->received(chunk), std::min<size_t>(bytes, kChunkBytes));
  MessageAssembler::Message message;
  const MessageAssembler::State state = link->assembler.Take(received, &message);
  if (state == MessageAssembler::State::kNonsense) {
    Break(link, "the peer sent a malformed message");
    return 0;
  }
  if (!link->window.Received(message.header)) {
    Break(link, "the peer exceeded its credits");
    return 0;
  }
  size_t told = 0;
  const MessageType type = message.header.type;
  const bool whole = state == MessageAssembler::State::kWhole;
  const bool up = link->state == Link::State::kUp;
  if (type != MessageType::kCredits && !(whole && up && link->accepted && type == MessageType::kCall)) {
    link->window.Freed(1);  // The last chunk of a call is freed once the call is served.
  }
  if (whole) {
    const uint64_t id = message.header.id;
    if (type == MessageType::kHandshake && link->state == Link::State::kGreeting) {
      link->accepted ? TakeGreeting(link, message.bytes) : TakeChallenge(link, message.bytes);
    } else if (type == MessageType::kCall && up && link->accepted) {
      TakeCall(link, id, message.header.reply_bytes_max, message.bytes);
    } else if (type == MessageType::kAskRegion && up && link->accepted) {
      TellRegion(link, static_cast<uint32_t>(id));
    } else if (type == MessageType::kReply && up && !link->accepted) {
      told = TakeReply(link, id, message.bytes);
    } else if (type == MessageType::kRegion && up && !link->accepted) {
      TakeRegion(link, static_cast<uint32_t>(id), message.bytes);
    } else if (type != MessageType::kCredits) {
      Break(link, "the peer sent an unexpected message");
    }
  }
  if (link->state == Link::State::kBroken) return told;
  if (!link->out.empty()) PumpOut(link);
  if (link->window.ShouldTell()) MarkActive(link);
  return told;
}

void VerbsFabric::Send(Link* link, uint8_t type, uint64_t id, size_t reply_bytes_max, ConstBytes head,
                       ConstBytes body) {
  ++link->messages;
  const size_t bytes = head.size() + body.size();
  if (link->out.empty() && bytes <= kChunkPayloadMax && link->window.CanSend() &&
      PostChunk(link, type, id, reply_bytes_max, bytes, 0, head, body)) {
    ++link->sent;
    return;
  }
  if (link->state == Link::State::kBroken) return;
  link->out.push_back({type, id, reply_bytes_max, std::string(AsText(head)) + std::string(AsText(body))});
  link->out_bytes += bytes;
  PumpOut(link);
}

// Sends waiting messages as far as credits and the queue allow. Returns credits if no message did.
void VerbsFabric::PumpOut(Link* link) {
  while (!link->out.empty() && link->window.CanSend()) {
    Link::Out& next = link->out.front();
    const ConstBytes bytes = AsBytes(next.bytes);
    const size_t piece = std::min(kChunkPayloadMax, bytes.size() - link->out_offset);
    if (!PostChunk(link, next.type, next.id, next.reply_bytes_max, bytes.size(), link->out_offset,
                   bytes.subspan(link->out_offset, piece), {})) {
      break;
    }
    link->out_offset += piece;
    if (link->out_offset < bytes.size()) continue;
    link->out_bytes -= bytes.size();
    link->out_offset = 0;
    link->out.pop_front();
    ++link->sent;
  }
  if (link->window.ShouldTell()) {
    (void)PostChunk(link, static_cast<uint8_t>(MessageType::kCredits), 0, 0, 0, 0, {}, {});
  }
  if (link->accepted) MakeReady(link);
}

// Returns false if the queue or the buffers are full, or if the connection is broken.
bool VerbsFabric::PostChunk(Link* link, uint8_t type, uint64_t id, size_t reply_bytes_max, size_t message_bytes,
                            size_t offset, ConstBytes head, ConstBytes body) {
  if (!link->CanPost()) return false;
  const size_t bytes = sizeof(ChunkHeader) + head.size() + body.size();
  const bool goes_inline = bytes <= link->inline_max;
  std::byte small[kInlineBytesWanted * 2];
  VerbsDomain::SendChunk chunk{small, 0, 0};
  if (!goes_inline) {
    chunk = link->device->domain->TakeSendChunk();
    if (chunk.bytes == nullptr) {  // Completions of other sends free some. The next Poll tries again.
      MarkActive(link);
      return false;
    }
  }
  const auto message_type = static_cast<MessageType>(type);
  if (message_type != MessageType::kCredits) link->window.Sent();
  Store(chunk.bytes, ChunkHeader{message_type, 0, link->window.TakeOwed(), static_cast<uint32_t>(message_bytes),
                                 static_cast<uint32_t>(offset), static_cast<uint32_t>(reply_bytes_max), id});
  std::byte* to = chunk.bytes + sizeof(ChunkHeader);
  if (!head.empty()) std::memcpy(to, head.data(), head.size());
  if (!body.empty()) std::memcpy(to + head.size(), body.data(), body.size());
  ibv_sge place{reinterpret_cast<uint64_t>(chunk.bytes), static_cast<uint32_t>(bytes), chunk.key};
  ibv_send_wr request{};
  request.wr_id = uint64_t{link->id} << 32 | ++link->sequence;
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = goes_inline ? IBV_SEND_INLINE : 0;
  if (++link->unsignalled >= kSignalEvery || (!goes_inline && link->device->domain->send_chunks_scarce())) {
    request.send_flags |= IBV_SEND_SIGNALED;
    link->unsignalled = 0;
  }
  Link::Posted posted{};
  posted.sequence = link->sequence;
  if (!goes_inline) posted.send_chunk = chunk.number;
  link->posted.push_back(posted);
  if (!link->queue_pair->Post(&request)) Break(link, "the NIC accepts no more requests");
  return link->state != Link::State::kBroken;
}

}  // namespace cell

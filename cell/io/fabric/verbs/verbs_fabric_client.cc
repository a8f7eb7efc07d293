// Implements the client half of VerbsFabric: reads and calls in flight.
#include <algorithm>

#include "cell/io/fabric/verbs/verbs_link.h"

namespace cell {

void VerbsFabric::TakeChallenge(Link* link, ConstBytes message) {
  ClientHandshake& handshake = *link->client_handshake;
  std::string answer;
  const absl::Status taken = handshake.Take(message, &answer);
  if (!taken.ok()) return Break(link, std::string(taken.message()));
  if (!handshake.done()) {
    return Send(link, static_cast<uint8_t>(MessageType::kHandshake), 0, 0, AsBytes(answer), {});
  }
  link->state = Link::State::kUp;
  --unfinished_;
  link->client->Establish(tell_later());
}

// Returns null if the connection is gone, broken, or not connected yet.
VerbsFabric::Link* VerbsFabric::Live(ConnectionId id) const {
  Link* link = Find(id);
  return link != nullptr && link->client.has_value() && link->client->up() ? link : nullptr;
}

absl::Status VerbsFabric::Refusal(ConnectionId id) const {
  const Link* link = Find(id);
  return ClientConnection::Refusal(link != nullptr && link->client.has_value() ? &*link->client : nullptr);
}

void VerbsFabric::AskForRegion(Link* link, uint32_t region) {
  Send(link, static_cast<uint8_t>(MessageType::kAskRegion), region, 0, {}, {});
}

void VerbsFabric::ForgetRegion(ConnectionId id, uint32_t region) {
  Link* link = Live(id);
  if (link != nullptr) link->regions.Forget(region);
}

void VerbsFabric::TakeRegion(Link* link, uint32_t region, ConstBytes bytes) {
  std::optional<RegionKey> key;
  if (bytes.size() == sizeof(RegionKey)) key = Load<RegionKey>(bytes.data());
  using WaitingRead = Link::Regions::WaitingRead;
  const bool denied = bytes.size() == 1;
  const auto refuse = [&](const WaitingRead& read) {
    TellLater(read.completion, denied ? link->client->MayNotRead() : link->client->NotHeld(region));
  };
  const auto start = [&](const WaitingRead& read) {
    // A read that was started before may have broken the connection, by asking for another region.
    if (link->client->broken()) return TellLater(read.completion, link->client->lost());
    StartRead(link, read.parts, read.deadline_ns, read.completion);
  };
  if ((!bytes.empty() && !denied && !key.has_value()) || !link->regions.Answer(region, key, refuse, start)) {
    Break(link, "the server described a region that was not requested");
  }
}

void VerbsFabric::Read(ConnectionId id, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  Link* link = Live(id);
  if (link == nullptr) return TellLater(completion, Refusal(id));
  StartRead(link, parts, deadline_ns, completion);
}

void VerbsFabric::StartRead(Link* link, absl::Span<const ReadPart> parts, int64_t deadline_ns, Completion* completion) {
  NoteDeadline(deadline_ns);
  using Readiness = Link::Regions::Readiness;
  const auto [readiness, blocking] = link->regions.Check(parts);
  if (readiness == Readiness::kOutside) return TellLater(completion, link->client->Outside(*blocking));
  if (readiness == Readiness::kUnknown) {
    if (!link->regions.waiting()) link->waiting_since_ns = NowNs();
    link->regions.Wait(parts, deadline_ns, completion);
    if (link->regions.Ask(blocking->from.region())) AskForRegion(link, blocking->from.region());
    return;
  }
  const size_t before = link->pieces.size();
  for (const ReadPart& part : parts) {
    const RegionKey& key = *link->regions.Find(part.from.region());
    for (uint32_t at = 0; at < part.bytes; at += kPieceBytesMax) {
      link->pieces.push_back({key.address + part.from.offset() + at, key.key, part.to + at,
                              std::min(kPieceBytesMax, part.bytes - at), false});
    }
  }
  if (link->pieces.size() == before) return TellLater(completion, absl::OkStatus());  // It reads no bytes.
  link->pieces.back().last = true;
  link->reads.push_back({deadline_ns, completion});
  MarkActive(link);
}

// Ends reads that are past their deadline. The NIC may still be busy with them; their bytes stay in the staging ring.
void VerbsFabric::ExpireReads(Link* link, int64_t now_ns) {
  const absl::Status late = link->client->LateRead();
  NoteDeadline(link->regions.Expire(now_ns, [&](Completion* completion) { TellLater(completion, late); }));
  bool ended = false;
  for (Link::ReadInFlight& read : link->reads) {
    if (read.completion == nullptr) continue;
    if (read.deadline_ns > now_ns) {
      NoteDeadline(read.deadline_ns);
      continue;
    }
    TellLater(std::exchange(read.completion, nullptr), late);
    ended = true;
  }
  if (!ended) return;
  // Drop their pieces. Pieces are in the order of the reads: first those that are posted, then those that wait.
  auto read = link->reads.begin();
  const auto drop = [&](auto* piece) {
    if (read->completion == nullptr) piece->to = nullptr;
    if (piece->last) ++read;
  };
  for (Link::Posted& posted : link->posted) {
    if (posted.is_read) drop(&posted);
  }
  for (Link::Piece& piece : link->pieces) drop(&piece);
}

// Posts as many reads as the connection may have in flight, as one chain.
void VerbsFabric::PostReads(Link* link) {
  constexpr size_t kChainMax = 32;
  // The NIC has enough to do for now. A few more reads do not justify a doorbell of their own.
  if (link->reads_posted >= kReadsInFlightEnough && link->pieces.size() < kChainWanted) return;
  while (!link->pieces.empty() && link->CanPost()) {
    ibv_send_wr requests[kChainMax];
    ibv_sge places[kChainMax];
    size_t count = 0;
    while (count < kChainMax && !link->pieces.empty() && link->reads_posted < link->reads_max &&
           link->posted.size() + kSendsForMessages < link->sends_max()) {
      const Link::Piece& piece = link->pieces.front();
      // A piece does not wrap. It also takes the unused bytes before the end.
      const size_t bytes = RoundUp(piece.bytes, 64);
      const size_t to_end = kStagingBytes - link->staging_end;
      const size_t staging = bytes <= to_end ? bytes : to_end + bytes;
      if (link->staging_used + staging > kStagingBytes) break;
      const size_t at = bytes <= to_end ? link->staging_end : 0;
      link->staging_end = (at + bytes) % kStagingBytes;
      link->staging_used += staging;
      Link::Posted posted{};
      posted.sequence = ++link->sequence;
      posted.is_read = true;
      posted.to = piece.to;
      posted.bytes = piece.bytes;
      posted.staged_at = at;
      posted.staging = staging;
      posted.last = piece.last;
      link->posted.push_back(posted);
      ++link->reads_posted;
      places[count] = {reinterpret_cast<uint64_t>(link->staging->bytes.get() + at), piece.bytes,
                       link->staging->registration->lkey};
      ibv_send_wr& request = requests[count];
      request = {};
      request.wr_id = uint64_t{link->id} << 32 | posted.sequence;
      request.sg_list = &places[count];
      request.num_sge = 1;
      request.opcode = IBV_WR_RDMA_READ;
      request.send_flags = piece.last ? IBV_SEND_SIGNALED : 0;
      request.wr.rdma.remote_addr = piece.address;
      request.wr.rdma.rkey = piece.key;
      if (count > 0) requests[count - 1].next = &request;
      ++count;
      link->pieces.pop_front();
    }
    if (count == 0) return;
    requests[count - 1].send_flags = IBV_SEND_SIGNALED;
    link->unsignalled = 0;
    if (!link->queue_pair->Post(requests)) return Break(link, "the NIC accepts no more requests");
  }
}

void VerbsFabric::Call(ConnectionId id, ConstBytes head, ConstBytes body, size_t reply_bytes_max, int64_t deadline_ns,
                       Completion* completion) {
  CheckCall(head, body, reply_bytes_max);
  Link* link = Live(id);
  if (link == nullptr) return TellLater(completion, Refusal(id));
  NoteDeadline(deadline_ns);
  const uint64_t call = link->client->calls().Add(completion, deadline_ns, reply_bytes_max, link->messages + 1);
  Send(link, static_cast<uint8_t>(MessageType::kCall), call, reply_bytes_max, head, body);
}

size_t VerbsFabric::TakeReply(Link* link, uint64_t id, ConstBytes reply) {
  Completion* completion = nullptr;
  if (!link->client->calls().Take(id, reply.size(), &completion)) {
    Break(link, CallTable::kNotMade);
    return 0;
  }
  if (completion == nullptr) return 0;
  completion->Done(absl::OkStatus(), reply);
  return 1;
}

}  // namespace cell

#include "cell/io/fabric/verbs/verbs_domain.h"

#include <fcntl.h>

#include <algorithm>
#include <new>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"

namespace cell {
namespace {

constexpr uint32_t kCompletionsMin = 1024;
constexpr uint8_t kReadsMax = 32;

}  // namespace

absl::StatusOr<RegisteredMemory> RegisteredMemory::Make(ibv_pd* pd, size_t bytes) {
  RegisteredMemory memory;
  memory.bytes.reset(new (std::align_val_t(4096)) std::byte[bytes]);
  memory.registration.reset(::ibv_reg_mr(pd, memory.bytes.get(), bytes, kBufferAccess));
  if (memory.registration == nullptr) return VerbsError(fmt::format("cannot register {} bytes of buffers", bytes));
  return memory;
}

absl::Status VerbsDomain::Slabs::Grow(ibv_pd* pd, std::vector<uint32_t>* fresh) {
  ASSIGN_OR_RETURN(RegisteredMemory slab, RegisteredMemory::Make(pd, kChunksPerSlab * kChunkBytes));
  for (uint32_t i = 0; i < kChunksPerSlab; ++i) fresh->push_back(chunks() + i);
  slabs_.push_back(std::move(slab));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VerbsDomain>> VerbsDomain::Open(ibv_context* context, size_t links_max) {
  ibv_device_attr limits{};
  if (::ibv_query_device(context, &limits) != 0) return VerbsError("cannot query the RDMA device");
  std::unique_ptr<VerbsDomain> domain(new VerbsDomain(context));
  domain->completions_max_ = static_cast<uint32_t>(limits.max_cqe);
  domain->receives_max_ = static_cast<uint32_t>(
      std::min<size_t>(static_cast<size_t>(limits.max_srq_wr), kCompletionsAtOnce + links_max * kReceivesPerLink));
  domain->reads_max_ =
      static_cast<uint8_t>(std::clamp<int>(std::min(limits.max_qp_rd_atom, limits.max_qp_init_rd_atom), 1, kReadsMax));
  domain->pd_.reset(::ibv_alloc_pd(context));
  domain->channel_.reset(::ibv_create_comp_channel(context));
  if (domain->pd_ == nullptr || domain->channel_ == nullptr) return VerbsError("cannot open the RDMA device");
  const int fd = domain->channel_->fd;
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return VerbsError("fcntl");
  domain->cq_.reset(::ibv_create_cq(context, static_cast<int>(std::min(kCompletionsMin, domain->completions_max_)),
                                    nullptr, domain->channel_.get(), 0));
  ibv_srq_init_attr receives{};
  receives.attr = {domain->receives_max_, 1, 0};
  domain->srq_.reset(::ibv_create_srq(domain->pd_.get(), &receives));
  if (domain->cq_ == nullptr || domain->srq_ == nullptr) return VerbsError("cannot create queues on the RDMA device");
  return domain;
}

absl::Status VerbsDomain::AddLink(uint32_t sends) {
  // A connection that breaks completes everything in flight, whether a completion was requested or not. Reserve room
  // for all of it.
  const uint32_t completions = completions_wanted_ + kReceivesPerLink + sends;
  if (completions > completions_max_ || receives_wanted_ + kReceivesPerLink > receives_max_) {
    return absl::ResourceExhaustedError(fmt::format(
        "the RDMA device cannot hold more connections ({} completions, {} receives)", completions_max_, receives_max_));
  }
  if (completions > static_cast<uint32_t>(cq_->cqe)) {
    const uint32_t larger = std::min(completions_max_, std::max(completions, 2 * static_cast<uint32_t>(cq_->cqe)));
    if (const int error = ::ibv_resize_cq(cq_.get(), static_cast<int>(larger)); error != 0) {
      return VerbsError("cannot enlarge the completion queue", error);
    }
  }
  while (receives_posted_ + free_receives_.size() < receives_wanted_ + kReceivesPerLink) {
    RETURN_IF_ERROR(receive_slabs_.Grow(pd_.get(), &free_receives_));
  }
  completions_wanted_ = completions;
  receives_wanted_ += kReceivesPerLink;
  while (receives_posted_ < receives_wanted_) {
    to_post_.push_back(free_receives_.back());
    free_receives_.pop_back();
    ++receives_posted_;
  }
  PostReceives();
  return absl::OkStatus();
}

void VerbsDomain::RemoveLink(uint32_t sends) {
  completions_wanted_ -= kReceivesPerLink + sends;
  receives_wanted_ -= kReceivesPerLink;  // Surplus buffers are kept when they come back.
}

void VerbsDomain::Free(uint32_t chunk) {
  if (receives_posted_ > receives_wanted_) {
    --receives_posted_;
    free_receives_.push_back(chunk);
  } else {
    to_post_.push_back(chunk);
  }
}

void VerbsDomain::PostReceives() {
  constexpr size_t kBatch = 32;
  while (!to_post_.empty()) {
    ibv_recv_wr requests[kBatch];
    ibv_sge places[kBatch];
    const size_t count = std::min(kBatch, to_post_.size());
    for (size_t i = 0; i < count; ++i) {
      const uint32_t chunk = to_post_[to_post_.size() - 1 - i];
      places[i] = {reinterpret_cast<uint64_t>(receive_slabs_.at(chunk)), kChunkBytes, receive_slabs_.key(chunk)};
      requests[i] = {};
      requests[i].wr_id = kReceiveTag | chunk;
      requests[i].sg_list = &places[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    CELL_CHECK_EQ(::ibv_post_srq_recv(srq_.get(), requests, &bad), 0);  // There is room for every one.
    to_post_.resize(to_post_.size() - count);
  }
}

VerbsDomain::SendChunk VerbsDomain::TakeSendChunk() {
  if (free_sends_.empty() &&
      (send_slabs_.chunks() >= kSendChunksMax || !send_slabs_.Grow(pd_.get(), &free_sends_).ok())) {
    return {};
  }
  const uint32_t number = free_sends_.back();
  free_sends_.pop_back();
  return {send_slabs_.at(number), number, send_slabs_.key(number)};
}

absl::Status VerbsDomain::Register(const ShmMemory& memory) {
  MemoryRegistration& registration = regions_[memory.base()];
  if (registration != nullptr) return absl::OkStatus();
  registration.reset(::ibv_reg_mr(pd_.get(), memory.base(), memory.bytes(), kRegionAccess));
  if (registration != nullptr) return absl::OkStatus();
  regions_.erase(memory.base());
  return VerbsError(fmt::format("cannot register {} bytes of a region for RDMA", memory.bytes()));
}

void VerbsDomain::TakeEvents() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (::ibv_get_cq_event(channel_.get(), &cq, &context) == 0) ++events;
  if (events > 0) ::ibv_ack_cq_events(cq_.get(), events);
}

}  // namespace cell

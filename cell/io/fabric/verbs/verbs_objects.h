// Owns the objects that libibverbs and librdmacm return. Internal to the verbs fabric: no other header uses their
// types.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace cell {

template <auto Destroy>
struct VerbsDeleter {
  template <typename T>
  void operator()(T* object) const {
    (void)Destroy(object);
  }
};

using ProtectionDomain = std::unique_ptr<ibv_pd, VerbsDeleter<ibv_dealloc_pd>>;
using CompletionChannel = std::unique_ptr<ibv_comp_channel, VerbsDeleter<ibv_destroy_comp_channel>>;
using CompletionQueue = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_destroy_cq>>;
using SharedReceiveQueue = std::unique_ptr<ibv_srq, VerbsDeleter<ibv_destroy_srq>>;
using MemoryRegistration = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_dereg_mr>>;
using QueuePairOwner = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_destroy_qp>>;
using EventChannel = std::unique_ptr<rdma_event_channel, VerbsDeleter<rdma_destroy_event_channel>>;
using CmId = std::unique_ptr<rdma_cm_id, VerbsDeleter<rdma_destroy_id>>;

inline absl::Status VerbsError(const std::string& what, int error = errno) {
  const char* hint = error == ENOMEM ? " (is the limit on locked memory too low? ulimit -l)" : "";
  return absl::ResourceExhaustedError(fmt::format("{}: {}{}", what, std::strerror(error), hint));
}

// Access of a peer to this process's regions: it may read them.
inline constexpr int kRegionAccess = IBV_ACCESS_REMOTE_READ;
// Access of a peer to buffers that this side receives into: none.
inline constexpr int kBufferAccess = IBV_ACCESS_LOCAL_WRITE;

// A peer that finds no buffer here tries again after 0.64 ms. With credits it always finds one.
inline constexpr uint8_t kNotReadyTimer = 12;

// A queue pair that is not connected, and so cannot post.
class PendingQueuePair {
 public:
  // *max_inline_data is the wanted size of inline data. The call sets it to the actual size.
  static absl::StatusOr<PendingQueuePair> Create(ibv_pd* pd, ibv_cq* cq, ibv_srq* srq, uint32_t sends,
                                                 uint32_t* max_inline_data) {
    for (uint32_t inline_bytes = *max_inline_data;; inline_bytes /= 2) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = cq;
      attributes.srq = srq;
      attributes.qp_type = IBV_QPT_RC;
      attributes.cap = {sends, 0, 1, 0, inline_bytes};
      if (ibv_qp* qp = ::ibv_create_qp(pd, &attributes); qp != nullptr) {
        *max_inline_data = attributes.cap.max_inline_data;
        return PendingQueuePair(QueuePairOwner(qp));
      }
      // The failure is not caused by the size of inline data.
      if (inline_bytes < 32) return VerbsError("cannot create a queue pair");
    }
  }

  // Moves the queue pair to the next state with librdmacm's parameters of the connection. Peers may do nothing yet.
  // `mtu` limits the packets; 0 means librdmacm's value. For RTR, *mtu_taken is set to the result.
  absl::Status Move(rdma_cm_id* id, ibv_qp_state state, uint32_t mtu = 0, uint32_t* mtu_taken = nullptr) {
    ibv_qp_attr attributes{};
    int mask = 0;
    attributes.qp_state = state;
    if (::rdma_init_qp_attr(id, &attributes, &mask) != 0) return VerbsError("rdma_init_qp_attr");
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) attributes.qp_access_flags = 0;
    if ((mask & IBV_QP_PATH_MTU) != 0 && mtu != 0) {
      attributes.path_mtu = std::min(attributes.path_mtu, static_cast<ibv_mtu>(mtu));
    }
    if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) attributes.min_rnr_timer = kNotReadyTimer;
    if (mtu_taken != nullptr) *mtu_taken = attributes.path_mtu;
    if (const int error = ::ibv_modify_qp(qp_.get(), &attributes, mask); error != 0) {
      return VerbsError("cannot connect a queue pair", error);
    }
    return absl::OkStatus();
  }
  uint32_t number() const { return qp_->qp_num; }

 private:
  friend class QueuePair;
  explicit PendingQueuePair(QueuePairOwner qp) : qp_(std::move(qp)) {}

  QueuePairOwner qp_;
};

// A connected queue pair. It is made only from a pending one that was moved to IBV_QPS_RTS.
class QueuePair {
 public:
  explicit QueuePair(PendingQueuePair pending) : qp_(std::move(pending.qp_)) {}

  // Posts a chain with one doorbell. Returns false if not all requests were accepted; the connection must not be used
  // then.
  bool Post(ibv_send_wr* first) {
    ibv_send_wr* bad = nullptr;
    return ::ibv_post_send(qp_.get(), first, &bad) == 0;
  }
  // Allows the peer, which has proved its identity, to read registered regions from now on.
  bool AllowReads() {
    ibv_qp_attr attributes{};
    attributes.qp_access_flags = kRegionAccess;
    return ::ibv_modify_qp(qp_.get(), &attributes, IBV_QP_ACCESS_FLAGS) == 0;
  }
  // Ends everything in flight with an error.
  void Fail() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    (void)::ibv_modify_qp(qp_.get(), &attributes, IBV_QP_STATE);
  }
  uint32_t number() const { return qp_->qp_num; }
  ibv_qp* get() const { return qp_.get(); }

 private:
  QueuePairOwner qp_;
};

}  // namespace cell

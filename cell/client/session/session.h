// Session holds the state that a client's operations share. It wires the loop, the connections, the view of the region
// table and the tree reader, and counts operations. Internal to cell/client. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/histogram.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/session/client_loop.h"
#include "cell/client/session/connections.h"
#include "cell/client/session/request_slots.h"
#include "cell/client/session/table_view.h"
#include "cell/client/session/tree_reader.h"
#include "cell/layout/snapshot.h"

namespace cell {

// The options of a call after defaults are applied.
struct CallContext {
  Path path;
  int64_t started_ns;
  int64_t deadline_ns;
  OperationKind kind = OperationKind::kGet;
};

class Session {
 public:
  Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership);
  ~Session() { Close(); }

  const ClientOptions& options() const { return options_; }
  ClientMetrics* metrics() { return &metrics_; }
  ClientLoop* loop() { return &loop_; }
  Connections* connections() { return &connections_; }
  TableView* view() { return &view_; }
  TreeReader* tree() { return &tree_; }
  RequestSlots* slots() { return &slots_; }
  // How many transactions have committed whose regions are being told so.
  size_t* finishing() { return &finishing_; }
  // Takes a slot, as RequestSlots::Take does. REQUIRES: the session is not closed.
  std::optional<RequestId> TakeSlot() {
    if (slots_.worn_out()) slots_.Renew(loop_.fabric()->UniqueNumber());
    return slots_.Take();
  }
  // Returns an id for a snapshot. REQUIRES: the session is not closed.
  SnapshotId TakeSnapshotId() {
    if (snapshot_client_ == 0) snapshot_client_ = loop_.fabric()->UniqueNumber();
    return {snapshot_client_, ++snapshots_};
  }
  // Shorthands of the loop and the view.
  int64_t NowNs() const { return loop_.NowNs(); }
  int64_t now_ns() const { return loop_.now_ns(); }
  uint32_t node_bytes() const { return view_.node_bytes(); }

  // Ends all operations in flight with Cancelled; writes that were sent also report MaybeApplied. Operations that begin
  // afterwards end with Cancelled at once.
  void Close();
  bool closed() const { return loop_.closed(); }
  // Returns true if this process was forked from the one that made the session. Then it must not be destroyed.
  bool inherited() const { return loop_.inherited(); }

  // Begins an operation, which End ends.
  CallContext Begin(const CallOptions& options, OperationKind kind) {
    Begin();
    return ContextOf(options, kind);
  }
  void Begin() {
    ++in_flight_;
    idle_ = false;
  }
  // Returns the context of an operation that begins now, without counting it.
  CallContext ContextOf(const CallOptions& options, OperationKind kind = OperationKind::kGet);
  // Chooses the path of an operation, by its options or with the selector, and counts it.
  Path ChoosePath(Selector* selector, const CallContext& context);
  // Returns how many operations have begun and not ended.
  int in_flight() const { return in_flight_; }
  // Counts an operation that ends.
  void End(const CallContext& context, const absl::Status& status);

  // Runs a coroutine to its end.
  template <typename T>
  T Run(Task<T> task) {
    task.Start();
    while (!task.done()) Poll(INT64_MAX);
    return task.Take();
  }
  // Does what can be done now. If there is nothing, waits for something, but not beyond `until_ns`.
  void Poll(int64_t until_ns);
  // Waiting by an event loop (Client::WaitFd).
  int WaitFd() { return closed() ? -1 : loop_.fabric()->WaitFd(); }
  int64_t BeginWait();
  void EndWait();

 private:
  // Returns until when the client may wait if nothing comes, at most `until_ns`.
  int64_t WaitUntil(int64_t until_ns) const;

  class ReportCompletion : public Completion {
   public:
    explicit ReportCompletion(Connections* connections) : connections_(connections) {}
    void Done(const absl::Status& status, ConstBytes) override {
      connections_->Note(std::exchange(worker, nullptr), status);
    }
    WorkerConnection* worker = nullptr;  // The worker that has not answered yet.

   private:
    Connections* const connections_;
  };

  // Returns whether an operation goes to the server so that this knows what is used (Evictor).
  bool TellsUse(const CallContext& context);
  // Reports this client's counters to a worker that is connected.
  void SendReport();

  const ClientOptions options_;
  ClientMetrics metrics_;
  ClientLoop loop_;
  Connections connections_;
  ReportCompletion reporting_{&connections_};
  TableView view_;
  TreeReader tree_;
  RequestSlots slots_;
  size_t finishing_ = 0;
  uint64_t snapshot_client_ = 0;  // 0: no snapshot was taken yet.
  uint64_t snapshots_ = 0;
  int in_flight_ = 0;    // Operations.
  bool idle_ = false;    // The last Poll has found nothing; no operation has begun and no wait has ended since.
  uint64_t untold_ = 0;  // Gets since the last one that was sent to the server for TellsUse.
  int64_t reported_ns_;
  Histogram since_report_ns_;
};

}  // namespace cell

// Session: what a client's operations share. The fabric and its connections, the caches, the selectors, the counters,
// and the awaitables that turn completions into coroutines. Internal to cell/client; one thread.
#pragma once

#include <coroutine>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/client/node_cache.h"
#include "cell/cluster/cluster_file.h"
#include "cell/io/fabric.h"
#include "cell/layout/wire.h"
#include "cell/tree/walk.h"
#include "selector/selector.h"

namespace cell {

// One worker of a server, as this client knows it.
struct ServerConnection {
  std::string address;
  std::vector<uint32_t> regions;
  ConnectionId id = 0;
  bool up = false;
  int64_t last_attempt_ns = INT64_MIN;
  Selector searches;
  Selector scans;
  std::vector<uint16_t> free_uploads;
  std::vector<std::coroutine_handle<>> waiting_for_upload;

  ServerConnection(std::string address, std::vector<uint32_t> regions, uint64_t seed)
      : address(std::move(address)),
        regions(std::move(regions)),
        searches({}, seed),
        scans({}, seed + 1),
        free_uploads({4, 3, 2, 1}) {}
};
static_assert(kUploadsMax == 4);

// A call's options, resolved.
struct CallContext {
  Path path;
  int64_t started_ns;
  int64_t deadline_ns;
};

// Memory for one node, from the session's pool; given back by the destructor.
class NodeBuffer;

class Session {
 public:
  Session(const ClientOptions& options, std::unique_ptr<Fabric> fabric, const ClusterFile& cluster);
  ~Session();

  const ClientOptions& options() const { return options_; }
  Fabric* fabric() { return fabric_.get(); }
  NodeCache* cache() { return &cache_; }
  ClientMetrics* metrics() { return &metrics_; }
  Pointer root() const { return root_; }
  uint32_t node_bytes() const { return node_bytes_; }
  const RegionShape& shape() const { return shape_; }
  std::vector<std::unique_ptr<ServerConnection>>& servers() { return servers_; }

  // The clock as of the last Poll: good enough for latencies of what Poll finds, and free.
  int64_t now_ns() const { return now_ns_; }
  CallContext Begin(const CallOptions& options);
  // Which way this operation goes, by its options or by the selector; counts it.
  Path ChoosePath(Selector* selector, const CallContext& context);
  // Counts an operation that ends.
  void End(const CallContext& context, const absl::Status& status);

  // The connection to whoever holds `region`, made (again) if need be.
  absl::StatusOr<ServerConnection*> Connect(uint32_t region);
  absl::Status Connect(ServerConnection* server);
  // To be told every status that the fabric gave for this connection.
  absl::Status Note(ServerConnection* server, absl::Status status);

  void Poll(int64_t until_ns);

  struct ReadAwaiter : Completion {
    Session* session;
    ServerConnection* server;
    absl::Span<const ReadPart> parts;
    absl::Status status;
    std::coroutine_handle<> handle;

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
      handle = awaiting;
      session->fabric()->Read(server->id, parts, this);
    }
    void Done(const absl::Status& result, ConstBytes) override {
      if (!result.ok()) status = session->Note(server, result);
      handle.resume();
    }
    absl::Status await_resume() { return std::move(status); }
  };
  // `parts` must live until it ends.
  ReadAwaiter Read(ServerConnection* server, absl::Span<const ReadPart> parts) {
    ReadAwaiter awaiter;
    awaiter.session = this;
    awaiter.server = server;
    awaiter.parts = parts;
    return awaiter;
  }

  struct CallAwaiter : Completion {
    Session* session;
    ServerConnection* server;
    ConstBytes head;
    ConstBytes body;
    size_t reply_bytes_max;
    int64_t deadline_ns;
    absl::StatusOr<ConstBytes> reply;
    std::coroutine_handle<> handle;

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
      handle = awaiting;
      session->fabric()->Call(server->id, head, body, reply_bytes_max, deadline_ns, this);
    }
    void Done(const absl::Status& result, ConstBytes bytes) override {
      if (result.ok()) {
        reply = bytes;
      } else {
        reply = session->Note(server, result);
      }
      handle.resume();
    }
    absl::StatusOr<ConstBytes> await_resume() { return std::move(reply); }
  };
  // The reply's bytes are valid until the awaiting coroutine suspends again.
  CallAwaiter Call(ServerConnection* server, std::string_view head, std::string_view body, size_t reply_bytes_max,
                   int64_t deadline_ns) {
    ++metrics_.calls;
    CallAwaiter awaiter;
    awaiter.session = this;
    awaiter.server = server;
    awaiter.head = AsBytes(head);
    awaiter.body = AsBytes(body);
    awaiter.reply_bytes_max = reply_bytes_max;
    awaiter.deadline_ns = deadline_ns;
    return awaiter;
  }

  struct SleepAwaiter {
    Session* session;
    int64_t at_ns;
    bool await_ready() const { return session->fabric()->NowNs() >= at_ns; }
    void await_suspend(std::coroutine_handle<> awaiting) { session->timers_.push({at_ns, awaiting}); }
    void await_resume() const {}
  };
  SleepAwaiter SleepUntil(int64_t at_ns) { return {this, at_ns}; }

  // An upload number of the connection, waiting for one to be free.
  struct UploadAwaiter {
    ServerConnection* server;
    bool await_ready() const { return !server->free_uploads.empty(); }
    void await_suspend(std::coroutine_handle<> awaiting) { server->waiting_for_upload.push_back(awaiting); }
    uint16_t await_resume() {
      const uint16_t upload = server->free_uploads.back();
      server->free_uploads.pop_back();
      return upload;
    }
  };
  UploadAwaiter TakeUpload(ServerConnection* server) { return {server}; }
  void GiveUpload(ServerConnection* server, uint16_t upload);

  // Walks to the leaf of walk->key() by one-sided reads, beginning at walk->wants(). On success *leaf is in `buffer`.
  // Tells `selector` of each read's latency, and adds their number to *reads.
  Task<absl::Status> WalkToLeaf(ServerConnection* server, Walk* walk, NodeBuffer* buffer, NodeView* leaf,
                                int64_t deadline_ns, Selector* selector, int* reads);

 private:
  friend class NodeBuffer;

  struct Timer {
    int64_t at_ns;
    std::coroutine_handle<> handle;
    bool operator>(const Timer& other) const { return at_ns > other.at_ns; }
  };
  class ReportCompletion : public Completion {
   public:
    void Done(const absl::Status&, ConstBytes) override { in_flight = false; }
    bool in_flight = false;
  };

  void SendReport();

  const ClientOptions options_;
  const RegionShape shape_;
  const uint32_t node_bytes_;
  const Pointer root_;
  std::unique_ptr<Fabric> fabric_;
  std::vector<std::unique_ptr<ServerConnection>> servers_;
  std::vector<ConnectionId> lost_;  // To be disconnected by the next Poll.
  NodeCache cache_;
  ClientMetrics metrics_;
  int64_t now_ns_ = 0;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::vector<std::byte*> free_buffers_;

  ReportCompletion reporting_;
  int64_t reported_ns_ = 0;
  Histogram since_report_ns_;
};

class NodeBuffer {
 public:
  explicit NodeBuffer(Session* session);
  ~NodeBuffer() { session_->free_buffers_.push_back(bytes_); }
  NodeBuffer(const NodeBuffer&) = delete;
  NodeBuffer& operator=(const NodeBuffer&) = delete;

  std::byte* data() { return bytes_; }
  static constexpr size_t size() { return kNodeBytesMax; }
  // The buffers' contents change places.
  void Swap(NodeBuffer* other) { std::swap(bytes_, other->bytes_); }

 private:
  Session* session_;
  std::byte* bytes_;
};

}  // namespace cell

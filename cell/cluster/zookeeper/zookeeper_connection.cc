#include "cell/cluster/zookeeper/zookeeper_connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <utility>

#include "cell/cluster/zookeeper/digest_file.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kNodeBytesMaxOfZooKeeper = size_t{1} << 20;
// Pause before a call that was lost while the session is connected: its server did not answer in time, or the session
// has just moved to another one. Nothing signals that the next call will succeed.
constexpr int64_t kRetryPauseNs = 10'000'000;

}  // namespace

ZooKeeperConnection::ZooKeeperConnection(const ZooKeeperOptions& options, std::function<void()> on_change)
    : options_(options), reader_(AclIdOf(ReaderOf(options.digest))), on_change_(std::move(on_change)) {
  static char digest[] = "digest";  // The C client wants to be able to change it.
  acls_ = {ACL{ZOO_PERM_ALL, ZOO_AUTH_IDS}, ACL{ZOO_PERM_READ, {digest, reader_.data()}}};
  acl_vector_ = {static_cast<int32_t>(acls_.size()), acls_.data()};
  zoo_set_debug_level(static_cast<ZooLogLevel>(0));  // We log lost connections ourselves.
}

ZooKeeperConnection::~ZooKeeperConnection() { Disconnect(); }

void ZooKeeperConnection::Disconnect() {
  if (handle_ != nullptr) zookeeper_close(std::exchange(handle_, nullptr));
  expired_ = true;
}

bool ZooKeeperConnection::Lost(int rc) {
  return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZSESSIONMOVED;
}
bool ZooKeeperConnection::Answered(int rc) {
  return rc == ZOK || rc == ZNONODE || rc == ZNODEEXISTS || rc == ZBADVERSION;
}
bool ZooKeeperConnection::Expired(int rc) { return rc == ZSESSIONEXPIRED || rc == ZINVALIDSTATE || rc == ZCLOSING; }

absl::Status ZooKeeperConnection::ToStatus(int rc, const std::string& what) {
  const std::string text = fmt::format("ZooKeeper: {}: {}", what, zerror(rc));
  if (rc == ZNONODE) return absl::NotFoundError(text);
  if (rc == ZNODEEXISTS) return absl::AlreadyExistsError(text);
  if (rc == ZNOAUTH || rc == ZAUTHFAILED) {
    return absl::PermissionDeniedError(
        text +
        " (the cluster's znodes are only for those with its password: --zookeeper-digest-file or "
        "CELL_ZOOKEEPER_DIGEST_FILE; to read, that of cellctl secret reader is enough)");
  }
  return absl::UnavailableError(text);
}

int64_t ZooKeeperConnection::session_ns() const {
  return int64_t{handle_ != nullptr ? zoo_recv_timeout(handle_) : options_.session_ms} * 1'000'000;
}

void ZooKeeperConnection::Watch(zhandle_t*, int type, int state, const char*, void* context) {
  auto* const connection = static_cast<ZooKeeperConnection*>(context);
  if (type != ZOO_SESSION_EVENT) return connection->on_change_();
  // The C client has changed zoo_state before it calls this.
  {
    const std::lock_guard lock(connection->mutex_);
    connection->told_state_ = state;
  }
  connection->session_changed_.notify_all();
}

void ZooKeeperConnection::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  session_changed_.notify_all();
}

int ZooKeeperConnection::AwaitSession(int64_t until_ns) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const int state = zoo_state(handle_);
    // The C client is connected before it has sent the credentials, and tells so after that. A request that was sent in
    // between would be refused, or be sent without a creator for its ACL.
    const bool connected = state == ZOO_CONNECTED_STATE && told_state_ == ZOO_CONNECTED_STATE;
    const bool settled = connected || state == ZOO_AUTH_FAILED_STATE || state == ZOO_EXPIRED_SESSION_STATE;
    const int64_t left_ns = until_ns - options_.clock->NowNs();
    if (settled || stopping_) return state;
    if (left_ns <= 0) return state == ZOO_CONNECTED_STATE ? ZOO_CONNECTING_STATE : state;
    session_changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
  }
}

bool ZooKeeperConnection::AwaitRetry(int64_t until_ns) {
  if (AwaitSession(until_ns) == ZOO_CONNECTED_STATE) {
    const int64_t left_ns = until_ns - options_.clock->NowNs();
    std::unique_lock lock(mutex_);
    session_changed_.wait_for(lock, std::chrono::nanoseconds(std::min(left_ns, kRetryPauseNs)),
                              [this] { return stopping_; });
  }
  const std::lock_guard lock(mutex_);
  return !stopping_ && options_.clock->NowNs() <= until_ns;
}

absl::Status ZooKeeperConnection::Connect() {
  if (handle_ != nullptr) zookeeper_close(handle_);
  {
    const std::lock_guard lock(mutex_);
    told_state_ = 0;
  }
  handle_ =
      zookeeper_init(options_.servers.c_str(), &ZooKeeperConnection::Watch, options_.session_ms, nullptr, this, 0);
  if (handle_ == nullptr) {
    return absl::InvalidArgumentError(fmt::format("ZooKeeper at {}: {}", options_.servers, std::strerror(errno)));
  }
  const int64_t give_up_ns = options_.clock->NowNs() + std::min(2 * session_ns(), options_.connect_ns);
  int state = AwaitSession(give_up_ns);
  while (state == ZOO_CONNECTED_STATE) {
    if (options_.digest.empty()) return absl::OkStatus();
    // Before there is a connection, the C client may refuse credentials, and would go on without them. From now on it
    // sends them again with each connection.
    const int rc = zoo_add_auth(handle_, "digest", options_.digest.data(), Size(options_.digest), nullptr, nullptr);
    if (rc == ZOK) return absl::OkStatus();
    if (rc != ZINVALIDSTATE) return ToStatus(rc, "the digest");
    if (!AwaitRetry(give_up_ns)) break;  // The connection was lost at once.
    state = AwaitSession(give_up_ns);
  }
  if (state == ZOO_AUTH_FAILED_STATE) {
    return absl::PermissionDeniedError(fmt::format("ZooKeeper at {} rejected the digest", options_.servers));
  }
  const std::lock_guard lock(mutex_);
  if (stopping_) return absl::UnavailableError("this member is shutting down");
  return absl::UnavailableError(fmt::format("ZooKeeper does not answer at {}", options_.servers));
}

absl::Status ZooKeeperConnection::Failed(int rc, const std::string& what) {
  if (Expired(rc)) expired_ = true;
  return ToStatus(rc, what);
}

int ZooKeeperConnection::Retry(const std::function<int()>& call) {
  const int64_t give_up_ns = options_.clock->NowNs() + 2 * session_ns();
  for (;;) {
    const int rc = call();
    if (Answered(rc) || !Lost(rc) || !AwaitRetry(give_up_ns)) return rc;
  }
}

absl::StatusOr<std::string> ZooKeeperConnection::Get(const std::string& path, Stat* stat, bool watch) {
  buffer_.resize(kNodeBytesMaxOfZooKeeper);
  Stat ignored{};
  int size = 0;
  const int rc = Retry([&] {
    size = Size(buffer_);
    return zoo_wget(handle_, path.c_str(), watch ? &ZooKeeperConnection::Watch : nullptr, this, buffer_.data(), &size,
                    stat != nullptr ? stat : &ignored);
  });
  if (rc != ZOK) return Failed(rc, path);
  return buffer_.substr(0, static_cast<size_t>(std::max(size, 0)));
}

absl::StatusOr<std::vector<std::string>> ZooKeeperConnection::WatchChildren(const std::string& path, Stat* stat) {
  String_vector names{};
  const int rc =
      Retry([&] { return zoo_wget_children2(handle_, path.c_str(), &ZooKeeperConnection::Watch, this, &names, stat); });
  if (rc != ZOK) return Failed(rc, path);
  std::vector<std::string> children(names.data, names.data + names.count);
  deallocate_String_vector(&names);
  return children;
}

absl::StatusOr<Stat> ZooKeeperConnection::StatOf(const std::string& path) {
  Stat stat{};
  const int rc = Retry([&] { return zoo_exists(handle_, path.c_str(), 0, &stat); });
  if (rc != ZOK) return Failed(rc, path);
  return stat;
}

int ZooKeeperConnection::Create(const std::string& path, const std::string& data, int flags) {
  return zoo_create(handle_, path.c_str(), data.data(), Size(data), acl(), flags, nullptr, 0);
}

int ZooKeeperConnection::Set(const std::string& path, const std::string& data, int version) {
  return zoo_set(handle_, path.c_str(), data.data(), Size(data), version);
}

int ZooKeeperConnection::Multi(const std::vector<Op>& ops, Stat* stat) {
  std::vector<zoo_op_t> calls(ops.size());
  std::vector<zoo_op_result_t> results(ops.size());
  Stat ignored{};
  for (size_t i = 0; i < ops.size(); ++i) {
    const Op& op = ops[i];
    Stat* const its = i == 0 && stat != nullptr ? stat : &ignored;
    if (op.kind == Op::Kind::kSet) {
      zoo_set_op_init(&calls[i], op.path.c_str(), op.data.data(), Size(op.data), op.version, its);
    } else if (op.kind == Op::Kind::kCreate) {
      zoo_create_op_init(&calls[i], op.path.c_str(), op.data.data(), Size(op.data), acl(), /*mode=*/0, nullptr, 0);
    } else {
      zoo_delete_op_init(&calls[i], op.path.c_str(), op.version);
    }
  }
  return zoo_multi(handle_, static_cast<int>(calls.size()), calls.data(), results.data());
}

int ZooKeeperConnection::IsOurs(const std::string& path) {
  Stat stat{};
  int rc = zoo_exists(handle_, path.c_str(), 0, &stat);
  if (rc == ZOK && stat.ephemeralOwner != zoo_client_id(handle_)->client_id) rc = ZNODEEXISTS;
  return rc;
}

int ZooKeeperConnection::Sync(const std::string& path) {
  std::promise<int> synced;
  const int asked = zoo_async(
      handle_, path.c_str(),
      [](int result, const char*, const void* promise) {
        static_cast<std::promise<int>*>(const_cast<void*>(promise))->set_value(result);
      },
      &synced);
  return asked != ZOK ? asked : synced.get_future().get();
}

}  // namespace cell

#include "cell/cluster/zookeeper/zookeeper_connection.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "fmt/format.h"

namespace cell {
namespace {

constexpr size_t kNodeBytesMaxOfZooKeeper = size_t{1} << 20;

}  // namespace

ZooKeeperConnection::ZooKeeperConnection(const ZooKeeperOptions& options, std::function<void()> on_change)
    : options_(options), on_change_(std::move(on_change)) {
  zoo_set_debug_level(static_cast<ZooLogLevel>(0));  // We log lost connections ourselves.
}

ZooKeeperConnection::~ZooKeeperConnection() {
  if (handle_ != nullptr) zookeeper_close(handle_);
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
  if (rc == ZNOAUTH || rc == ZAUTHFAILED) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

int64_t ZooKeeperConnection::session_ns() const {
  return int64_t{handle_ != nullptr ? zoo_recv_timeout(handle_) : options_.session_ms} * 1'000'000;
}

void ZooKeeperConnection::Watch(zhandle_t*, int type, int, const char*, void* context) {
  if (type == ZOO_SESSION_EVENT) return;  // The result of each call shows the session's state.
  static_cast<ZooKeeperConnection*>(context)->on_change_();
}

absl::Status ZooKeeperConnection::Connect() {
  if (handle_ != nullptr) zookeeper_close(handle_);
  handle_ =
      zookeeper_init(options_.servers.c_str(), &ZooKeeperConnection::Watch, options_.session_ms, nullptr, this, 0);
  if (handle_ == nullptr) {
    return absl::InvalidArgumentError(fmt::format("ZooKeeper at {}: {}", options_.servers, std::strerror(errno)));
  }
  if (!options_.digest.empty()) {
    zoo_add_auth(handle_, "digest", options_.digest.data(), Size(options_.digest), nullptr, nullptr);
  }
  const int64_t give_up_ns = options_.clock->NowNs() + 2 * session_ns();
  while (zoo_state(handle_) != ZOO_CONNECTED_STATE) {
    if (zoo_state(handle_) == ZOO_AUTH_FAILED_STATE) {
      return absl::PermissionDeniedError(fmt::format("ZooKeeper at {} rejected the digest", options_.servers));
    }
    if (options_.clock->NowNs() > give_up_ns) {
      return absl::UnavailableError(fmt::format("ZooKeeper does not answer at {}", options_.servers));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return absl::OkStatus();
}

absl::Status ZooKeeperConnection::Failed(int rc, const std::string& what) {
  if (Expired(rc)) expired_ = true;
  return ToStatus(rc, what);
}

int ZooKeeperConnection::Retry(const std::function<int()>& call) {
  const int64_t give_up_ns = options_.clock->NowNs() + 2 * session_ns();
  for (;;) {
    const int rc = call();
    if (Answered(rc) || !Lost(rc) || options_.clock->NowNs() > give_up_ns || stopping_) return rc;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

absl::StatusOr<std::string> ZooKeeperConnection::Get(const std::string& path, Stat* stat, bool watch) {
  std::string data(kNodeBytesMaxOfZooKeeper, 0);
  Stat ignored{};
  int size = 0;
  const int rc = Retry([&] {
    size = Size(data);
    return zoo_wget(handle_, path.c_str(), watch ? &ZooKeeperConnection::Watch : nullptr, this, data.data(), &size,
                    stat != nullptr ? stat : &ignored);
  });
  if (rc != ZOK) return Failed(rc, path);
  data.resize(static_cast<size_t>(std::max(size, 0)));
  return data;
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

int ZooKeeperConnection::Create(const std::string& path, const std::string& data, int flags) {
  return zoo_create(handle_, path.c_str(), data.data(), Size(data), acl(), flags, nullptr, 0);
}

int ZooKeeperConnection::Set(const std::string& path, const std::string& data, int version) {
  return zoo_set(handle_, path.c_str(), data.data(), Size(data), version);
}

int ZooKeeperConnection::Delete(const std::vector<std::string>& paths) {
  std::vector<zoo_op_t> deletes(paths.size());
  std::vector<zoo_op_result_t> results(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) zoo_delete_op_init(&deletes[i], paths[i].c_str(), -1);
  return zoo_multi(handle_, static_cast<int>(paths.size()), deletes.data(), results.data());
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

#include "cell/cluster/zookeeper/zookeeper_membership.h"

#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "absl/types/span.h"
#include "cell/base/bytes.h"
#include "cell/base/random.h"
#include "cell/base/repeats.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/table_changes.h"
#include "cell/cluster/wake_function.h"
#include "cell/cluster/zookeeper/session_lease.h"
#include "cell/cluster/zookeeper/told_states.h"
#include "cell/cluster/zookeeper/uuid.h"
#include "cell/cluster/zookeeper/zookeeper_config.h"
#include "cell/cluster/zookeeper/zookeeper_connection.h"
#include "cell/cluster/zookeeper/zookeeper_table.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int kChangesMax = 100;
constexpr size_t kJobsMax = 256;  // Changes that are written at once.
// How many workers' znodes a member reads. Each takes a request, whenever a worker comes or goes.
constexpr size_t kWorkersReadMax = 1024;

using Config = ZooKeeperMembership::Config;

}  // namespace

class ZooKeeperMembership::Client {
 public:
  explicit Client(ZooKeeperOptions options) : options_(std::move(options)), root_("/" + options_.name) {
    Random random(static_cast<uint64_t>(options_.clock->NowNs()) ^ reinterpret_cast<uintptr_t>(this));
    id_ = fmt::format("{:016x}", random.Next());
  }
  ~Client() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    connection_.Stop();
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  // ---- Before the thread runs.

  absl::Status Open() {
    if (!connection_.connected()) RETURN_IF_ERROR(connection_.Connect());
    RETURN_IF_ERROR(Read());
    state_ = read_;
    to_tell_ = std::make_shared<const ClusterState>(read_);
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  absl::Status Join(Config wanted, const WorkerId& self, const ClusterState::Worker& worker,
                    const std::string& control) {
    self_ = ToString(self);
    if (ParseWorkerId(self_) != self) {
      return absl::InvalidArgumentError(fmt::format("{} is not a valid server name", ForMessage(self.server)));
    }
    announcement_ = ToText({worker, control});
    RETURN_IF_ERROR(connection_.Connect());
    wanted.uuid = NewUuid();
    const std::string config = ToJson(wanted);
    for (const auto& [path, data] : {std::pair(root_, config), std::pair(root_ + "/workers", std::string())}) {
      const int rc =
          connection_.Retry([&, &path = path, &data = data] { return connection_.Create(path, data, /*flags=*/0); });
      if (rc != ZOK && rc != ZNODEEXISTS) return ZooKeeperConnection::ToStatus(rc, path);
    }
    RETURN_IF_ERROR(ConvertCluster(&connection_, root_));
    RETURN_IF_ERROR(table_.Create());
    ASSIGN_OR_RETURN(const std::string there, connection_.Get(root_, nullptr, false));
    ASSIGN_OR_RETURN(const Config theirs, ParseConfig(there));
    const std::string other = Differences({wanted.shape, wanted.durability}, {theirs.shape, theirs.durability});
    if (!other.empty()) {
      return absl::FailedPreconditionError(fmt::format(
          "this server was started with different constants from those of the cluster {}: {}", options_.name, other));
    }
    RETURN_IF_ERROR(Announce());
    return Open();
  }

  // Called instead of all others.
  absl::Status Delete(const std::string& uuid) {
    RETURN_IF_ERROR(connection_.Connect());
    RETURN_IF_ERROR(ReadConfig());
    if (read_.uuid != uuid) {
      return absl::FailedPreconditionError(
          fmt::format("the cluster {} was deleted and created again in the meantime", root_));
    }
    // ZooKeeper does not delete znodes with children: while there is a worker, nothing is deleted.
    std::vector<ZooKeeperConnection::Op> ops{{ZooKeeperConnection::Op::Kind::kDelete, root_ + "/workers", {}, -1}};
    ASSIGN_OR_RETURN(std::vector<std::string> paths, table_.Paths());
    paths.push_back(root_);
    for (std::string& path : paths) ops.push_back({ZooKeeperConnection::Op::Kind::kDelete, std::move(path), {}, -1});
    const int rc = connection_.Multi(ops, nullptr);
    if (rc == ZNOTEMPTY) {
      return absl::FailedPreconditionError(
          fmt::format("the cluster {} still has running servers: stop them first", options_.name));
    }
    return rc == ZOK ? absl::OkStatus() : ZooKeeperConnection::ToStatus(rc, root_);
  }

  // ---- For the owner's thread.

  const ClusterState& state() const { return state_; }
  bool pending() const { return pending_ > 0; }
  // Returns 0 until the owner has seen what others did while there was no session.
  int64_t lease_until_ns() const {
    if (self_.empty()) return INT64_MAX;
    return session_seen_ == session_.load(std::memory_order_acquire) ? lease_.until_ns() : 0;
  }
  uint64_t session() const { return session_seen_; }
  void SetWake(std::function<void()> wake) { wake_owner_.Set(std::move(wake)); }

  void Ask(TableChange change, Done done) {
    ++pending_;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(change), std::move(done)});
    }
    wake_.notify_all();
  }

  size_t Poll() {
    std::vector<ToldStates::Told> now = told_.Take();
    for (ToldStates::Told& told : now) {
      if (told.state != nullptr && told.state->table.version >= state_.table.version) {
        const uint64_t revision = state_.revision;
        state_ = *told.state;
        state_.revision = revision + 1;
      }
      session_seen_ = std::max(session_seen_, told.session);
      if (!told.done) continue;
      --pending_;
      told.done(told.status);
    }
    return now.size();
  }

 private:
  struct Job {
    TableChange change;  // Null: a refresh.
    Done done;
  };

  void OnChange() {
    {
      const std::lock_guard lock(mutex_);
      changed_ = true;
    }
    wake_.notify_all();
  }

  // Creates our ephemeral znode. One of an earlier session disappears when that session expires.
  absl::Status Announce() {
    const std::string path = root_ + "/workers/" + self_;
    const int64_t give_up_ns = options_.clock->NowNs() + 3 * connection_.session_ns();
    for (;;) {
      const auto create = [&] { return connection_.Create(path, announcement_, ZOO_EPHEMERAL); };
      int rc = lease_.Renew(connection_.session_ns(), create, [](int result) { return result == ZOK; });
      if (rc == ZNODEEXISTS) rc = connection_.IsOurs(path);
      if (rc == ZOK) return absl::OkStatus();
      if (!ZooKeeperConnection::Lost(rc) && rc != ZNODEEXISTS && rc != ZNONODE) {
        return ZooKeeperConnection::ToStatus(rc, path);
      }
      if (options_.clock->NowNs() > give_up_ns) {
        if (rc == ZNODEEXISTS) {
          return absl::AlreadyExistsError(
              fmt::format("a worker {} is already in the cluster {}", self_, options_.name));
        }
        return ZooKeeperConnection::ToStatus(rc, path);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  // Makes a request that ZooKeeper's leader answers: a change, or a sync. It renews the lease if our znode exists.
  int Confirmed(const std::function<int()>& call) {
    return announced_ ? lease_.Renew(connection_.session_ns(), call, ZooKeeperConnection::Answered) : call();
  }

  // Reads into read_ what has changed. Watches report the next change.
  absl::Status Read() {
    if (!watching_ || !IsCurrent()) {
      if (workers_version_ < 0) {
        RETURN_IF_ERROR(ReadConfig());
        RETURN_IF_ERROR(ReadTable());  // For WorkersAmong.
      }
      RETURN_IF_ERROR(ReadWorkers());
      RETURN_IF_ERROR(ReadTable());
      watching_ = true;
    }
    read_in_ = session_;
    return absl::OkStatus();
  }

  // Returns whether read_ is what ZooKeeper has. Takes two small requests, however large the cluster is.
  bool IsCurrent() {
    const absl::StatusOr<Stat> workers = connection_.StatOf(root_ + "/workers");
    return workers.ok() && workers->cversion == workers_version_ && table_.IsCurrent();
  }

  absl::Status ReadTable() {
    RETURN_IF_ERROR(table_.Read());
    if (std::exchange(read_zxid_, table_.zxid()) == table_.zxid()) return absl::OkStatus();
    read_.table = table_.table();
    ReadChanged();
    return absl::OkStatus();
  }

  void ReadChanged() { to_tell_ = nullptr; }

  // Renews the lease between other requests, of which there may be many: whoever may change znodes can keep this thread
  // reading.
  void RenewIfDue() {
    const int64_t session_ns = connection_.session_ns();
    const int64_t renewed_ns = lease_.until_ns() - SessionLease::LastsNs(session_ns);
    if (announced_ && options_.clock->NowNs() > renewed_ns + session_ns / 8) Renew();
  }

  void Renew() {
    const int rc = connection_.Retry([&] { return ConfirmedSync(root_); });
    if (ZooKeeperConnection::Expired(rc)) connection_.set_expired(true);
  }

  int ConfirmedSync(const std::string& path) {
    return Confirmed([&] { return connection_.Sync(path); });
  }

  // Reads the state with all changes that were made before the call. Otherwise a following ZooKeeper server may lag
  // behind.
  absl::Status ReadNewest() {
    const std::string table = root_ + "/table";
    const int rc = connection_.Retry([&] { return ConfirmedSync(table); });
    if (rc != ZOK) return connection_.Failed(rc, table);
    return Read();
  }

  absl::Status ReadConfig() {
    const absl::StatusOr<std::string> config = connection_.Get(root_, nullptr, false);
    if (config.status().code() == absl::StatusCode::kNotFound) {
      return absl::NotFoundError(fmt::format(
          "there is no cluster {} in the ZooKeeper at {}: start one with ./bazelw run //tools:up -- --zookeeper {} "
          "--name {}",
          options_.name, options_.servers, options_.servers, options_.name));
    }
    if (!config.ok()) return config.status();
    ASSIGN_OR_RETURN(const Config parsed, ParseConfig(*config));
    read_.uuid = parsed.uuid;
    read_.shape = parsed.shape;
    read_.durability = parsed.durability;
    return absl::OkStatus();
  }

  absl::Status ReadWorkers() {
    const std::string workers = root_ + "/workers";
    Stat stat{};
    ASSIGN_OR_RETURN(const std::vector<std::string> children, connection_.WatchChildren(workers, &stat));
    if (stat.cversion == workers_version_) return absl::OkStatus();  // It grows with each znode that comes or goes.
    std::map<std::string, std::map<uint32_t, ClusterState::Worker>> servers;
    std::map<std::string, std::string> controls;
    for (const WorkerId& id : WorkersAmong(children)) {
      RenewIfDue();  // Reading many of them may take longer than a lease.
      const absl::StatusOr<std::string> data =
          connection_.Get(fmt::format("{}/{}", workers, ToString(id)), nullptr, false);
      if (data.status().code() == absl::StatusCode::kNotFound) continue;  // Gone meanwhile.
      if (!data.ok()) return data.status();
      const WorkerText worker = WorkerOf(id, *data);
      servers[id.server][id.worker] = worker.worker;
      controls[id.server] = worker.control;
    }
    read_.servers.clear();
    for (const auto& [name, its] : servers) {
      ClusterState::Server server{name, std::vector<ClusterState::Worker>(its.rbegin()->first + 1), controls[name]};
      for (const auto& [index, worker] : its) server.workers[index] = worker;
      read_.servers.push_back(std::move(server));
    }
    workers_version_ = stat.cversion;
    ReadChanged();
    return absl::OkStatus();
  }

  // Returns the workers whose znodes are to be read: if there are too many, those that are known or own regions, so
  // that whoever adds others does not displace them.
  std::vector<WorkerId> WorkersAmong(const std::vector<std::string>& children) {
    std::vector<WorkerId> all;
    for (const std::string& child : children) {
      if (const std::optional<WorkerId> id = ParseWorkerId(child)) {
        all.push_back(*id);
      } else {
        Warn("ignored",
             fmt::format("ZooKeeper: ignoring {}/workers/{}, which is not a worker's znode", root_, ForMessage(child)));
      }
    }
    if (all.size() <= kWorkersReadMax) return all;
    Warn("many", fmt::format("ZooKeeper: {}/workers lists {} workers; ignoring those beyond {}", root_, all.size(),
                             kWorkersReadMax));
    std::set<WorkerId> first;
    for (const auto& [region, entry] : read_.table.regions) first.insert(entry.owner);
    for (const ClusterState::Server& server : read_.servers) {
      for (uint32_t i = 0; i < server.workers.size(); ++i) first.insert({server.name, i});
    }
    std::stable_partition(all.begin(), all.end(), [&first](const WorkerId& id) { return first.contains(id); });
    all.resize(kWorkersReadMax);
    return all;
  }

  // Parses a worker's znode. An invalid text still belongs to a worker that is alive and serves. In that case the
  // former values stay, or the worker has an unusable address and gets no regions.
  WorkerText WorkerOf(const WorkerId& id, const std::string& text) {
    absl::StatusOr<WorkerText> worker = ParseWorkerText(text);
    if (worker.ok()) return *std::move(worker);
    Warn("malformed", fmt::format("ZooKeeper: the znode of worker {} is malformed: {}", ToString(id),
                                  std::string(worker.status().message())));
    const ClusterState::Server* const server = read_.FindServer(id.server);
    const ClusterState::Worker* const known = read_.FindWorker(id);
    return {known != nullptr ? *known : ClusterState::Worker{"unknown", 0}, server != nullptr ? server->control : ""};
  }

  // Makes changes, and sets the result of each. Returns an error that is not a change's own: then the outcome of all is
  // unknown.
  absl::Status ChangeTable(absl::Span<const TableChange* const> changes, absl::Span<absl::Status> results) {
    const std::string id = fmt::format("{}/{}", id_, ++changes_);
    bool sent = false;
    for (int tries = 0; tries < kChangesMax; ++tries) {
      RETURN_IF_ERROR(ReadTable());
      if (sent && read_.table.WasMade(id)) return absl::OkStatus();  // By a call whose answer was lost.
      RegionTable table = read_.table;
      const std::vector<absl::Status> applied = ApplyChanges(changes, &table);
      std::copy(applied.begin(), applied.end(), results.begin());
      if (std::none_of(applied.begin(), applied.end(), [](const absl::Status& one) { return one.ok(); })) {
        return absl::OkStatus();
      }
      ++table.version;
      table.Made(id);
      absl::StatusOr<int> rc;
      (void)Confirmed([&] {
        rc = table_.Write(std::move(table));
        return rc.value_or(ZMARSHALLINGERROR);
      });
      if (!rc.ok()) return ChangeInHalves(changes, results, rc.status());
      sent = true;
      if (*rc == ZOK) return ReadTable();
      // BADVERSION: another member was faster, or our own earlier call was, if its answer was lost.
      if (*rc != ZBADVERSION && !ZooKeeperConnection::Lost(*rc)) return connection_.Failed(*rc, root_ + "/table");
    }
    return absl::UnavailableError("the region table could not be changed, because other servers keep changing it");
  }

  // Makes changes that there is no room for together.
  absl::Status ChangeInHalves(absl::Span<const TableChange* const> changes, absl::Span<absl::Status> results,
                              const absl::Status& why) {
    if (changes.size() == 1) {
      results[0] = why;
      return absl::OkStatus();
    }
    const size_t half = changes.size() / 2;
    RETURN_IF_ERROR(ChangeTable(changes.first(half), results.first(half)));
    return ChangeTable(changes.subspan(half), results.subspan(half));
  }

  // Makes the changes among `jobs`, and answers all of these jobs.
  void Do(std::vector<Job> jobs) {
    std::vector<const TableChange*> changes;
    for (const Job& job : jobs) {
      if (job.change) changes.push_back(&job.change);
    }
    std::vector<absl::Status> results(changes.size());
    absl::Status changed, read;
    if (!changes.empty()) changed = ChangeTable(changes, absl::MakeSpan(results));
    // Also reads what a faster member wrote.
    if (!changed.ok() || changes.size() < jobs.size()) read = ReadNewest();
    auto result = results.begin();
    for (Job& job : jobs) {
      absl::Status status = read;
      if (job.change) status = changed.ok() ? *result : changed, ++result;
      Tell(std::move(job.done), std::move(status));
    }
  }

  void Run() {
    announced_ = !self_.empty();
    for (;;) {
      std::vector<Job> jobs;
      bool refresh = false;
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::nanoseconds(connection_.session_ns() / 8),
                       [this] { return stopping_ || changed_ || !jobs_.empty(); });
        if (stopping_) break;
        while (!jobs_.empty() && jobs.size() < kJobsMax) {
          jobs.push_back(std::move(jobs_.front()));
          jobs_.pop_front();
        }
        if (jobs.empty()) refresh = std::exchange(changed_, false);
      }
      if (connection_.expired()) Rejoin();
      if (!jobs.empty()) {
        Do(std::move(jobs));
      } else if (refresh) {
        const absl::Status status = Read();
        if (status.ok()) {
          Tell(nullptr, absl::OkStatus());
        } else if (!connection_.expired()) {
          Warn("unread",
               fmt::format("{}; the cluster's state stays in use as it was last read", std::string(status.message())));
        }
        RenewIfDue();
      } else if (announced_) {
        Renew();
      }
    }
    const std::lock_guard lock(mutex_);
    for (Job& job : jobs_) {
      Tell(std::move(job.done), absl::UnavailableError("this member is shutting down"));
    }
    jobs_.clear();
  }

  // Tells the owner the state, unless it was told this one already.
  void Tell(Done done, absl::Status status) {
    const bool news = to_tell_ == nullptr;
    if (news) to_tell_ = std::make_shared<const ClusterState>(read_);
    told_.Tell({std::move(done), std::move(status), news ? to_tell_ : nullptr, read_in_});
    wake_owner_.Call();
  }

  // Begins a new session after the last one has expired, and creates our znode again.
  void Rejoin() {
    announced_ = false;
    watching_ = false;
    Warn("expired", "the session with ZooKeeper has expired");
    ++session_;  // The lease of the new session counts once the owner has seen it.
    absl::Status status = connection_.Connect();
    if (status.ok()) status = StillTheCluster();
    if (status.ok() && !self_.empty()) status = Announce();
    if (status.ok()) status = Read();
    if (!status.ok()) {
      const std::string why(status.message());
      Warn(why, why);
      return;
    }
    connection_.set_expired(false);
    announced_ = !self_.empty();
    Tell(nullptr, absl::OkStatus());
  }

  // Limits the warnings of a kind, because the attempts repeat several times a second, perhaps for long, and because
  // whoever may change znodes can cause any number.
  void Warn(const std::string& kind, const std::string& what) {
    if (const auto more = repeats_.Due(kind, options_.clock->NowNs())) spdlog::warn("{}{}", what, *more);
  }

  // Checks the identity: the cluster may have been deleted while there was no session, and another may have its name.
  absl::Status StillTheCluster() {
    const std::string before = read_.uuid;
    RETURN_IF_ERROR(ReadConfig());
    if (read_.uuid == before) return absl::OkStatus();
    read_.uuid = before;
    return absl::FailedPreconditionError(
        fmt::format("the cluster {} was deleted and a new one has its name: stop this server", options_.name));
  }

  const ZooKeeperOptions options_;
  const std::string root_;
  std::string id_;
  std::string self_;  // Empty: a client.
  std::string announcement_;
  uint64_t changes_ = 0;
  ClusterState read_;                            // State as read by the thread that talks to ZooKeeper.
  std::shared_ptr<const ClusterState> to_tell_;  // read_ as the owner was told it, or null if it has changed since.
  bool watching_ = false;                        // Watches report changes of what was read.
  uint64_t read_in_ = 1;                         // Session in which it was read.
  int workers_version_ = -1;                     // Version of its servers.
  int64_t read_zxid_ = 0;                        // That of its table (ZooKeeperTable::zxid).
  Repeats repeats_;
  bool announced_ = false;
  SessionLease lease_{options_.clock};
  std::atomic<uint64_t> session_ = 1;

  ClusterState state_;
  uint64_t session_seen_ = 1;
  size_t pending_ = 0;

  ToldStates told_;  // From that thread to the owner.
  WakeFunction wake_owner_;
  std::thread thread_;
  std::mutex mutex_;  // Guards jobs_, changed_ and stopping_.
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool changed_ = false;  // A watch has fired.
  bool stopping_ = false;

  ZooKeeperConnection connection_{options_, [this] { OnChange(); }};  // Calls OnChange until it is gone.
  ZooKeeperTable table_{&connection_, root_ + "/table", [this] { RenewIfDue(); }};
};

ZooKeeperMembership::ZooKeeperMembership(std::unique_ptr<Client> client) : client_(std::move(client)) {}
ZooKeeperMembership::~ZooKeeperMembership() = default;

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> ZooKeeperMembership::Open(const ZooKeeperOptions& options) {
  auto client = std::make_unique<Client>(options);
  RETURN_IF_ERROR(client->Open());
  return std::unique_ptr<ZooKeeperMembership>(new ZooKeeperMembership(std::move(client)));
}

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> ZooKeeperMembership::Join(const ZooKeeperOptions& options,
                                                                               const Config& config,
                                                                               const WorkerId& self,
                                                                               const ClusterState::Worker& worker,
                                                                               const std::string& control) {
  auto client = std::make_unique<Client>(options);
  RETURN_IF_ERROR(client->Join(config, self, worker, control));
  return std::unique_ptr<ZooKeeperMembership>(new ZooKeeperMembership(std::move(client)));
}

absl::Status ZooKeeperMembership::Delete(const ZooKeeperOptions& options, const std::string& uuid) {
  return Client(options).Delete(uuid);
}

const ClusterState& ZooKeeperMembership::state() const { return client_->state(); }
void ZooKeeperMembership::Refresh(Done done) { client_->Ask(nullptr, std::move(done)); }
void ZooKeeperMembership::Change(TableChange change, Done done) { client_->Ask(std::move(change), std::move(done)); }
size_t ZooKeeperMembership::Poll() { return client_->Poll(); }
bool ZooKeeperMembership::pending() const { return client_->pending(); }
bool ZooKeeperMembership::SetWake(std::function<void()> wake) {
  client_->SetWake(std::move(wake));
  return true;
}
int64_t ZooKeeperMembership::LeaseUntilNs() const { return client_->lease_until_ns(); }
uint64_t ZooKeeperMembership::session() const { return client_->session(); }

}  // namespace cell

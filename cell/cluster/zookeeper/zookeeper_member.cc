#include "cell/cluster/zookeeper/zookeeper_member.h"

#include <zookeeper/zookeeper.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/table_changes.h"
#include "cell/cluster/zookeeper/uuid.h"
#include "cell/cluster/zookeeper/zookeeper_config.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int kChangesMax = 100;
constexpr size_t kJobsMax = 256;  // Changes that are written at once.
// How many workers' znodes a member reads. Each takes a request, whenever a worker comes or goes.
constexpr size_t kWorkersReadMax = 1024;

// Returns a text that no other member has.
std::string NewId(const ZooKeeperOptions& options, const void* self) {
  Random random(static_cast<uint64_t>(options.clock->NowNs()) ^ reinterpret_cast<uintptr_t>(self));
  return fmt::format("{:016x}", random.Next());
}

}  // namespace

ZooKeeperMember::ZooKeeperMember(ZooKeeperOptions options)
    : options_(std::move(options)), root_("/" + options_.name), id_(NewId(options_, this)) {}

ZooKeeperMember::~ZooKeeperMember() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  connection_.Stop();
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status ZooKeeperMember::Open() {
  if (!connection_.connected()) RETURN_IF_ERROR(connection_.Connect());
  RETURN_IF_ERROR(Read());
  asked_ns_ = options_.clock->NowNs();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status ZooKeeperMember::Join(Config wanted, const WorkerId& self, const ClusterState::Worker& worker,
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

absl::Status ZooKeeperMember::Delete(const std::string& uuid) {
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

void ZooKeeperMember::Add(std::shared_ptr<ToldStates> to) {
  const std::lock_guard lock(mutex_);
  told_.push_back(std::move(to));
}

void ZooKeeperMember::Remove(const std::shared_ptr<ToldStates>& to) {
  const std::lock_guard lock(mutex_);
  std::erase(told_, to);
}

void ZooKeeperMember::Refresh(std::shared_ptr<ToldStates> to, Done done) { Ask({std::move(to), std::move(done)}); }

void ZooKeeperMember::Change(std::shared_ptr<ToldStates> to, TableChange change, Done done) {
  Ask({std::move(to), std::move(done), std::move(change)});
}

void ZooKeeperMember::CheckCluster(std::shared_ptr<ToldStates> to, Done done) {
  Ask({std::move(to), std::move(done), nullptr, /*check=*/true});
}

void ZooKeeperMember::Learn(const std::shared_ptr<ToldStates>& from, const std::shared_ptr<const ClusterState>& state) {
  for (const std::shared_ptr<ToldStates>& to : AllTold()) {
    if (to != from) to->Tell({nullptr, absl::OkStatus(), state, 0});
  }
}

void ZooKeeperMember::Ask(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify_all();
}

void ZooKeeperMember::OnChange() {
  {
    const std::lock_guard lock(mutex_);
    changed_ = true;
  }
  wake_.notify_all();
}

absl::Status ZooKeeperMember::Announce() {
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
        return absl::AlreadyExistsError(fmt::format("a worker {} is already in the cluster {}", self_, options_.name));
      }
      return ZooKeeperConnection::ToStatus(rc, path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

absl::Status ZooKeeperMember::Read() {
  if (!watching_ || !IsCurrent()) {
    watching_ = false;
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

bool ZooKeeperMember::IsCurrent() {
  const absl::StatusOr<Stat> workers = connection_.StatOf(root_ + "/workers");
  return workers.ok() && workers->cversion == workers_version_ && table_.IsCurrent();
}

absl::Status ZooKeeperMember::ReadTable() {
  RETURN_IF_ERROR(table_.Read());
  if (read_made_zxid_ != 0 && table_.made_zxid() != read_made_zxid_) RETURN_IF_ERROR(StillTheCluster());
  read_made_zxid_ = table_.made_zxid();
  if (std::exchange(read_zxid_, table_.zxid()) == table_.zxid()) return absl::OkStatus();
  read_.table = table_.table();
  state_ = nullptr;
  return absl::OkStatus();
}

void ZooKeeperMember::RenewIfDue() {
  const int64_t session_ns = connection_.session_ns();
  const int64_t renewed_ns = lease_.until_ns() - SessionLease::LastsNs(session_ns);
  if (announced_ && options_.clock->NowNs() > renewed_ns + session_ns / 8) Renew();
}

void ZooKeeperMember::Renew() {
  const int rc = connection_.Retry([&] { return ConfirmedSync(root_); });
  if (ZooKeeperConnection::Expired(rc)) connection_.set_expired(true);
}

absl::Status ZooKeeperMember::ReadNewest() {
  const std::string table = root_ + "/table";
  const int rc = connection_.Retry([&] { return ConfirmedSync(table); });
  if (rc != ZOK) return connection_.Failed(rc, table);
  return Read();
}

absl::Status ZooKeeperMember::ReadConfig() {
  ASSIGN_OR_RETURN(const Config config, ConfigOf());
  read_.uuid = config.uuid;
  read_.shape = config.shape;
  read_.durability = config.durability;
  return absl::OkStatus();
}

absl::StatusOr<ZooKeeperMember::Config> ZooKeeperMember::ConfigOf() {
  const absl::StatusOr<std::string> config = connection_.Get(root_, nullptr, false);
  if (config.status().code() == absl::StatusCode::kNotFound) {
    return absl::NotFoundError(fmt::format(
        "there is no cluster {} in the ZooKeeper at {}: start one with ./bazelw run //tools:up -- --zookeeper {} "
        "--name {}",
        options_.name, options_.servers, options_.servers, options_.name));
  }
  if (!config.ok()) return config.status();
  return ParseConfig(*config);
}

absl::Status ZooKeeperMember::ReadWorkers() {
  const std::string workers = root_ + "/workers";
  Stat stat{};
  ASSIGN_OR_RETURN(const std::vector<std::string> children, connection_.WatchChildren(workers, &stat));
  const bool made_again = workers_made_zxid_ != 0 && stat.czxid != workers_made_zxid_;
  if (made_again) RETURN_IF_ERROR(StillTheCluster());
  // It grows with each znode that comes or goes.
  if (!made_again && stat.cversion == workers_version_) return absl::OkStatus();
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
  read_.servers_version = static_cast<uint64_t>(stat.pzxid);
  workers_version_ = stat.cversion;
  workers_made_zxid_ = stat.czxid;
  state_ = nullptr;
  return absl::OkStatus();
}

std::vector<WorkerId> ZooKeeperMember::WorkersAmong(const std::vector<std::string>& children) {
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

WorkerText ZooKeeperMember::WorkerOf(const WorkerId& id, const std::string& text) {
  absl::StatusOr<WorkerText> worker = ParseWorkerText(text);
  if (worker.ok()) return *std::move(worker);
  Warn("malformed", fmt::format("ZooKeeper: the znode of worker {} is malformed: {}", ToString(id),
                                std::string(worker.status().message())));
  const ClusterState::Server* const server = read_.FindServer(id.server);
  const ClusterState::Worker* const known = read_.FindWorker(id);
  return {known != nullptr ? *known : ClusterState::Worker{"unknown", 0}, server != nullptr ? server->control : ""};
}

absl::Status ZooKeeperMember::StillTheCluster() {
  ASSIGN_OR_RETURN(const Config config, ConfigOf());
  if (config.uuid == read_.uuid) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("the cluster {} was deleted and a new one has its name: {}",
                                                   options_.name, is_worker() ? "stop this server" : "open it again"));
}

absl::Status ZooKeeperMember::ChangeTable(absl::Span<const TableChange* const> changes,
                                          absl::Span<absl::Status> results) {
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

absl::Status ZooKeeperMember::ChangeInHalves(absl::Span<const TableChange* const> changes,
                                             absl::Span<absl::Status> results, const absl::Status& why) {
  if (changes.size() == 1) {
    results[0] = why;
    return absl::OkStatus();
  }
  const size_t half = changes.size() / 2;
  RETURN_IF_ERROR(ChangeTable(changes.first(half), results.first(half)));
  return ChangeTable(changes.subspan(half), results.subspan(half));
}

void ZooKeeperMember::Do(std::vector<Job> jobs) {
  std::vector<const TableChange*> changes;
  bool check = false;
  for (const Job& job : jobs) {
    if (job.change) changes.push_back(&job.change);
    check |= job.check;
  }
  std::vector<absl::Status> results(changes.size());
  absl::Status same, changed, read;
  if (check) same = StillTheCluster();
  if (!changes.empty()) changed = ChangeTable(changes, absl::MakeSpan(results));
  // Also reads what a faster member wrote.
  if (!changed.ok() || changes.size() < jobs.size()) read = ReadNewest();
  auto result = results.begin();
  for (Job& job : jobs) {
    absl::Status status = job.check && !same.ok() ? same : read;
    if (job.change) status = changed.ok() ? *result : changed, ++result;
    Tell(job.to.get(), std::move(job.done), std::move(status));
  }
}

void ZooKeeperMember::Run() {
  announced_ = is_worker();
  int64_t rejoin_ns = 0;  // A new session is not begun before.
  for (;;) {
    std::vector<Job> jobs;
    bool refresh = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::nanoseconds(connection_.session_ns() / 8),
                     [this] { return stopping_ || changed_ || !jobs_.empty(); });
      if (stopping_) return;
      while (!jobs_.empty() && jobs.size() < kJobsMax) {
        jobs.push_back(std::move(jobs_.front()));
        jobs_.pop_front();
      }
      if (jobs.empty()) refresh = std::exchange(changed_, false);
    }
    if (!jobs.empty()) asked_ns_ = options_.clock->NowNs();
    DisconnectIfIdle();
    // If it fails for long, as when the cluster is gone, those who ask must not begin a session with each question.
    const bool wanted = connection_.connected() || !jobs.empty();
    if (connection_.expired() && wanted && options_.clock->NowNs() >= rejoin_ns) {
      Rejoin();
      rejoin_ns = options_.clock->NowNs() + connection_.session_ns() / 8;
    }
    if (!jobs.empty()) {
      Do(std::move(jobs));
    } else if (!connection_.connected()) {
      continue;
    } else if (refresh) {
      const absl::Status status = Read();
      if (status.ok()) {
        TellAll();
      } else if (!connection_.expired()) {
        Warn("unread",
             fmt::format("{}; the cluster's state stays in use as it was last read", std::string(status.message())));
      }
      RenewIfDue();
    } else if (announced_) {
      Renew();
    }
  }
}

void ZooKeeperMember::Tell(ToldStates* to, Done done, absl::Status status) {
  if (state_ == nullptr) state_ = std::make_shared<const ClusterState>(read_);
  to->Tell({std::move(done), std::move(status), state_, read_in_});
}

std::vector<std::shared_ptr<ToldStates>> ZooKeeperMember::AllTold() {
  const std::lock_guard lock(mutex_);
  return told_;
}

void ZooKeeperMember::TellAll() {
  for (const std::shared_ptr<ToldStates>& to : AllTold()) Tell(to.get(), nullptr, absl::OkStatus());
}

void ZooKeeperMember::DisconnectIfIdle() {
  if (is_worker() || !connection_.connected() || options_.clock->NowNs() - asked_ns_ < options_.idle_ns) return;
  connection_.Disconnect();
  watching_ = false;
}

void ZooKeeperMember::Rejoin() {
  announced_ = false;
  watching_ = false;
  if (connection_.connected()) Warn("expired", "the session with ZooKeeper has expired");
  ++session_;  // The lease of the new session counts once the owner has seen it.
  absl::Status status = connection_.Connect();
  if (status.ok()) status = StillTheCluster();
  if (status.ok() && is_worker()) status = Announce();
  if (status.ok()) status = Read();
  if (!status.ok()) {
    const std::string why(status.message());
    Warn(why, why);
    return;
  }
  connection_.set_expired(false);
  announced_ = is_worker();
  TellAll();
}

void ZooKeeperMember::Warn(const std::string& kind, const std::string& what) {
  if (const auto more = repeats_.Due(kind, options_.clock->NowNs())) spdlog::warn("{}{}", what, *more);
}

}  // namespace cell

#include "cell/cluster/zookeeper/zookeeper_membership.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <semaphore>
#include <tuple>
#include <utility>

#include "cell/base/forks.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/zookeeper/zookeeper_member.h"

namespace cell {
namespace {

// The member of a cluster that the clients in this process share.
struct SharedMember {
  std::mutex mutex;  // Guards `member` and `why`. Held while a member is opened, which others wait for.
  std::weak_ptr<ZooKeeperMember> member;
  std::atomic<uint64_t> failures = 0;  // How often that failed...
  absl::Status why;                    // ...and why it did the last time.
};

// A process that was forked has members of its own, because it has none of its parent's threads.
SharedMember* SharedMemberOf(const ZooKeeperOptions& options) {
  using Key = std::tuple<int, std::string, std::string, std::string, int, const Clock*>;
  static std::mutex mutex;
  static auto* const members = new std::map<Key, std::unique_ptr<SharedMember>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<SharedMember>& shared =
      (*members)[{Forks(), options.servers, options.name, options.digest, options.session_ms, options.clock}];
  if (shared == nullptr) shared = std::make_unique<SharedMember>();
  return shared.get();
}

}  // namespace

ZooKeeperMembership::ZooKeeperMembership(std::shared_ptr<ZooKeeperMember> member)
    : member_(std::move(member)), told_(std::make_shared<ToldStates>()) {
  member_->Add(told_);
}

ZooKeeperMembership::~ZooKeeperMembership() {
  told_->SetWake(nullptr);
  member_->Remove(told_);
}

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> ZooKeeperMembership::Of(std::shared_ptr<ZooKeeperMember> member) {
  std::unique_ptr<ZooKeeperMembership> membership(new ZooKeeperMembership(std::move(member)));
  absl::Status opened;
  bool done = false;
  std::binary_semaphore news(0);
  membership->SetWake([&news] { news.release(); });
  ++membership->pending_;
  membership->member_->CheckCluster(membership->told_, [&](const absl::Status& status) {
    opened = status;
    done = true;
  });
  while (!done) {
    if (membership->Poll() == 0) news.acquire();
  }
  membership->SetWake(nullptr);
  RETURN_IF_ERROR(opened);
  return membership;
}

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> ZooKeeperMembership::Open(const ZooKeeperOptions& options) {
  SharedMember* const shared = SharedMemberOf(options);
  const uint64_t failures = shared->failures;
  std::unique_lock lock(shared->mutex);
  std::shared_ptr<ZooKeeperMember> member = shared->member.lock();
  if (member != nullptr) {
    lock.unlock();  // So that all who wait for an answer wait for it together.
    absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> membership = Of(member);
    // The cluster may have been deleted and made again. This member stays with those who have opened the former one.
    if (!absl::IsFailedPrecondition(membership.status())) return membership;
    lock.lock();
    if (shared->member.lock() == member) shared->member.reset();
    member = shared->member.lock();
  }
  if (member == nullptr) {
    // Those who have waited for an attempt that failed do not each make their own, one after the other.
    if (shared->failures != failures) return shared->why;
    member = std::make_shared<ZooKeeperMember>(options);
    if (absl::Status opened = member->Open(); !opened.ok()) {
      ++shared->failures;
      shared->why = opened;
      return opened;
    }
    shared->member = member;
  }
  lock.unlock();
  return Of(std::move(member));
}

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> ZooKeeperMembership::Join(const ZooKeeperOptions& options,
                                                                               const Config& config,
                                                                               const WorkerId& self,
                                                                               const ClusterState::Worker& worker,
                                                                               const std::string& control) {
  auto member = std::make_shared<ZooKeeperMember>(options);
  RETURN_IF_ERROR(member->Join(config, self, worker, control));
  return Of(std::move(member));
}

absl::Status ZooKeeperMembership::Delete(const ZooKeeperOptions& options, const std::string& uuid) {
  return ZooKeeperMember(options).Delete(uuid);
}

void ZooKeeperMembership::Refresh(Done done) {
  ++pending_;
  member_->Refresh(told_, std::move(done));
}

void ZooKeeperMembership::Change(TableChange change, Done done) {
  ++pending_;
  member_->Change(told_, std::move(change), std::move(done));
}

void ZooKeeperMembership::Take(const ClusterState& state) {
  if (state_.revision == 0) {  // The first one, with all the constants.
    state_ = state;
    state_.revision = 1;
  } else {
    state_.TakeNewer(state);
  }
}

bool ZooKeeperMembership::learns() const { return !member_->is_worker(); }

void ZooKeeperMembership::Learn(std::shared_ptr<const ClusterState> state) {
  Take(*state);
  member_->Learn(told_, state);
}

size_t ZooKeeperMembership::Poll() {
  std::vector<ToldStates::Told> now = told_->Take();
  for (ToldStates::Told& told : now) {
    if (told.state != nullptr) Take(*told.state);
    session_seen_ = std::max(session_seen_, told.session);
    if (!told.done) continue;
    --pending_;
    told.done(told.status);
  }
  return now.size();
}

bool ZooKeeperMembership::SetWake(std::function<void()> wake) {
  told_->SetWake(std::move(wake));
  return true;
}

int64_t ZooKeeperMembership::LeaseUntilNs() const {
  if (!member_->is_worker()) return INT64_MAX;
  // Not before the owner has seen what others did while there was no session.
  return session_seen_ == member_->session() ? member_->lease_until_ns() : 0;
}

}  // namespace cell

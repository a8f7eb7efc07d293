#include "cell/server/change/migrator.h"

#include <algorithm>

#include "cell/base/mutant.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/membership_await.h"
#include "cell/server/region/commit_table_change.h"
#include "cell/server/report/status_report.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

// Copying ends when the pages written meanwhile are this small a share of the region, or when rounds do not get
// shorter.
constexpr uint64_t kFewShare = 1024;
constexpr int kRoundsMax = 12;
constexpr uint32_t kRunPagesMax = 64;  // Per read.
constexpr int64_t kOfferedPatience = 10;
constexpr size_t kReadPartsMax = 16;    // At once...
constexpr uint32_t kReadPagesMax = 64;  // ...and together.
constexpr size_t kWhyBytesMax = 300;
constexpr int64_t kSettlePauseNs = 50'000;
constexpr int64_t kSettleNsMax = 100'000'000;  // How long a frozen region waits for the end of transactions.

absl::Status NoSuchMigration(uint32_t region) {
  return absl::FailedPreconditionError(fmt::format("this worker is not migrating region {}, or no longer", region));
}

// Returns PermissionDenied if the peer is not this server: one may not act for another.
absl::Status CheckIsServer(const Identity& peer, const std::string& server) {
  if (peer == IdentityOf(Role::kServer, server)) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format("{} may not act for {}", ToString(peer), ForMessage(server)));
}

std::string EncodeOutcomes(const Outcomes& outcomes) {
  std::string encoded;
  if (Mutated(Mutant::kOutcomesStay)) return encoded;
  outcomes.ForEach([&encoded](const Outcome& outcome) { encoded += EncodeOutcome(outcome); });
  return encoded;
}

}  // namespace

Migrator::Migrator(const WorkerContext& context, MigratorOptions options)
    : self_(context.self),
      clock_(context.clock),
      membership_(context.membership),
      scheduler_(context.scheduler),
      regions_(context.regions),
      peers_(context.peers),
      logs_(context.logs),
      sync_points_(context.sync_points),
      options_(options) {
  scheduler_->InterruptOnStop(&outgoing_ended_);
  context.status->Add([this](nlohmann::json* status) {
    (*status)["migrations"] = {{"sent", counters_.sent},
                               {"received", counters_.received},
                               {"failed", counters_.failed},
                               {"pages", counters_.pages},
                               {"longest_frozen_us", static_cast<double>(counters_.longest_frozen_ns) / 1e3}};
  });
}

// ---- The source.

Task<absl::Status> Migrator::Migrate(uint32_t id, WorkerId to) {
  const RegionTable::Entry* entry = membership_->state().table.Find(id);
  if (entry == nullptr || entry->owner != self_) {  // The table may be out of date.
    (void)co_await RefreshAwaiter(membership_);
    entry = membership_->state().table.Find(id);
  }
  HeldRegion* const region = regions_->Find(id);
  if (region == nullptr || entry == nullptr || entry->owner != self_) {
    co_return absl::NotFoundError(fmt::format("region {} is not held by this worker", id));
  }
  if (!region->claimable()) co_return absl::AbortedError(fmt::format("region {} is busy", id));
  if (to == self_) co_return absl::OkStatus();  // It is there already.
  if (region->log != nullptr && !region->log->status().ok()) co_return region->log->status();
  RegionClaim claim(region, ClaimPurpose::kMigrate);
  Outgoing& outgoing =
      outgoing_.emplace(id, Outgoing(std::move(claim), entry->epoch, to, regions_->shape().region_bytes()))
          .first->second;
  outgoing.heard_ns = clock_->NowNs();
  const std::shared_ptr<std::string> why = outgoing.why;
  sync_points_->Reach("migration: source: before the offer");
  std::string offer = MakeMigrationRequest(MigrationStep::kOffer, id, outgoing.epoch, self_.worker, self_.server);
  const absl::StatusOr<std::string> reply = co_await peers_->Call(to, std::move(offer));
  std::vector<PageRun> none;
  absl::Status status = reply.ok() ? ParseMigrationReply(AsBytes(*reply), &none).status() : reply.status();
  if (!status.ok()) {  // If the offer did arrive, its target may have begun, and Step handles that.
    const auto it = outgoing_.find(id);
    if (it != outgoing_.end() && !it->second.begun()) EndOutgoing(id, MigrationPhase::kKept);
  }
  while (outgoing_.contains(id) && !scheduler_->stopping()) co_await outgoing_ended_.Wait(scheduler_);
  const HeldRegion* const kept = regions_->Find(id);
  if (kept == nullptr) co_return absl::OkStatus();
  if (status.ok() && kept->log != nullptr) status = kept->log->status();
  if (status.ok()) {
    status = absl::FailedPreconditionError(
        fmt::format("{} did not accept region {}: {}", ToString(to), id, why->empty() ? "it stopped answering" : *why));
  }
  ++counters_.failed;
  co_return status;
}

size_t Migrator::ServeMigration(const IncomingCall& call, MutableBytes to) {
  const absl::StatusOr<Parsed<MigrationRequest>> request = ParseMigrationRequest(call.request);
  absl::Status status = request.status();
  Outgoing* tell = nullptr;
  if (status.ok()) status = ServeStep(call, *request, &tell);
  if (!status.ok()) return WriteErrorReply(to, MessageKind::kMigration, status);
  if (tell != nullptr && request->fixed.step == MigrationStep::kOutcomes) {
    return WriteOutcomesReply(to, std::string_view(tell->outcomes).substr(request->fixed.worker));
  }
  if (tell != nullptr) return WriteRuns(to, regions_->Find(request->fixed.region), tell);
  Store(to.data(), ReplyOf<MigrationReply>(MessageKind::kMigration));
  return sizeof(MigrationReply);
}

absl::Status Migrator::ServeStep(const IncomingCall& call, const Parsed<MigrationRequest>& request, Outgoing** tell) {
  const uint32_t id = request.fixed.region;
  if (request.fixed.step == MigrationStep::kOffer) {
    if (scheduler_->stopping() || membership_->state().table.draining.contains(self_.server)) {
      return absl::ResourceExhaustedError(fmt::format("{} does not accept regions", self_.server));
    }
    const WorkerId from{std::string(request.key), request.fixed.worker};
    RETURN_IF_ERROR(CheckIsServer(*call.from, from.server));
    if (from == self_) return absl::InvalidArgumentError(fmt::format("{} offers a region to itself", ToString(from)));
    RETURN_IF_ERROR(regions_->CheckRoomBeside(membership_->state().table, self_));
    RETURN_IF_ERROR(regions_->Expect(id));  // A source that got no answer offers it again.
    scheduler_->Spawn(Pull(id, request.fixed.epoch, from));
    return absl::OkStatus();
  }
  HeldRegion* const region = regions_->Find(id);
  const auto it = outgoing_.find(id);
  if (region == nullptr || region->lost() || it == outgoing_.end() || it->second.epoch != request.fixed.epoch ||
      it->second.phase() == MigrationPhase::kSettling) {
    return NoSuchMigration(id);
  }
  Outgoing& outgoing = it->second;
  RETURN_IF_ERROR(CheckIsServer(*call.from, outgoing.to.server));
  const bool cancels = request.fixed.step == MigrationStep::kCancel;
  if (cancels) *outgoing.why = std::string(request.key.substr(0, kWhyBytesMax));
  if (cancels && !outgoing.begun()) {
    EndOutgoing(id, MigrationPhase::kKept);
    return absl::OkStatus();
  }
  // Otherwise its target would wait forever.
  if (outgoing.phase() != MigrationPhase::kSealed && region->log != nullptr && !region->log->status().ok()) {
    absl::Status failed = region->log->status();
    EndOutgoing(id, MigrationPhase::kKept);
    return failed;
  }
  // Its writes wait meanwhile, and the transaction may have to wait for a server that is away.
  const bool waits = outgoing.phase() == MigrationPhase::kFrozen && !region->transactions.empty();
  if (waits && clock_->NowNs() - *outgoing.frozen_ns > kSettleNsMax) {
    region->EndParts(clock_->NowNs());
    *outgoing.why = "transactions of the region have not ended yet: try again";
    EndOutgoing(id, MigrationPhase::kKept);
    return absl::UnavailableError(fmt::format("transactions of region {} have not ended yet", id));
  }
  const bool begins = request.fixed.step == MigrationStep::kBegin;
  if (begins == outgoing.begun() || (outgoing.begun() && outgoing.target != call.peer)) return NoSuchMigration(id);
  outgoing.heard_ns = clock_->NowNs();
  switch (request.fixed.step) {
    case MigrationStep::kBegin:
      outgoing.ChangePhase(MigrationPhase::kCopying);
      outgoing.target = call.peer;
      *tell = &outgoing;
      sync_points_->Reach("migration: source: begun");
      return absl::OkStatus();
    case MigrationStep::kWritten:
      *tell = &outgoing;
      sync_points_->Reach("migration: source: copying");
      return absl::OkStatus();
    case MigrationStep::kFreeze:
      if (outgoing.phase() != MigrationPhase::kCopying) return NoSuchMigration(id);
      outgoing.ChangePhase(MigrationPhase::kFrozen);
      outgoing.frozen_ns = clock_->NowNs();
      region->ChangeState(RegionState::kFrozen);
      *tell = &outgoing;
      sync_points_->Reach("migration: source: frozen");
      return absl::OkStatus();
    case MigrationStep::kSeal:
      if (outgoing.phase() != MigrationPhase::kFrozen || outgoing.pending.count() != 0 || !Settled(region)) {
        return NoSuchMigration(id);
      }
      outgoing.ChangePhase(MigrationPhase::kSealed);
      region->ChangeState(Mutated(Mutant::kSealedTooLate) ? RegionState::kServing : RegionState::kSealed);
      if (!Mutated(Mutant::kSealedTooLate)) region->store->Invalidate();
      sync_points_->Reach("migration: source: sealed");
      return absl::OkStatus();
    case MigrationStep::kDone:
      if (outgoing.phase() != MigrationPhase::kSealed) return NoSuchMigration(id);
      EndOutgoing(id, MigrationPhase::kMigrated);
      return absl::OkStatus();
    case MigrationStep::kCancel:
      Abandon(id);
      return absl::OkStatus();
    case MigrationStep::kOutcomes:
      if (outgoing.phase() != MigrationPhase::kFrozen) return NoSuchMigration(id);
      if (request.fixed.worker == 0) outgoing.outcomes = EncodeOutcomes(region->outcomes);
      if (request.fixed.worker > outgoing.outcomes.size()) {
        return absl::InvalidArgumentError("there are fewer outcomes than that");
      }
      *tell = &outgoing;
      return absl::OkStatus();
    case MigrationStep::kOffer:
      break;
  }
  return NoSuchMigration(id);
}

bool Migrator::Settled(HeldRegion* region) {
  if (!region->transactions.empty()) return false;
  if (region->log == nullptr) return true;
  region->RequestFlush();
  region->memory->header().log_sequence = region->log->appended();
  return region->pending.empty() && region->log->durable() == region->log->appended();
}

size_t Migrator::WriteRuns(MutableBytes to, HeldRegion* region, Outgoing* outgoing) const {
  const bool frozen = outgoing->phase() >= MigrationPhase::kFrozen;
  const bool settled = !frozen || Settled(region);
  region->written->Mark(0, sizeof(RegionHeader));  // Mark the header: its counts are not stored through RegionMemory.
  outgoing->pending.Add(*region->written);
  outgoing->noted.Add(*region->written);
  region->written->Clear();
  MigrationReply reply{};
  size_t bytes = sizeof(reply);
  while (bytes + sizeof(PageRun) <= to.size()) {
    const auto [first, pages] = outgoing->pending.TakeRun(kRunPagesMax);
    if (pages == 0) break;
    Store(to.data() + bytes, PageRun{first, pages});
    bytes += sizeof(PageRun);
    ++reply.runs;
  }
  reply.more = static_cast<uint32_t>(outgoing->pending.count()) + (settled ? 0 : 1);
  reply.header = {MessageKind::kMigration, 0, static_cast<uint32_t>(bytes)};
  Store(to.data(), reply);
  return bytes;
}

void Migrator::Abandon(uint32_t id) {
  Outgoing& outgoing = outgoing_.at(id);
  if (outgoing.phase() != MigrationPhase::kSealed) return EndOutgoing(id, MigrationPhase::kKept);
  outgoing.ChangePhase(MigrationPhase::kSettling);
  scheduler_->Spawn(Settle(id));
}

// When it ends in kKept, the region is as before: it was not sealed, or is restored.
void Migrator::EndOutgoing(uint32_t id, MigrationPhase end) {
  const auto it = outgoing_.find(id);
  it->second.ChangePhase(end);
  HeldRegion* const region = regions_->Find(id);
  if (it->second.frozen_ns.has_value()) {
    counters_.longest_frozen_ns =
        std::max(counters_.longest_frozen_ns, static_cast<uint64_t>(clock_->NowNs() - *it->second.frozen_ns));
  }
  if (end == MigrationPhase::kMigrated) {
    ++counters_.sent;
    spdlog::info("region {} was migrated to {}", id, ToString(it->second.to));
    regions_->Drop(id);
  } else {
    region->written->Add(it->second.noted);
    if (!region->lost() && region->state() != RegionState::kServing) region->ChangeState(RegionState::kServing);
  }
  outgoing_.erase(it);
  outgoing_ended_.Notify();
  if (end == MigrationPhase::kMigrated) sync_points_->Reach("migration: source: done");
}

void Migrator::Disconnected(ConnectionId peer) {
  for (auto& [id, outgoing] : outgoing_) {
    if (outgoing.begun() && outgoing.target == peer) outgoing.heard_ns = INT64_MIN / 2;
  }
}

void Migrator::Step() {
  EndMigrated();
  std::vector<uint32_t> silent;
  for (const auto& [id, outgoing] : outgoing_) {
    const int64_t patience_ns = (outgoing.begun() ? 1 : kOfferedPatience) * options_.silence_ns;
    const bool settling = outgoing.phase() == MigrationPhase::kSettling;
    if (!settling && clock_->NowNs() - outgoing.heard_ns > patience_ns) silent.push_back(id);
  }
  for (const uint32_t id : silent) {
    Outgoing& outgoing = outgoing_.at(id);
    if (const auto more = repeats_.Due(ToString(outgoing.to), clock_->NowNs())) {
      spdlog::warn("{} stopped answering during the migration of region {}{}", ToString(outgoing.to), id, *more);
    }
    Abandon(id);
  }
}

// Done may come late or not at all, and until then nobody serves the region's waiting writes.
void Migrator::EndMigrated() {
  if (outgoing_.empty() || membership_->state().revision == seen_revision_) return;
  seen_revision_ = membership_->state().revision;
  std::vector<uint32_t> migrated;
  for (const auto& [id, outgoing] : outgoing_) {
    const RegionTable::Entry* entry = membership_->state().table.Find(id);
    const bool moved = entry != nullptr && entry->epoch > outgoing.epoch;
    if (outgoing.phase() == MigrationPhase::kSealed && moved) migrated.push_back(id);
  }
  for (const uint32_t id : migrated) EndOutgoing(id, MigrationPhase::kMigrated);
}

// Returns the change that makes this worker the owner, from the owner at `epoch`. It succeeds if it was made before and
// its answer was lost. A claim by the recoverer does not count as that.
Membership::TableChange Migrator::ClaimHere(uint32_t id, uint64_t epoch) const {
  return [id, epoch, self = self_](RegionTable* table) {
    const RegionTable::Entry* entry = table->Find(id);
    const bool made = entry != nullptr && entry->owner == self && entry->epoch == epoch + 1 && !entry->recovering;
    return made ? absl::OkStatus() : table->Move(id, epoch, self);
  };
}

// Settles the owner of a sealed region whose target went silent: reads it from the table, or takes the region back.
Task<bool> Migrator::Settle(uint32_t id) {
  const uint64_t epoch = outgoing_.at(id).epoch;
  const absl::Status status = co_await CommitTableChange(membership_, scheduler_, ClaimHere(id, epoch));
  if (absl::IsUnavailable(status)) co_return false;  // This server ends.
  if (!status.ok()) {
    EndOutgoing(id, MigrationPhase::kMigrated);
    co_return true;
  }
  spdlog::info("the migration of region {} was cancelled; it stays on this worker", id);
  HeldRegion* const region = regions_->Find(id);
  region->TakeBackAt(epoch + 1);
  (void)co_await logs_->Continue(id, epoch + 1);
  if (!region->lost()) region->store->Restore();
  EndOutgoing(id, MigrationPhase::kKept);
  co_return true;
}

// ---- The target.

Task<bool> Migrator::Pull(uint32_t id, uint64_t epoch, WorkerId from) {
  const absl::Status has_log = co_await HasLog(id);
  const absl::StatusOr<RegionMemory*> memory = has_log.ok() ? regions_->Receive(id) : has_log;
  if (!memory.ok()) {
    regions_->Unexpect(id);
    absl::Status status = memory.status();
    co_return co_await Refuse(id, epoch, std::move(from), std::move(status));
  }
  // Pages that were never written are not copied, and unused slots must be zeros (pilaf/hash_layout.h).
  if ((*memory)->header().magic != 0) {
    for (uint64_t at = kRegionHeaderBytes; at < regions_->shape().extents_offset() && !scheduler_->stopping();) {
      at = regions_->Zero(*memory, at, options_.zeroed_bytes);
      co_await scheduler_->Yield();
    }
  }
  auto written = std::make_unique<WrittenPages>(regions_->shape().region_bytes());
  peers_->ForgetRegion(from, id);
  StagedCopy copy(*memory, regions_->shape());
  Outcomes outcomes;
  Incoming incoming{id, epoch, from, *memory, &copy, written.get(), &outcomes};
  absl::Status status = co_await Copy(incoming);
  if (status.ok()) status = co_await Commit(incoming);
  peers_->ForgetRegion(from, id);  // Else its mapping would stay for ever.
  if (!status.ok()) {
    regions_->NotArrived(id, *memory, *written);
    co_return co_await Refuse(id, epoch, std::move(from), std::move(status));
  }
  HeldRegion* const region = regions_->Arrived(id, *memory, std::move(written), epoch + 1,
                                               logs_->on() ? RegionState::kFrozen : RegionState::kServing);
  region->store->Restore();
  region->outcomes = std::move(outcomes);
  if (logs_->on()) {
    const RegionClaim claim(region, ClaimPurpose::kMigrate);
    (void)co_await logs_->Continue(id, epoch + 1);  // If this fails, the region can be read but not written.
    region->Unfreeze();
  }
  ++counters_.received;
  spdlog::info("region {} was migrated here from {}", id, ToString(from));
  sync_points_->Reach("migration: target: serves");
  std::string done = MakeMigrationRequest(MigrationStep::kDone, id, epoch);
  (void)co_await peers_->Call(from, std::move(done));  // If it does not arrive, the source reads the table.
  co_return true;
}

Task<bool> Migrator::Refuse(uint32_t id, uint64_t epoch, WorkerId from, absl::Status why) {
  ++counters_.failed;
  std::string reason(why.message().substr(0, kWhyBytesMax));
  // A stranger may offer regions under any name.
  const bool member = membership_->state().FindWorker(from) != nullptr;
  if (const auto more = repeats_.Due(member ? ToString(from) + reason : "of strangers", clock_->NowNs())) {
    spdlog::warn("region {} was not migrated here from {}: {}{}", id,
                 member ? ToString(from) : ForMessage(ToString(from)), reason, *more);
  }
  std::string cancel = MakeMigrationRequest(MigrationStep::kCancel, id, epoch, self_.worker, reason);
  (void)co_await peers_->Call(from, std::move(cancel));  // If it does not arrive, the source gets no further message.
  co_return false;
}

Task<absl::Status> Migrator::HasLog(uint32_t id) {
  if (!logs_->on()) co_return absl::OkStatus();
  const RunInPool::Work look = [this, id]() -> absl::Status {
    ASSIGN_OR_RETURN(const bool has, logs_->store()->Has(id));
    if (has) return absl::OkStatus();
    return absl::FailedPreconditionError("its log was not found: all servers must use the same --log-store");
  };
  co_return co_await logs_->RunOnDisk(look);
}

Task<absl::Status> Migrator::Copy(Incoming incoming) {
  absl::StatusOr<uint64_t> pages = co_await CopyWritten(incoming, MigrationStep::kBegin);
  sync_points_->Reach("migration: target: first copy");
  const uint64_t few = 1 + regions_->shape().region_bytes() / WrittenPages::kPageBytes / kFewShare;
  uint64_t last = UINT64_MAX;
  for (int round = 0; pages.ok() && *pages > few && *pages < last && round < kRoundsMax; ++round) {
    last = *pages;
    pages = co_await CopyWritten(incoming, MigrationStep::kWritten);
    if (scheduler_->stopping()) co_return absl::CancelledError("this server is shutting down");
  }
  if (pages.ok()) pages = co_await CopyWritten(incoming, MigrationStep::kFreeze);
  if (!pages.ok()) co_return pages.status();
  if (absl::Status status = co_await CopyOutcomes(incoming); !status.ok()) co_return status;
  sync_points_->Reach("migration: target: last copy");
  co_return regions_->CheckHeader(*incoming.memory, incoming.region);
}

Task<absl::Status> Migrator::CopyOutcomes(const Incoming& incoming) {
  std::string encoded;
  for (uint32_t left = 1; left > 0;) {
    std::string request = MakeMigrationRequest(MigrationStep::kOutcomes, incoming.region, incoming.epoch,
                                               static_cast<uint32_t>(encoded.size()));
    const absl::StatusOr<std::string> answer = co_await peers_->Call(incoming.from, std::move(request));
    if (!answer.ok()) co_return answer.status();
    const absl::StatusOr<Parsed<OutcomesReply>> reply = ParseOutcomesReply(AsBytes(*answer));
    if (!reply.ok()) co_return reply.status();
    encoded += reply->value;
    left = reply->fixed.left;
    if (encoded.size() > Outcomes::kMax * kOutcomeBytesMax || (left > 0 && reply->value.empty())) {
      co_return absl::DataLossError(fmt::format("{} sent more outcomes than there can be", ToString(incoming.from)));
    }
  }
  for (std::string_view rest = encoded; !rest.empty();) {
    const std::optional<size_t> bytes = OutcomeBytes(rest);
    if (!bytes.has_value()) {
      co_return absl::DataLossError(fmt::format("{} sent a malformed outcome", ToString(incoming.from)));
    }
    incoming.outcomes->Remember(DecodeOutcome(rest.substr(0, *bytes)));
    rest.remove_prefix(*bytes);
  }
  co_return absl::OkStatus();
}

Task<absl::StatusOr<uint64_t>> Migrator::CopyWritten(const Incoming& incoming, MigrationStep step) {
  uint64_t copied = 0;
  for (uint32_t more = 1; more > 0; step = MigrationStep::kWritten) {
    std::string request = MakeMigrationRequest(step, incoming.region, incoming.epoch);
    const absl::StatusOr<std::string> answer = co_await peers_->Call(incoming.from, std::move(request));
    if (!answer.ok()) co_return answer.status();
    std::vector<PageRun> runs;
    const absl::StatusOr<MigrationReply> reply = ParseMigrationReply(AsBytes(*answer), &runs);
    if (!reply.ok()) co_return reply.status();
    more = reply->more;
    if (more > 0 && runs.empty()) co_await scheduler_->Sleep(kSettlePauseNs);
    const uint64_t pages_max = incoming.memory->bytes() / WrittenPages::kPageBytes;
    std::vector<std::byte> pages_read((kReadPagesMax + kRunPagesMax) * WrittenPages::kPageBytes);
    for (size_t at = 0; at < runs.size();) {
      std::vector<ReadPart> parts;
      std::vector<PageRun> placed;
      uint32_t pages = 0;
      for (; at < runs.size() && parts.size() < kReadPartsMax && pages < kReadPagesMax; ++at) {
        const PageRun run = runs[at];
        if (run.pages == 0 || run.pages > kRunPagesMax || run.first >= pages_max || run.pages > pages_max - run.first) {
          co_return absl::DataLossError(
              fmt::format("{} sent page numbers that are out of range", ToString(incoming.from)));
        }
        const uint64_t offset = uint64_t{run.first} * WrittenPages::kPageBytes;
        const uint64_t bytes = uint64_t{run.pages} * WrittenPages::kPageBytes;
        std::byte* const to = pages_read.data() + uint64_t{pages} * WrittenPages::kPageBytes;
        parts.push_back({Pointer(incoming.region, offset), to, static_cast<uint32_t>(bytes)});
        placed.push_back(run);
        incoming.written->Mark(offset, bytes);
        pages += run.pages;
      }
      absl::Status status = co_await peers_->Read(incoming.from, parts);
      std::byte* from = pages_read.data();
      for (const PageRun run : placed) {
        if (status.ok())
          status = incoming.copy->WritePages(from, uint64_t{run.first} * WrittenPages::kPageBytes, run.pages);
        from += uint64_t{run.pages} * WrittenPages::kPageBytes;
      }
      if (!status.ok()) co_return status;
      copied += pages;
    }
  }
  counters_.pages += copied;
  co_return copied;
}

// Completes the migration, from the seal to the change of the table.
Task<absl::Status> Migrator::Commit(const Incoming& incoming) {
  std::string seal = MakeMigrationRequest(MigrationStep::kSeal, incoming.region, incoming.epoch);
  const absl::StatusOr<std::string> sealed = co_await peers_->Call(incoming.from, std::move(seal));
  if (!sealed.ok()) co_return sealed.status();
  std::vector<PageRun> none;
  const absl::StatusOr<MigrationReply> reply = ParseMigrationReply(AsBytes(*sealed), &none);
  if (!reply.ok()) co_return reply.status();
  sync_points_->Reach("migration: target: before the table");
  // Nobody may serve the region until it is known whether the table was changed. Aborted means that the source has
  // taken it back.
  const absl::Status status =
      co_await CommitTableChange(membership_, scheduler_, ClaimHere(incoming.region, incoming.epoch));
  sync_points_->Reach("migration: target: after the table");
  co_return status;
}

}  // namespace cell

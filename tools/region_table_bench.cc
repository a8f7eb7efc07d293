// region_table_bench makes, reads and changes the region table of a cluster in ZooKeeper whose servers are not there,
// to measure what that costs. tools/measure_region_table.py runs it. Each command prints one line of JSON.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/cluster/table_shards.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "cell/io/exec/system_clock.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int64_t kRenewEveryNs = kTableLeaseNs / 3;  // As TableView.
constexpr uint32_t kRegionsAtOnce = 5'000;

int64_t NowNs() { return SystemClock::Get()->NowNs(); }
void SleepNs(int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(std::max<int64_t>(ns, 0))); }

// Polls until `done()`, and sleeps meanwhile.
void PollUntil(Membership* membership, const std::function<bool()>& done) {
  std::counting_semaphore<> news(0);
  membership->SetWake([&news] { news.release(); });
  while (!done()) {
    if (membership->Poll() == 0) (void)news.try_acquire_for(std::chrono::milliseconds(100));
  }
  membership->SetWake(nullptr);
}

absl::Status Refresh(Membership* membership) {
  absl::Status status;
  bool done = false;
  membership->Refresh([&](const absl::Status& result) { status = result, done = true; });
  PollUntil(membership, [&done] { return done; });
  return status;
}

absl::StatusOr<std::unique_ptr<ZooKeeperMembership>> JoinAsWorker(const ZooKeeperOptions& options) {
  ZooKeeperMembership::Config config;
  config.shape = {.node_bytes = 1024, .meganode_bytes = 64 << 20, .extents_bytes = 64 << 20};
  return ZooKeeperMembership::Join(options, config, {"maker", 0}, {"nowhere", 0}, "");
}

// Makes changes, up to `at_once` of them in flight, until `make` has no more. Returns how many were made, or the first
// error.
absl::StatusOr<uint64_t> ChangeAll(Membership* membership, size_t at_once,
                                   const std::function<std::optional<Membership::TableChange>()>& make) {
  absl::Status status;
  uint64_t made = 0;
  size_t in_flight = 0;
  bool more = true;
  while (more || in_flight > 0) {
    while (more && in_flight < at_once) {
      std::optional<Membership::TableChange> change = make();
      more = change.has_value() && status.ok();
      if (!more) break;
      ++in_flight;
      membership->Change(*std::move(change), [&](const absl::Status& result) {
        --in_flight;
        ++made;
        status.Update(result);
      });
    }
    PollUntil(membership, [&, before = in_flight] { return in_flight == 0 || (more && in_flight < before); });
  }
  if (!status.ok()) return status;
  return made;
}

absl::Status Make(const ZooKeeperOptions& options, uint32_t regions, uint32_t servers) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ZooKeeperMembership> membership, JoinAsWorker(options));
  uint32_t added = 0;
  const auto add = [&]() -> std::optional<Membership::TableChange> {
    const uint32_t from = added, to = std::min(regions, added + kRegionsAtOnce);
    if (from == to) return std::nullopt;
    added = to;
    return [from, to, servers](RegionTable* table) {
      for (uint32_t i = from; i < to; ++i) {
        RETURN_IF_ERROR(table->Add({fmt::format("server-{}", i % servers), 0}).status());
      }
      return absl::OkStatus();
    };
  };
  const int64_t begin_ns = NowNs();
  RETURN_IF_ERROR(ChangeAll(membership.get(), 1, add).status());
  const double took_s = static_cast<double>(NowNs() - begin_ns) / 1e9;
  RegionTable table = membership->state().table;
  const RegionMap::Entries all(table.regions.begin(), table.regions.end());
  table.regions = RegionMap::Of(all);  // As if none of it were stored.
  const TableWrite write = WriteTable(RegionTable(), &table);
  size_t largest = 0;
  for (const TableWrite::Shard& shard : write.created) largest = std::max(largest, shard.bytes.size());
  fmt::print("{{\"seconds\": {:.3f}, \"bytes\": {}, \"root_bytes\": {}, \"shards\": {}, \"shard_bytes_max\": {}}}\n",
             took_s, write.bytes(), write.root.size(), write.created.size(), largest);
  return absl::OkStatus();
}

// Keeps the lease of a client that reads one-sided, until the standard input ends.
absl::Status Client(const ZooKeeperOptions& options) {
  const int64_t begin_ns = NowNs();
  ASSIGN_OR_RETURN(const std::unique_ptr<ZooKeeperMembership> membership, ZooKeeperMembership::Open(options));
  fmt::print("{{\"open_ms\": {:.1f}}}\n", static_cast<double>(NowNs() - begin_ns) / 1e6);
  std::fflush(stdout);
  Random random(static_cast<uint64_t>(::getpid()));
  SleepNs(static_cast<int64_t>(random.Below(kRenewEveryNs)));
  int64_t refresh_ns = 0;
  uint64_t refreshes = 0;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  while (::poll(&input, 1, 0) == 0) {
    const int64_t asked_ns = NowNs();
    RETURN_IF_ERROR(Refresh(membership.get()));
    refresh_ns += NowNs() - asked_ns;
    ++refreshes;
    SleepNs(asked_ns + kRenewEveryNs - NowNs());
  }
  RETURN_IF_ERROR(Refresh(membership.get()));
  fmt::print("{{\"refreshes\": {}, \"refresh_us\": {:.1f}, \"version\": {}}}\n", refreshes,
             static_cast<double>(refresh_ns) / 1e3 / static_cast<double>(std::max<uint64_t>(refreshes, 1)),
             membership->state().table.version);
  return absl::OkStatus();
}

// Keeps connections open that ask for nothing, until the standard input ends.
absl::Status Idle(ZooKeeperOptions options, size_t connections) {
  std::vector<std::unique_ptr<ZooKeeperMembership>> memberships;
  for (size_t i = 0; i < connections; ++i) {
    ++options.session_ms;  // Clients with the same options share a connection.
    ASSIGN_OR_RETURN(std::unique_ptr<ZooKeeperMembership> membership, ZooKeeperMembership::Open(options));
    memberships.push_back(std::move(membership));
  }
  fmt::print("{{\"connections\": {}}}\n", connections);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return absl::OkStatus();
}

// Moves regions at random.
absl::Status Change(const ZooKeeperOptions& options, double seconds, size_t at_once) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ZooKeeperMembership> membership, JoinAsWorker(options));
  Random random(1);
  const int64_t begin_ns = NowNs();
  const auto move = [&]() -> std::optional<Membership::TableChange> {
    if (static_cast<double>(NowNs() - begin_ns) > seconds * 1e9) return std::nullopt;
    const RegionTable& table = membership->state().table;
    const auto region = static_cast<uint32_t>(1 + random.Below(table.regions.size()));
    return [region](RegionTable* changed) {
      const RegionTable::Entry* const entry = changed->Find(region);
      if (entry == nullptr) return absl::NotFoundError("the regions are not numbered from 1");
      return changed->Move(region, entry->epoch, {"maker", 0});
    };
  };
  const uint64_t version = membership->state().table.version;
  ASSIGN_OR_RETURN(const uint64_t changes, ChangeAll(membership.get(), at_once, move));
  const double took_s = static_cast<double>(NowNs() - begin_ns) / 1e9;
  fmt::print("{{\"changes_per_s\": {:.1f}, \"writes_per_s\": {:.1f}}}\n", static_cast<double>(changes) / took_s,
             static_cast<double>(membership->state().table.version - version) / took_s);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  std::string cluster;
  uint32_t regions = 1'000, servers = 10;
  double seconds = 5;
  size_t at_once = 1;
  CLI::App app{"Make, read and change the region table of a cluster in ZooKeeper that has no servers, to measure it."};
  app.add_option("--cluster", cluster, "zk://HOST:PORT[,HOST:PORT...]/NAME")->required();
  CLI::App* const make = app.add_subcommand("make", "Make the cluster and its regions");
  make->add_option("--regions", regions)->check(CLI::Range(1u, 131'072u))->capture_default_str();
  make->add_option("--servers", servers, "How many servers hold them")
      ->check(CLI::Range(1u, 10'000u))
      ->capture_default_str();
  CLI::App* const client = app.add_subcommand("client", "Keep a client's lease until the standard input ends");
  CLI::App* const idle =
      app.add_subcommand("idle", "Keep connections that ask for nothing, until the standard input ends");
  size_t connections = 1;
  idle->add_option("--connections", connections)->check(CLI::Range(1u, 1'000u))->capture_default_str();
  CLI::App* const change = app.add_subcommand("change", "Move regions at random");
  change->add_option("--seconds", seconds)->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  change->add_option("--at-once", at_once, "Changes in flight")->check(CLI::Range(1u, 10'000u))->capture_default_str();
  app.require_subcommand(1);
  CLI11_PARSE(app, argc, argv);
  absl::StatusOr<ZooKeeperOptions> options = ZooKeeperOptions::Parse(cluster);
  const char* const digest = std::getenv("CELL_ZOOKEEPER_DIGEST");
  if (options.ok() && digest != nullptr) options->digest = digest;
  absl::Status status = options.status();
  if (status.ok() && make->parsed()) status = Make(*options, regions, servers);
  if (status.ok() && client->parsed()) status = Client(*options);
  if (status.ok() && idle->parsed()) status = Idle(*options, connections);
  if (status.ok() && change->parsed()) status = Change(*options, seconds, at_once);
  if (!status.ok()) fmt::print(stderr, "region_table_bench: {}\n", std::string(status.message()));
  return status.ok() ? 0 : 2;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

// cellctl: requests to the servers' control planes.
#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "cell/base/bytes.h"
#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "cell/control/tls_files.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/progress.h"

namespace cell {

absl::StatusOr<std::unique_ptr<ControlClient>> OpenControl(const Client::ServerInfo& server, const CtlFlags& flags) {
  std::optional<std::chrono::nanoseconds> timeout;
  if (flags.timeout_given) timeout = std::chrono::nanoseconds(static_cast<int64_t>(flags.timeout * 1e9));
  const TlsFiles tls{flags.client.tls_authority, flags.client.tls_certificate, flags.client.tls_key};
  return ControlClient::Open(server.name, server.control, tls, timeout);
}

namespace {

// Tells what a command has done, as a sentence or as JSON.
int Done(const CtlFlags& flags, const std::string& sentence, const nlohmann::json& json) {
  fmt::print("{}\n", flags.json() ? JsonText(json) : sentence);
  return kDone;
}

absl::StatusOr<std::unique_ptr<ControlClient>> ControlOf(Client* client, const CtlFlags& flags,
                                                         const std::string& name) {
  for (const auto& server : client->Servers()) {
    if (server.name != name) continue;
    if (server.control.empty()) return absl::UnavailableError(fmt::format("{} has no reachable control plane", name));
    return OpenControl(server, flags);
  }
  return absl::NotFoundError(fmt::format("no server named {} is in the cluster", ForMessage(name)));
}

// How long there may be no progress before a waiting user is told. A checkpoint of one region takes seconds.
constexpr std::chrono::seconds kPatience{120};
constexpr int kSilencesMax = 3;

// Counters of servers while they drain, rebalance and write checkpoints.
struct Moved {
  uint64_t held = 0, sent = 0, checkpoints = 0;
  bool operator==(const Moved&) const = default;
};

absl::StatusOr<Moved> Look(ControlClient* control) {
  ASSIGN_OR_RETURN(const std::vector<std::string> workers, control->Status());
  Moved moved;
  for (const std::string& text : workers) {
    ASSIGN_OR_RETURN(const nlohmann::json parsed, ParseJson(text));
    const JsonView json(parsed);
    moved.held += json["regions_held"].Or<uint64_t>(0);
    moved.sent += json["migrations"]["sent"].Or<uint64_t>(0);
    moved.checkpoints += json["logs"]["checkpoints"].Or<uint64_t>(0);
  }
  return moved;
}

// Executes `work`, which waits for `server`, on another thread, and shows its progress with `text`. Gives up if the
// server does not answer, or if there is no progress for kPatience.
template <typename Result>
Result Watch(Client* client, const CtlFlags& flags, const std::string& server, Progress* progress,
             const std::function<std::string(const Moved& now, const Moved& before)>& text,
             const std::function<Result(ControlClient*)>& work) {
  const auto control = ControlOf(client, flags, server), look = ControlOf(client, flags, server);
  if (!control.ok()) return control.status();
  if (!look.ok()) return look.status();
  std::future<Result> result = std::async(std::launch::async, [&] { return work(control->get()); });
  const absl::Cleanup cancel = [&] { (*control)->Cancel(); };  // Before `result` is waited for.
  std::optional<Moved> before, last;
  auto moved_at = std::chrono::steady_clock::now();
  for (int silences = 0; result.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready;) {
    const absl::StatusOr<Moved> now = Look(look->get());
    if (result.wait_for(std::chrono::seconds(0)) == std::future_status::ready) break;  // Its result is more precise.
    if (!now.ok() && ++silences == kSilencesMax) return now.status();
    if (!now.ok()) continue;
    silences = 0;
    if (!before.has_value()) before = *now;
    if (last != *now) moved_at = std::chrono::steady_clock::now();
    last = *now;
    progress->Show(0, [&] { return server + ": " + text(*now, *before); });
    if (std::chrono::steady_clock::now() - moved_at > kPatience) {
      return absl::DeadlineExceededError(fmt::format(
          "{} has made no progress for {} s; the operation continues there (cellctl status shows what is wrong)",
          server, kPatience.count()));
    }
  }
  progress->Clear();
  return result.get();
}

constexpr int kListedAgain = 3;

// The regions of the cluster: by its table, and as held by the servers that answer.
struct Listed {
  absl::Status failed;           // Why one of them does not answer.
  std::set<std::string> silent;  // Servers that do not answer.
  std::vector<ControlClient::Owner> owners;
  uint64_t version = 0;
  std::map<std::pair<std::string, uint32_t>, ControlClient::Region> held;  // Keyed by server and region.

  // Returns whether all regions are listed that their servers should hold.
  bool Whole() const {
    return std::all_of(owners.begin(), owners.end(), [this](const ControlClient::Owner& owner) {
      return owner.recovering || owner.in_making || silent.contains(owner.server) ||
             held.contains({owner.server, owner.region});
    });
  }
};

Listed ListAll(Client* client, const CtlFlags& flags) {
  Listed listed;
  for (const auto& server : client->Servers()) {
    const auto control = ControlOf(client, flags, server.name);
    const auto regions = control.ok() ? (*control)->ListRegions() : control.status();
    if (!regions.ok()) {
      listed.failed = regions.status();
      listed.silent.insert(server.name);
      continue;
    }
    for (const auto& region : regions->regions) listed.held[{server.name, region.region}] = region;
    if (regions->table_version < listed.version) continue;
    listed.version = regions->table_version;
    listed.owners = regions->owners;
  }
  return listed;
}

// Returns the owner of a region, which answers.
absl::StatusOr<ControlClient::Owner> OwnerOf(const Listed& listed, uint32_t region) {
  const auto is_it = [region](const ControlClient::Owner& owner) { return owner.region == region; };
  const auto owner = std::find_if(listed.owners.begin(), listed.owners.end(), is_it);
  if (owner == listed.owners.end()) {
    if (!listed.failed.ok()) return listed.failed;
    return absl::FailedPreconditionError(fmt::format("the cluster has no region {}", region));
  }
  if (listed.silent.contains(owner->server)) return listed.failed;
  return *owner;
}

// Executes `work`. Repeats it while a region migrates or is busy, up to the timeout of one operation.
absl::Status Repeat(const CtlFlags& flags, const std::function<absl::Status()>& work) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(flags.timeout);
  for (;;) {
    absl::Status status = work();
    const bool passing = absl::IsAborted(status) || absl::IsNotFound(status);
    if (!passing || std::chrono::steady_clock::now() >= end) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Executes `work`, repeatedly, at the server that owns the region, according to the newest region table of any server.
absl::Status DoAtOwner(Client* client, const CtlFlags& flags, const std::function<absl::Status(ControlClient*)>& work) {
  return Repeat(flags, [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const ControlClient::Owner owner, OwnerOf(ListAll(client, flags), flags.region));
    ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control, ControlOf(client, flags, owner.server));
    return work(control.get());
  });
}

// A meganode, and its left neighbour, which takes it in; or two parts of a table, of which the left one is below.
struct Neighbours {
  uint32_t left = 0, right = 0;
};

absl::StatusOr<Neighbours> NeighboursOf(const Listed& listed, uint32_t region) {
  ASSIGN_OR_RETURN(const ControlClient::Owner owner, OwnerOf(listed, region));
  const auto self = listed.held.find({owner.server, region});
  if (self == listed.held.end()) return absl::AbortedError(fmt::format("region {} is being moved", region));
  for (const auto& [place, held] : listed.held) {
    if (held.right == region) return Neighbours{held.region, region};
  }
  if (!listed.failed.ok()) return listed.failed;
  if (self->second.right == 0) {
    const std::string of = self->second.table.empty() ? "tier" : "table";
    return absl::FailedPreconditionError(
        fmt::format("region {} is the only one of its {}, and has no neighbour to be merged with", region, of));
  }
  return Neighbours{region, self->second.right};
}

// Has the region's left neighbour take it in or, if it is the leftmost, the region its right neighbour. The one of both
// with fewer keys moves to the other's worker first. Sets `merged` to both.
absl::Status MergeOnce(Client* client, const CtlFlags& flags, Neighbours* merged) {
  const Listed listed = ListAll(client, flags);
  ASSIGN_OR_RETURN(*merged, NeighboursOf(listed, flags.region));
  ASSIGN_OR_RETURN(ControlClient::Owner to, OwnerOf(listed, merged->left));
  ASSIGN_OR_RETURN(ControlClient::Owner from, OwnerOf(listed, merged->right));
  if (std::tie(to.server, to.worker) != std::tie(from.server, from.worker)) {
    const auto keys = [&listed](const ControlClient::Owner& owner) -> uint64_t {
      const auto held = listed.held.find({owner.server, owner.region});
      return held == listed.held.end() ? 0 : held->second.keys;
    };
    if (keys(from) > keys(to)) std::swap(from, to);
    ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control, ControlOf(client, flags, from.server));
    RETURN_IF_ERROR(control->Move(from.region, to.server, to.worker));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control, ControlOf(client, flags, to.server));
  return control->Join(merged->right);
}

}  // namespace

int Regions(Client* client, const CtlFlags& flags) {
  Listed listed = ListAll(client, flags);
  // A region that migrates while the servers are asked one after the other may be missed.
  for (int again = 0; again < kListedAgain && !listed.Whole(); ++again) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    listed = ListAll(client, flags);
  }
  std::vector<ControlClient::Owner>& owners = listed.owners;
  if (!flags.json()) {
    fmt::print("{:<12} {:>6} {:>8} {:>6} {:>5} {:>12} {:>7}  {}\n", "server", "worker", "region", "epoch", "tier",
               "keys", "fill", "table");
  }
  std::sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) {
    return std::tie(a.server, a.worker, a.region) < std::tie(b.server, b.worker, b.region);
  });
  std::set<std::string> with_regions;
  for (const ControlClient::Owner& owner : owners) {
    with_regions.insert(owner.server);
    const auto it = listed.held.find({owner.server, owner.region});
    const bool told = it != listed.held.end();
    std::string state = told ? it->second.state : "";
    if (!told) {
      state = owner.recovering                       ? "being recovered from its log"
              : listed.silent.contains(owner.server) ? "its server does not answer"
              : owner.in_making                      ? "being created"
                                                     : "not served: its server is gone, or does not serve it yet";
    }
    nlohmann::json json = {{"server", owner.server},
                           {"worker", owner.worker},
                           {"region", owner.region},
                           {"epoch", owner.epoch},
                           {"state", state},
                           {"served", told},
                           {"tier", 0},
                           {"keys", 0},
                           {"fill", 0.0},
                           {"table", ""},
                           {"busy", false}};
    if (told) {
      const ControlClient::Region& r = it->second;
      json.update({{"tier", r.tier}, {"keys", r.keys}, {"fill", r.fill}, {"table", r.table}, {"busy", r.busy}});
      if (r.busy) state.insert(0, state.empty() ? "busy" : "busy, ");
      if (!r.table.empty()) state.insert(0, r.table + (state.empty() ? "" : "  "));
    }
    if (flags.json()) {
      fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      continue;
    }
    const std::string where =
        fmt::format("{:<12} {:>6} {:>8} {:>6}", owner.server, owner.worker, owner.region, owner.epoch);
    if (!told) {
      fmt::print("{} {:>5} {:>12} {:>7}  {}\n", where, "-", "-", "-", state);
      continue;
    }
    const ControlClient::Region& r = it->second;
    fmt::print("{} {:>5} {:>12} {:>6.1f}%  {}\n", where, r.table.empty() ? fmt::format("{}", r.tier) : "-", r.keys,
               100 * r.fill, state);
  }
  for (const auto& server : client->Servers()) {
    if (flags.json() || with_regions.contains(server.name)) continue;
    // If no server could be asked, as without a certificate, it is not known who holds what.
    fmt::print("{:<12} {}\n", server.name,
               !listed.silent.contains(server.name) ? "holds no regions"
               : listed.version == 0                ? "could not be asked what it holds"
                                                    : "does not answer, and holds no regions");
  }
  return listed.failed.ok() ? kDone : Fail(listed.failed);
}

int Allocate(Client* client, const CtlFlags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::StatusOr<uint32_t> ready = control.ok() ? (*control)->Allocate(flags.allocate) : control.status();
  if (!ready.ok()) return Fail(ready.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"ready", *ready}}.dump());
  } else {
    fmt::print("{} has memory for {} more regions ready\n", flags.server, *ready);
  }
  return kDone;
}

int Split(Client* client, const CtlFlags& flags) {
  const absl::Status status =
      DoAtOwner(client, flags, [&flags](ControlClient* control) { return control->Split(flags.region); });
  if (!status.ok()) return Fail(status);
  return Done(flags, fmt::format("region {} was split", flags.region), {{"region", flags.region}});
}

int Merge(Client* client, const CtlFlags& flags) {
  Neighbours merged;
  const absl::Status status = Repeat(flags, [&] { return MergeOnce(client, flags, &merged); });
  if (!status.ok()) return Fail(status);
  return Done(flags, fmt::format("region {} was merged into region {}, its left neighbour", merged.right, merged.left),
              {{"region", merged.right}, {"into", merged.left}});
}

int Move(Client* client, const CtlFlags& flags) {
  const auto names = client->Servers();
  if (std::none_of(names.begin(), names.end(), [&flags](const auto& one) { return one.name == flags.server; })) {
    return Fail(absl::NotFoundError(fmt::format("no server named {} is in the cluster", ForMessage(flags.server))));
  }
  const absl::Status status = DoAtOwner(
      client, flags, [&flags](ControlClient* control) { return control->Move(flags.region, flags.server, 0); });
  if (!status.ok()) return Fail(status);
  return Done(flags, fmt::format("region {} is now on {}", flags.region, flags.server),
              {{"region", flags.region}, {"server", flags.server}});
}

namespace {

absl::Status CancelDrain(Client* client, const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ControlClient> control, ControlOf(client, flags, flags.server));
  ASSIGN_OR_RETURN(const std::vector<std::string> workers, control->Status());
  const bool draining = std::any_of(workers.begin(), workers.end(), [](const std::string& text) {
    const absl::StatusOr<nlohmann::json> json = ParseJson(text);
    return json.ok() && JsonView(*json)["draining"].Or(false);
  });
  if (!draining) return absl::FailedPreconditionError(fmt::format("{} is not draining", flags.server));
  return control->Drain(true);
}

}  // namespace

int Drain(Client* client, const CtlFlags& flags) {
  if (flags.cancel) {
    const absl::Status status = CancelDrain(client, flags);
    if (!status.ok()) return Fail(status);
    return Done(flags, fmt::format("the drain of {} was cancelled", flags.server),
                {{"server", flags.server}, {"draining", false}});
  }
  Progress progress("draining");
  const absl::Status status = Watch<absl::Status>(
      client, flags, flags.server, &progress,
      [](const Moved& now, const Moved& before) {
        return fmt::format("{} of {} regions left", now.held, std::max(before.held, now.held));
      },
      [](ControlClient* control) { return control->Drain(false); });
  if (!status.ok()) return Fail(status);
  return Done(flags, fmt::format("{} is drained: it holds no regions, and gets no new ones", flags.server),
              {{"server", flags.server}, {"draining", true}});
}

int Checkpoint(Client* client, const CtlFlags& flags) {
  uint64_t regions = 0, bytes = 0;
  for (const auto& server : client->Servers()) {
    Progress progress("writing checkpoints");
    const auto its = Watch<absl::StatusOr<ControlClient::Checkpoints>>(
        client, flags, server.name, &progress,
        [](const Moved& now, const Moved& before) {
          return fmt::format("{} of {} regions", now.checkpoints - before.checkpoints, now.held);
        },
        [](ControlClient* control) { return control->Checkpoint(); });
    if (!its.ok()) return Fail(its.status());
    regions += its->regions;
    bytes += its->bytes;
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"regions", regions}, {"bytes", bytes}}.dump());
  } else {
    fmt::print("checkpoints of {} regions, {:.1f} MB\n", regions, static_cast<double>(bytes) / 1e6);
  }
  return kDone;
}

int Rebalance(Client* client, const CtlFlags& flags) {
  uint64_t moved = 0;
  for (const auto& server : client->Servers()) {
    Progress progress("rebalancing");
    const auto its = Watch<absl::StatusOr<uint64_t>>(
        client, flags, server.name, &progress,
        [](const Moved& now, const Moved& before) {
          return fmt::format("{} regions migrated", now.sent - before.sent);
        },
        [](ControlClient* control) { return control->Rebalance(); });
    if (!its.ok()) return Fail(its.status());
    moved += *its;
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"moved", moved}}.dump());
  } else {
    fmt::print("{} regions migrated\n", moved);
  }
  return kDone;
}

int LogLevel(Client* client, const CtlFlags& flags) {
  const auto control = ControlOf(client, flags, flags.server);
  const absl::Status status = control.ok() ? (*control)->SetLogLevel(flags.level) : control.status();
  return status.ok() ? kDone : Fail(status);
}

}  // namespace cell

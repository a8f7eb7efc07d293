#include "cell/server/request/region_checks.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cell/layout/wire.h"
#include "fmt/format.h"

namespace cell {

absl::Status RegionChecks::Add(const IncomingCall& call, std::string_view text) {
  unsigned id = 0, first = 0;
  const int numbers = std::sscanf(std::string(text).c_str(), "%u %u", &id, &first);
  if (numbers < 1) return absl::InvalidArgumentError("a check request must contain \"REGION\" or \"REGION FIRST\"");
  const auto its = static_cast<size_t>(std::count_if(
      waiting_.begin(), waiting_.end(), [&call](const Waiting& one) { return one.call.peer == call.peer; }));
  if (its >= kPerPeerMax || waiting_.size() >= kWaitingMax) {
    ++refused_;
    return absl::ResourceExhaustedError(fmt::format(
        "{} checks are running or waiting on {}, {} of them for this client: try again when they have ended",
        waiting_.size(), server_, its));
  }
  std::optional<size_t> first_route;
  if (numbers == 2) first_route = first;
  waiting_.push_back({call, first_route, RegionCheck(regions_, server_, id)});
  waiting_.back().call.request = {};
  return absl::OkStatus();
}

size_t RegionChecks::Step() {
  if (waiting_.empty()) return 0;
  const absl::StatusOr<bool> ended = waiting_.front().check.Step(kBytesPerTurn);
  if (ended.ok() && !*ended) return 1;
  const Waiting done = std::move(waiting_.front());
  waiting_.pop_front();
  const MutableBytes to = replies_->Begin(done.call);
  if (!ended.ok()) {
    replies_->Finish(done.call, MessageKind::kCheck, to, ended.status());
    return 1;
  }
  const bool routes = done.first_route.has_value() && done.check.is_tree();
  const std::string text = routes ? done.check.Routes(*done.first_route) : done.check.Report();
  replies_->Finish(done.call, MessageKind::kCheck, to, WriteTextReply(to, MessageKind::kCheck, text));
  return 1;
}

void RegionChecks::Disconnected(ConnectionId peer) {
  waiting_.remove_if([peer](const Waiting& one) { return one.call.peer == peer; });
}

}  // namespace cell

#include "cell/server/report/lease_watch.h"

#include "cell/base/clock.h"
#include "cell/server/report/status_report.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

constexpr int64_t kLookEveryNs = 500'000;

}  // namespace

LeaseWatch::LeaseWatch(const WorkerContext& context)
    : self_(context.self), clock_(context.clock), membership_(context.membership) {
  context.status->Add([this](nlohmann::json* status) { (*status)["lease_lapsed"] = lapsed_; });
}

void LeaseWatch::Step() {
  const int64_t now_ns = clock_->NowNs();
  if (now_ns < look_at_ns_) return;
  look_at_ns_ = now_ns + kLookEveryNs;
  if ((now_ns > membership_->LeaseUntilNs()) == lapsed_) return;
  lapsed_ = !lapsed_;
  if (lapsed_) {
    spdlog::error("{} cannot renew its session, and will acknowledge no writes until it can", ToString(self_));
  } else {
    spdlog::info("{} has renewed its session", ToString(self_));
  }
}

}  // namespace cell

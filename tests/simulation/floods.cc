#include "tests/simulation/floods.h"

#include <utility>

#include "cell/layout/wire.h"

namespace cell {
namespace {

constexpr size_t kInFlightMax = 64;

}  // namespace

void Floods::Begin(size_t server, uint64_t seed, int64_t until_ns) {
  SimNetwork* const network = world_->cluster.network();
  Stranger* const stranger = strangers_.emplace_back(std::make_unique<Stranger>()).get();
  stranger->random = Random(seed);
  stranger->fabric = network->NewEndpoint(network->NewHost());
  if (world_->plan.users > 0) stranger->fabric->SetSelf({Role::kClient, SimulationPlan::NameOf(1)});
  stranger->connection = stranger->fabric->Connect(fmt::format("sim{}", server), INT64_MAX, stranger);
  stranger->fabric->Drive([this, stranger] { Turn(stranger); });
  world_->At(until_ns, [stranger] { Kill(stranger); });
}

void Floods::Turn(Stranger* stranger) {
  stranger->fabric->Poll();
  while (stranger->connected && stranger->left > 0 && stranger->fabric->in_flight() < kInFlightMax) {
    --stranger->left;
    const auto [head, body] = Request(&stranger->random);
    const size_t room = stranger->random.Below(4) == 0 ? kReplyBytesMin : kMessageBytesMax;
    stranger->fabric->Call(stranger->connection, AsBytes(head), AsBytes(body), room, INT64_MAX, stranger);
  }
  stranger->fabric->Wait(INT64_MAX);  // Until something is answered.
}

std::pair<std::string, std::string> Floods::Request(Random* random) const {
  std::vector<uint32_t> regions;
  for (const auto& [region, entry] : world_->cluster.table().regions) regions.push_back(region);
  const uint32_t region = regions[random->Below(regions.size())];
  const std::string key = fmt::format("k{:03}", random->Below(static_cast<uint64_t>(world_->plan.keys)));
  const auto number = static_cast<uint16_t>(1 + random->Below(kUploadsMax));
  switch (random->Below(8)) {
    case 0:
      return {MakeTextRequest(MessageKind::kCheck, fmt::format("{}", region)), ""};
    case 1:
      return {MakeTextRequest(MessageKind::kStatus), ""};
    case 2:
      return {MakeTextRequest(MessageKind::kReport, R"({"operations": 1})"), ""};
    case 3:
      return {MakeRangeRequest(MessageKind::kCount, RootOf(region), key, ""), ""};
    case 4:
      return {MakeKeyRequest(MessageKind::kGet, RootOf(region), {}, key, number), ""};
    case 5:  // It is never put.
      return {MakeUploadRequest(number, 0, 1'000), std::string(1'000, 'u')};
    case 6:  // Nobody has this key. It may wait for its region.
      return {MakeKeyRequest(MessageKind::kDelete, RootOf(region), {}, "~"), ""};
    default:
      return {MakeScanRequest(RootOf(region), key, std::nullopt, {kScanLimitMax, kMessageBytesMax}), ""};
  }
}

void Floods::Kill(Stranger* stranger) {
  if (stranger->fabric == nullptr) return;
  stranger->fabric->Drive(nullptr);
  stranger->fabric->Crash();
  stranger->left = 0;
}

void Floods::End() {
  for (const auto& stranger : strangers_) Kill(stranger.get());
}

}  // namespace cell

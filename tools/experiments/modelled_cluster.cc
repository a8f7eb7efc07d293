#include "tools/experiments/modelled_cluster.h"

#include <algorithm>

#include "cell/base/check.h"
#include "cell/client/client_testing.h"
#include "cell/tree/meganode_builder.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint32_t kRootRegion = 1;
constexpr uint32_t kFirstRegion = 2;
constexpr double kFill = 0.7;  // Fill of leaves, as after inserts in random order.
constexpr int64_t kTurnNs = 200'000;
constexpr size_t kValueBytes = 32;

}  // namespace

// Shares state that never changes, without copies.
struct ModelledCluster::Membership : cell::Membership {
  explicit Membership(std::shared_ptr<ClusterState> state) : shared(std::move(state)) {}
  const ClusterState& state() const override { return *shared; }
  void Refresh(Done done) override { told.push_back(std::move(done)); }
  void Change(TableChange, Done done) override { told.push_back(std::move(done)); }
  size_t Poll() override {
    std::vector<Done> now;
    now.swap(told);
    for (const Done& done : now) done(absl::OkStatus());
    return now.size();
  }
  bool pending() const override { return !told.empty(); }
  const std::shared_ptr<ClusterState> shared;
  std::vector<Done> told;
};

std::string ModelledCluster::Key(uint64_t i) { return fmt::format("{:010}", i); }

ModelledCluster::ModelledCluster(const ModelledClusterOptions& options)
    : options_(options),
      network_(SimOptions{.seed = options.seed, .line_ns = 0}),
      random_(options.seed),
      state_(std::make_shared<ClusterState>()) {
  const auto nodes = static_cast<uint64_t>(options.keys_each) / (options.inline_max == 0 ? 5 : 3) + 64;
  state_->shape.node_bytes = options.node_bytes;
  state_->shape.meganode_bytes = nodes * options.node_bytes;
  state_->shape.extents_bytes = RoundUp(static_cast<uint64_t>(options.keys_each) * 96 + 65'536, 4096);
  state_->revision = 1;
  for (int server = 0; server < options.servers; ++server) {
    ClusterState::Server& member = state_->servers.emplace_back();
    member.name = fmt::format("server-{}", server);
    for (int core = 0; core < options.cores; ++core) {
      member.workers.push_back({fmt::format("{}.{}", member.name, core), 4});
      const auto region = static_cast<uint32_t>(kFirstRegion + state_->table.regions.size());
      state_->table.regions.Set(region, {{member.name, static_cast<uint32_t>(core)}});
    }
  }
  const size_t workers = state_->table.regions.size();
  state_->table.ids.next = static_cast<uint32_t>(kFirstRegion + workers);
  state_->table.root = workers == 1 ? kFirstRegion : kRootRegion;
  if (workers > 1) state_->table.regions.Set(kRootRegion, {{"server-0", 0}});

  for (int server = 0; server < options.servers; ++server) {
    hosts_.push_back(network_.NewHost(options.machine));
    for (int core = 0; core < options.cores; ++core) {
      auto fabric = network_.NewEndpoint(hosts_.back());
      fabrics_.push_back(fabric.get());
      Worker::Options its;
      its.service.name = state_->servers[static_cast<size_t>(server)].name;
      its.self = {its.service.name, static_cast<uint32_t>(core)};
      its.balance.enabled = false;
      its.regions_max = 4;
      its.pairs.inline_max = options_.inline_max;
      workers_.push_back(std::make_unique<Worker>(std::move(fabric), std::make_unique<Membership>(state_), its));
      Worker* const worker = workers_.back().get();
      Build(worker, static_cast<uint32_t>(kFirstRegion + workers_.size() - 1), workers_.size() - 1);
    }
  }
  if (workers > 1) BuildRoot();
  for (size_t i = 0; i < workers_.size(); ++i) {
    Worker* const worker = workers_[i].get();
    fabrics_[i]->set_call_cost([this, worker](ConstBytes request) { return CallCost(worker, request); });
    const size_t server = i / static_cast<size_t>(options.cores), core = i % static_cast<size_t>(options.cores);
    CELL_CHECK(fabrics_[i]->Listen(state_->servers[server].workers[core].address, worker->service()).ok());
    TakeTurns(i);
  }
}

ModelledCluster::~ModelledCluster() = default;

void ModelledCluster::TakeTurns(size_t worker) {
  network_.At(network_.now_ns() + kTurnNs, [this, worker] {
    workers_[worker]->Poll();
    TakeTurns(worker);
  });
}

void ModelledCluster::Build(Worker* worker, uint32_t region, size_t index) {
  const uint64_t first = index * static_cast<uint64_t>(options_.keys_each);
  const uint64_t end = first + static_cast<uint64_t>(options_.keys_each);
  RegionContent content;
  const size_t all = state_->table.ids.next - kFirstRegion;
  if (index > 0) content.range.low = Key(first);
  if (index + 1 < all) {
    content.range.high = Key(end);
    content.range.right = RootOf(region + 1);
  }
  const absl::StatusOr<HeldRegion*> held = worker->regions()->Create(region, content);
  CELL_CHECK(held.ok());
  MeganodeBuilder builder((*held)->tree, kFill);
  const std::string value(kValueBytes, 'v');
  for (uint64_t key = first; key < end; ++key) CELL_CHECK(builder.Add(Key(key), value).ok());
  CELL_CHECK(builder.Finish().ok());
  levels_ = (*held)->tree->Node((*held)->tree->root()).level() + 1;
}

void ModelledCluster::BuildRoot() {
  RegionContent content;
  content.range.tier = 1;
  const absl::StatusOr<HeldRegion*> held = workers_[0]->regions()->Create(kRootRegion, content);
  CELL_CHECK(held.ok());
  for (size_t i = 0; i < workers_.size(); ++i) {
    const std::string low = i == 0 ? "" : Key(i * static_cast<uint64_t>(options_.keys_each));
    CELL_CHECK((*held)->tree->InsertRoute(low, RootOf(static_cast<uint32_t>(kFirstRegion + i))).ok());
  }
}

int64_t ModelledCluster::CallCost(Worker* worker, ConstBytes request) {
  const MachineModel& machine = options_.machine;
  int64_t ns = machine.request_ns;
  const auto kind = Load<MessageHeader>(request.data()).kind;
  const auto walk = [&](Pointer root) {
    const HeldRegion* const held = worker->regions()->Find(root.region());
    return held == nullptr ? 0 : machine.visit_ns * (held->tree->Node(held->tree->root()).level() + 1);
  };
  switch (kind) {
    case MessageKind::kGet:
    case MessageKind::kSearch:
      ns += walk(Load<KeyRequest>(request.data()).root);
      break;
    case MessageKind::kPut: {
      const auto put = Load<PutRequest>(request.data());
      ns += (put.hint.null() ? walk(put.root) : machine.visit_ns) + machine.insert_ns;
      break;
    }
    case MessageKind::kScan: {
      const auto scan = Load<ScanRequest>(request.data());
      ns += walk(scan.root) + machine.entry_ns * static_cast<int64_t>(scan.limit);
      break;
    }
    default:
      break;
  }
  return static_cast<int64_t>(static_cast<double>(ns) * (1 + options_.service_spread * (2 * random_.Unit() - 1)));
}

std::unique_ptr<ModelledCluster::DrivenClient> ModelledCluster::NewClient(const ClientOptions& options, bool warm) {
  auto fabric = network_.NewEndpoint(network_.NewHost(options_.machine));
  auto made = std::make_unique<DrivenClient>();
  made->fabric = fabric.get();
  absl::StatusOr<std::unique_ptr<Client>> client =
      ClientTesting::Open(options, std::move(fabric), std::make_unique<Membership>(state_));
  CELL_CHECK(client.ok());
  made->client = *std::move(client);
  for (size_t i = 0; warm && i < workers_.size(); ++i) {
    const auto keys = static_cast<uint64_t>(options_.keys_each);
    const std::string low = i == 0 ? "" : Key(i * keys), high = Key((i + 1) * keys);
    ClientTesting::RememberRoute(made->client.get(), low,
                                 i + 1 < workers_.size() ? std::optional<std::string_view>(high) : std::nullopt,
                                 static_cast<uint32_t>(kFirstRegion + i));
  }
  return made;
}

int64_t ModelledCluster::busy_ns() const {
  int64_t ns = 0;
  for (const SimFabric* fabric : fabrics_) ns += fabric->busy_ns();
  return ns;
}

}  // namespace cell

// libFuzzer: servers and a client are at work, and from one moment on their membership says anything: any region table
// that can be parsed, any address and room of a server, and a server that gives any text as its answer. Nothing may
// crash or hang, no call may outlive its deadline, and what servers still hold must be sound.
//
// The input is a byte, which selects the cluster's options, and texts, separated by bytes of 0. They come in threes: a
// region table, a server's znode, an answer. An empty text means no change.
#include <memory>
#include <string>
#include <vector>

#include "cell/base/check.h"
#include "cell/cluster/cluster_text.h"
#include "spdlog/spdlog.h"
#include "tests/liar.h"

namespace {

using namespace cell;

constexpr RegionShape kShape{512, 16 << 10, 32 << 10};
constexpr size_t kRoundsMax = 3;
constexpr int64_t kTimeoutUs = 60;
constexpr int64_t kLateNs = 1'000'000;  // Limits how long an operation may take beyond its deadline.
constexpr int kSteps = 300;

TestClusterOptions Options(uint8_t how) {
  TestClusterOptions options;
  options.servers = 3;
  options.joining = 1;  // The liar.
  options.regions_max = 8;
  options.logs.durability = static_cast<Durability>(how % 3);
  options.migrator.silence_ns = 50'000;
  options.balance.every_ns = 20'000;
  return options;
}

class Fuzzed {
 public:
  explicit Fuzzed(uint8_t how)
      : how_(how), cluster_(kShape, {}, Options(how)), liar_(cluster_.network()->NewEndpoint(), "liar") {
    ClientOptions options;
    options.report = (how & 4) != 0;
    options.timeout_us = 10 * kTimeoutUs;
    client_ = cluster_.NewClient(options);
    for (int i = 0; i < 40; ++i) (void)client_->Put(Key(i), std::string(static_cast<size_t>(i * 5), 'v'));
    CELL_CHECK(cluster_.CreateTable("t", how & 8 ? 512 : 0, 2).ok());
    (void)client_->Tables();
    cluster_.shared()->state.servers[2].workers[0].address = "liar";
    Tell();
  }
  ~Fuzzed() {
    client_.reset();
    Step();
    for (size_t i = 0; i < 2; ++i) CheckHeld(cluster_.worker(i));
  }

  void Say(const std::string& table, const std::string& worker, const std::string& answer) {
    ClusterState* const state = &cluster_.shared()->state;
    liar_.Say(answer);
    if (const absl::StatusOr<WorkerText> parsed = ParseWorkerText(worker); parsed.ok()) {
      state->servers[how_ & 16 ? 1 : 2].workers[0] = parsed->worker;
    }
    if (absl::StatusOr<RegionTable> parsed = RegionTable::Parse(table); parsed.ok()) {
      parsed->version = std::max(parsed->version, state->table.version + 1);  // Otherwise nobody accepts it.
      state->table = *std::move(parsed);
    }
    Tell();
  }

  // Makes all kinds of client requests.
  void Use() {
    for (const Path path : {Path::kServer, Path::kClient}) {
      CallOptions call;
      call.path = path;
      call.timeout_us = kTimeoutUs;
      InTime([&] { (void)client_->Get(Key(7), call); });
      InTime([&] { (void)client_->Put(Key(21), "new", call); });
      InTime([&] {
        ScanOptions options;
        options.limit = 50;
        options.call = call;
        Scan scan = client_->NewScan(options);
        for (int i = 0; i < 50 && scan.Next().value_or(false);) ++i;
      });
    }
    CallOptions call;
    call.timeout_us = kTimeoutUs;
    if (auto table = client_->OpenTable("t"); table.ok()) {
      InTime([&] { (void)table->Put("a", "1", call); });
      InTime([&] { (void)table->Get("a", call); });
    }
    (void)client_->Tables();
    (void)client_->ServerStatus();
    if (HeldByOwners()) (void)client_->Check();
    Step();
  }

 private:
  // Returns whether the owners hold their regions. Otherwise a check would wait for each region as long as a migration
  // may take.
  bool HeldByOwners() {
    for (const auto& [region, entry] : cluster_.table().regions) {
      for (size_t i = 0; i < 2; ++i) {
        const bool owner = entry.owner == WorkerId{fmt::format("server-{}", i), 0};
        if (owner && cluster_.worker(i)->regions()->Find(region) == nullptr) return false;
      }
    }
    return true;
  }
  static std::string Key(int i) { return fmt::format("key{:02}", i); }
  void Tell() { ++cluster_.shared()->changes; }
  void Step() {
    for (int i = 0; i < kSteps; ++i) {
      cluster_.network()->Step();
      liar_.Poll();
    }
  }
  template <typename Do>
  void InTime(const Do& call) {
    const int64_t begun_ns = cluster_.network()->now_ns();
    call();
    CELL_CHECK_LE(cluster_.network()->now_ns() - begun_ns, kTimeoutUs * 1000 + kLateNs);
  }
  static void CheckHeld(Worker* worker) {
    for (const HeldRegion* region : worker->regions()->all()) {
      if (region->state() == RegionState::kFilling || !region->readable()) continue;
      if (region->hash != nullptr) {
        CELL_CHECK(region->claimed() || region->hash->Check().ok());
      } else {
        CELL_CHECK(CheckTree(*region->memory).ok());
      }
    }
  }

  const uint8_t how_;
  SimCluster cluster_;
  Liar liar_;
  std::unique_ptr<Client> client_;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::vector<std::string> texts(1);
  for (size_t i = 1; i < size; ++i) {
    if (data[i] == 0) {
      texts.emplace_back();
    } else {
      texts.back().push_back(static_cast<char>(data[i]));
    }
  }
  texts.resize(std::min(3 * kRoundsMax, RoundUp(texts.size(), 3)));
  Fuzzed fuzzed(data[0]);
  for (size_t i = 0; i < texts.size(); i += 3) {
    fuzzed.Say(texts[i], texts[i + 1], texts[i + 2]);
    fuzzed.Use();
  }
  return 0;
}

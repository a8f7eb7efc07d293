// libFuzzer: sends any messages, from clients and from other servers, to servers that hold trees, routes and tables,
// with and without logs, while one of them splits or migrates a region. Another server gives any answers to the
// servers' own requests. Nothing may crash or hang, what the servers hold must stay sound, and a client whose grants
// are enforced must get and change nothing else.
//
// An input is read from its front: the cluster's options, then messages (Send). Most fields are corrected, so that the
// code that uses them is reached; a bit of each message selects which.
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "cell/base/crc64.h"
#include "cell/cluster/grants.h"
#include "cell/functions/functions.h"
#include "cell/layout/wire.h"
#include "cell/layout/wire_function.h"
#include "cell/layout/wire_snapshot.h"
#include "cell/layout/wire_transaction.h"
#include "spdlog/spdlog.h"
#include "tests/sim_cluster.h"

namespace {

using namespace cell;

constexpr RegionShape kShape{512, 16 << 10, 32 << 10};
constexpr uint32_t kTree = 1, kRoutes = 2, kSlots = 3, kBuckets = 4, kElsewhere = 5;
constexpr size_t kMessagesMax = 24;
constexpr int kStepsAtEnd = 400;
constexpr int kStepsUntilQuiet = 4'000;
constexpr uint64_t kSoon = 30'000'000'000;  // Stamp until which requests of transactions may be tried.

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}
  uint8_t Byte() {
    if (left_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(left_[0]);
    left_.remove_prefix(1);
    return byte;
  }
  // Bytes preceded by their number; some sizes are in the thousands.
  std::string Text() {
    size_t bytes = Byte();
    if (bytes >= 0xf0) bytes = (bytes - 0xef) * 1000;
    std::string text(left_.substr(0, bytes));
    left_.remove_prefix(text.size());
    if (!text.empty()) text.resize(bytes, text.back());
    return text;
  }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

template <typename T>
T* As(std::string* message) {
  if (message->size() < sizeof(T)) message->resize(sizeof(T));
  return reinterpret_cast<T*>(message->data());
}

// Corrects the fields that would be refused, depending on the kind of message.
void MakeRight(std::string* message, MessageKind kind, uint8_t region) {
  const uint32_t id = kTree + region % 5;
  const Pointer root = region & 128 ? HashRootOf(id) : RootOf(id);
  switch (kind) {
    case MessageKind::kSearch:
    case MessageKind::kGet:
    case MessageKind::kDelete: {
      auto* request = As<KeyRequest>(message);
      request->root = root;
      request->key_bytes = static_cast<uint16_t>(message->size() - sizeof(KeyRequest));
      break;
    }
    case MessageKind::kPut: {
      auto* request = As<PutRequest>(message);
      request->root = root;
      const size_t left = message->size() - sizeof(PutRequest);
      request->key_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->key_bytes % 300));
      request->upload = 0;
      request->value_bytes = static_cast<uint32_t>(left - request->key_bytes);
      const std::string_view pair = std::string_view(*message).substr(sizeof(PutRequest));
      request->crc = Crc64(pair);
      break;
    }
    case MessageKind::kWriteIf: {
      auto* request = As<WriteIfRequest>(message);
      request->root = root;
      const size_t left = message->size() - sizeof(WriteIfRequest);
      request->key_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->key_bytes % 300));
      request->condition = static_cast<ConditionKind>(1 + static_cast<uint8_t>(request->condition) % 4);
      request->condition_bytes = request->condition == ConditionKind::kValue
                                     ? static_cast<uint32_t>(std::min<size_t>(left - request->key_bytes, 20))
                                     : 0;
      request->deletes %= 2;
      if (request->deletes != 0)
        message->resize(message->size() - (left - request->key_bytes - request->condition_bytes));
      request = As<WriteIfRequest>(message);
      request->upload = 0;
      if (request->deletes != 0) request->expires = kNeverExpires;
      const std::string_view texts = std::string_view(*message).substr(sizeof(WriteIfRequest));
      const std::string_view value = texts.substr(request->key_bytes + request->condition_bytes);
      request->value_bytes = static_cast<uint32_t>(value.size());
      request->crc = Crc64(value, Crc64(texts.substr(0, request->key_bytes)));
      break;
    }
    case MessageKind::kApply:
    case MessageKind::kEvaluate: {
      auto* request = As<FunctionRequest>(message);
      request->root = root;
      request->upload = request->copy = 0;
      // A function that there is, of this kind.
      std::vector<const Function*> functions = Functions().all();
      std::erase_if(functions, [&](const auto* one) { return one->writes != (kind == MessageKind::kApply); });
      const std::string_view name = functions[request->name_bytes % functions.size()]->name;
      request->name_bytes = static_cast<uint8_t>(name.size());
      const size_t left = message->size() - sizeof(FunctionRequest);
      request->key_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->key_bytes % 300));
      request->argument_bytes = static_cast<uint32_t>(left - request->key_bytes);
      message->insert(sizeof(FunctionRequest) + request->key_bytes, name);
      break;
    }
    case MessageKind::kScan: {
      auto* request = As<ScanRequest>(message);
      request->root = root;
      const size_t left = message->size() - sizeof(ScanRequest);
      request->from_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->from_bytes));
      request->to_bytes = static_cast<uint16_t>(left - request->from_bytes);
      request->limit = 1 + request->limit % kScanLimitMax;
      request->reply_bytes_max %= kMessageBytesMax;
      break;
    }
    case MessageKind::kTransact: {
      // One put, whose key and value are in the message.
      auto* request = As<TransactRequest>(message);
      request->root = root;
      request->client = 1 + request->client % 3;
      request->number %= 4;
      request->until = kSoon;
      request->slot %= 2;
      request->step = static_cast<TransactStep>(1 + static_cast<uint8_t>(request->step) % 2);
      request->primary = kTree + request->primary % 4;
      request->others = 0;
      request->upload = 0;
      const TransactRequest fixed = *request;
      const std::string texts = message->substr(sizeof(TransactRequest));
      const std::string key = texts.substr(0, 1 + fixed.key_bytes % 20),
                        value = texts.substr(std::min<size_t>(texts.size(), 20));
      std::string part;
      AppendOperation({PartOperationKind::kPut, key, value, PairDigest(key, value)}, &part);
      message->resize(sizeof(TransactRequest));
      *message += key + part;
      request = As<TransactRequest>(message);
      request->key_bytes = static_cast<uint16_t>(key.size());
      request->part_bytes = static_cast<uint32_t>(part.size());
      break;
    }
    case MessageKind::kDecide: {
      auto* request = As<DecideRequest>(message);
      request->root = root;
      request->client = 1 + request->client % 3;
      request->number %= 4;
      request->until = kSoon;
      request->slot %= 2;
      request->decision = static_cast<Decision>(1 + static_cast<uint8_t>(request->decision) % 5);
      message->resize(sizeof(DecideRequest));
      break;
    }
    case MessageKind::kSnapshot: {
      auto* request = As<SnapshotRequest>(message);
      request->root = root;
      request->id = {1 + request->id.client % 2, request->id.number % 3};
      request->step = static_cast<SnapshotStep>(1 + static_cast<uint8_t>(request->step) % 4);
      request->kept_ms %= 3'000;
      const size_t left = message->size() - sizeof(SnapshotRequest);
      request->from_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->from_bytes % 300));
      request->to_bytes = static_cast<uint16_t>(left - request->from_bytes);
      break;
    }
    case MessageKind::kGetSnapshot: {
      auto* request = As<GetSnapshotRequest>(message);
      request->get.root = root;
      request->get.key_bytes = static_cast<uint16_t>(message->size() - sizeof(GetSnapshotRequest));
      request->get.copy %= kCopiesMax + 1;
      request->id = {1 + request->id.client % 2, request->id.number % 3};
      break;
    }
    case MessageKind::kScanSnapshot: {
      auto* request = As<ScanSnapshotRequest>(message);
      request->scan.root = root;
      request->id = {1 + request->id.client % 2, request->id.number % 3};
      const size_t left = message->size() - sizeof(ScanSnapshotRequest);
      request->scan.from_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->scan.from_bytes));
      request->scan.to_bytes = static_cast<uint16_t>(left - request->scan.from_bytes);
      request->scan.limit = 1 + request->scan.limit % kScanLimitMax;
      request->scan.reply_bytes_max %= kMessageBytesMax;
      break;
    }
    case MessageKind::kCount:
    case MessageKind::kDeleteRange: {
      auto* request = As<RangeRequest>(message);
      request->root = root;
      const size_t left = message->size() - sizeof(RangeRequest);
      request->from_bytes = static_cast<uint16_t>(std::min<size_t>(left, request->from_bytes));
      request->to_bytes = static_cast<uint16_t>(left - request->from_bytes);
      break;
    }
    case MessageKind::kFetch: {
      auto* request = As<FetchRequest>(message);
      request->from = Pointer(root.region(), request->from.offset() % (64 << 10));
      request->bytes %= 4096;
      message->resize(sizeof(FetchRequest));
      break;
    }
    case MessageKind::kUpload:
      As<UploadRequest>(message)->upload = static_cast<uint16_t>(1 + region % 4);
      break;
    case MessageKind::kAddRoute:
    case MessageKind::kRemoveRoute: {
      auto* request = As<RouteRequest>(message);
      request->root = root;
      request->child = RootOf(1 + request->child.region() % 8);
      request->tier = static_cast<uint8_t>(1 + request->tier % 7);
      request->key_bytes = static_cast<uint16_t>(message->size() - sizeof(RouteRequest));
      break;
    }
    case MessageKind::kMigration: {
      auto* request = As<MigrationRequest>(message);
      request->region = kTree + region % 8;
      request->epoch %= 4;
      request->worker %= 2;
      request->step = static_cast<MigrationStep>(1 + static_cast<int>(request->step) % 7);
      break;
    }
    default:
      break;
  }
}

void SetHeader(std::string* message, MessageKind kind) {
  auto* header = As<MessageHeader>(message);
  *header = {kind, kWireVersion, static_cast<uint32_t>(message->size())};
}

// A member of the cluster that gives the answers in the input, and has a region that looks right at first.
class Liar : public Service {
 public:
  Liar(SimFabric* fabric, uint8_t damage) : fabric_(fabric) {
    RegionMemory* const memory = *fabric->CreateRegion(kElsewhere, kShape.region_bytes());
    if (!Meganode::Format(memory, kElsewhere, kShape).ok()) std::abort();
    if (damage != 0) memory->base()[damage % sizeof(RegionHeader)] ^= std::byte{damage};
  }
  void Tell(std::string answer) { answers_.push_back(std::move(answer)); }
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const absl::StatusOr<MessageHeader> header = ParseHeader(call.request);
      if (!header.ok()) std::abort();  // Servers send valid messages.
      std::string answer;
      if (!answers_.empty()) answer = std::move(answers_.front()), answers_.pop_front();
      const bool raw = !answer.empty() && answer.back() == 'r';
      auto* reply = As<MigrationReply>(&answer);
      if (!raw) {
        reply->header.kind = answer.size() % 4 == 0 ? MessageKind::kRoute : header->kind;
        reply->header.code %= 17;
        answer.resize(std::min(answer.size(), call.reply_bytes_max));
        As<MigrationReply>(&answer)->header.bytes = static_cast<uint32_t>(answer.size());
        if (header->kind == MessageKind::kMigration) {
          As<MigrationReply>(&answer)->runs =
              static_cast<uint32_t>((answer.size() - sizeof(MigrationReply)) / sizeof(PageRun));
        }
      }
      const MutableBytes to = fabric_->BeginReply(call);
      const size_t bytes = std::min(to.size(), answer.size());
      std::memcpy(to.data(), answer.data(), bytes);
      fabric_->EndReply(call, bytes);
    }
  }
  void Disconnected(ConnectionId) override {}

 private:
  SimFabric* const fabric_;
  std::deque<std::string> answers_;
};

class Connected : public Completion {
 public:
  void Done(const absl::Status& status, ConstBytes) override {
    if (!status.ok()) std::abort();
  }
};

// The grants of the client: some are for the keys with kPrefix, some for the table "slots". Pure.
class FuzzGrants {
 public:
  static constexpr std::string_view kPrefix = "k1";
  enum class Expects { kAnything, kRefusal, kKeysOfPrefix };

  // `how`: bit 0 enforces grants, the others choose them.
  explicit FuzzGrants(uint8_t how) : enforced_(how & 1), prefix_(how & 2), slots_(how & 4) {}

  Grants Make() const {
    Grants grants;
    const Rights rights = *Rights::Parse("read,scan,write");
    if (prefix_ && !grants.Give("fuzz", {GrantScope::Kind::kPrefix, std::string(kPrefix)}, rights).ok()) std::abort();
    if (slots_ && !grants.Give("fuzz", {GrantScope::Kind::kTable, "slots"}, rights).ok()) std::abort();
    grants.Enforce(enforced_);
    return grants;
  }

  // Says what the answer to a client's request has to be.
  Expects Of(std::string_view message) const {
    const absl::StatusOr<MessageHeader> header = ParseHeader(AsBytes(message));
    if (!enforced_ || !header.ok()) return Expects::kAnything;
    switch (header->kind) {
      case MessageKind::kScan: {
        const absl::StatusOr<Parsed<ScanRequest>> scan = ParseScanRequest(AsBytes(message));
        return scan.ok() && MayKey(scan->key) ? Expects::kKeysOfPrefix : Expects::kRefusal;
      }
      case MessageKind::kGetSnapshot: {
        const absl::StatusOr<Parsed<GetSnapshotRequest>> get = ParseGetSnapshotRequest(AsBytes(message));
        return get.ok() && MayPair(get->fixed.get.root.region(), get->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kScanSnapshot: {
        const absl::StatusOr<ParsedScanSnapshot> scan = ParseScanSnapshotRequest(AsBytes(message));
        return scan.ok() && MayKey(scan->scan.key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kSnapshot: {
        const absl::StatusOr<Parsed<SnapshotRequest>> snapshot = ParseSnapshotRequest(AsBytes(message));
        return snapshot.ok() && MayKey(snapshot->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kCount:
      case MessageKind::kDeleteRange: {
        const absl::StatusOr<Parsed<RangeRequest>> range = ParseRangeRequest(AsBytes(message));
        return range.ok() && MayKey(range->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kPut: {
        const absl::StatusOr<Parsed<PutRequest>> put = ParsePutRequest(AsBytes(message));
        return put.ok() && MayPair(put->fixed.root.region(), put->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kWriteIf: {
        const absl::StatusOr<ParsedWriteIf> write = ParseWriteIfRequest(AsBytes(message));
        return write.ok() && MayPair(write->fixed.root.region(), write->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kApply:
      case MessageKind::kEvaluate: {
        const absl::StatusOr<ParsedFunction> call = ParseFunctionRequest(AsBytes(message), header->kind);
        return call.ok() && MayPair(call->fixed.root.region(), call->key) ? Expects::kAnything : Expects::kRefusal;
      }
      case MessageKind::kSearch:
      case MessageKind::kGet:
      case MessageKind::kDelete: {
        const absl::StatusOr<Parsed<KeyRequest>> key = ParseKeyRequest(AsBytes(message));
        return key.ok() && MayPair(key->fixed.root.region(), key->key) ? Expects::kAnything : Expects::kRefusal;
      }
      default:
        return Expects::kAnything;
    }
  }

 private:
  bool MayKey(std::string_view key) const { return prefix_ && key.substr(0, kPrefix.size()) == kPrefix; }
  // Parts of tables that were split off have other numbers than the first ones.
  bool MayPair(uint32_t region, std::string_view key) const {
    return (region != kSlots && region != kBuckets && MayKey(key)) || (region != kTree && slots_);
  }

  bool enforced_, prefix_, slots_;
};

class Answer : public Completion {
 public:
  explicit Answer(FuzzGrants::Expects expects) : expects_(expects) {}
  void Done(const absl::Status& status, ConstBytes reply) override {
    if (!status.ok()) return;
    if (reply.size() < sizeof(ReplyHeader)) std::abort();
    const auto header = Load<ReplyHeader>(reply.data());
    if (header.bytes != reply.size()) std::abort();
    if (header.code != 0) return;
    if (expects_ == FuzzGrants::Expects::kRefusal) std::abort();
    if (expects_ != FuzzGrants::Expects::kKeysOfPrefix) return;
    std::vector<ScanItem> items;
    if (!ParseScanReply(reply, &items).ok()) std::abort();
    for (const ScanItem& item : items) {
      if (item.key.substr(0, FuzzGrants::kPrefix.size()) != FuzzGrants::kPrefix) std::abort();
    }
  }

 private:
  const FuzzGrants::Expects expects_;
};

TestClusterOptions Options(uint8_t how) {
  TestClusterOptions options;
  options.servers = 3;
  options.joining = 1;  // The liar.
  options.regions_max = how & 4 ? 5 : 16;
  options.logs.durability = static_cast<Durability>(how % 3);
  options.migrator.silence_ns = 50'000;
  options.balance.enabled = false;
  options.balance.every_ns = 20'000;
  options.split.pace.copied = 4;
  return options;
}

Task<bool> MigrateOne(Worker* worker, uint32_t region, WorkerId to) {
  co_return (co_await worker->migrator()->Migrate(region, std::move(to))).ok();
}
Task<bool> CreateLog(Worker* worker, uint32_t region) { co_return (co_await worker->logs()->Create(region)).ok(); }
Task<bool> SplitOne(Worker* worker, uint32_t region) { co_return (co_await worker->splitter()->Split(region)).ok(); }

class Fuzzed {
 public:
  explicit Fuzzed(Input* input)
      : input_(input),
        how_(input->Byte()),
        cluster_(kShape, {}, Options(how_)),
        liar_fabric_(cluster_.network()->NewEndpoint()),
        liar_(liar_fabric_.get(), input->Byte()),
        client_(cluster_.network()->NewEndpoint()) {
    if (!liar_fabric_->Listen("liar", &liar_).ok()) std::abort();
    const uint8_t busy = input->Byte();
    if (busy & 8) grants_ = FuzzGrants(input->Byte());
    Fill();
    client_->SetSelf(busy & 8 ? Identity{Role::kClient, "fuzz"}
                              : Identity{Role::kServer, busy & 2 ? "server-1" : "server-2"});
    for (int server = 0; server < 2; ++server) {
      connections_[server] = client_->Connect(fmt::format("sim{}", server), INT64_MAX, &connected_);
    }
    for (int i = 0; i < 50; ++i) Step();
    for (size_t i = 0; i < 2; ++i) cluster_.worker(i)->rebalancer()->set_enabled((how_ & 8) != 0);
    Worker* const worker = cluster_.worker(0);
    if (busy & 1)
      worker->scheduler()->Spawn(MigrateOne(worker, kTree + busy / 16 % 4, {busy & 2 ? "server-1" : "server-2", 0}));
    if (busy & 4) worker->scheduler()->Spawn(SplitOne(worker, kTree + busy / 64 % 4));
  }
  ~Fuzzed() {
    for (int i = 0; i < kStepsAtEnd; ++i) Step();
    client_.reset();  // It is destroyed in the middle of its requests.
    for (int i = 0; i < kStepsAtEnd; ++i) cluster_.network()->Step();
    // A region that is being split has extents to which no leaf points until the split is done. If there are no more
    // regions, some things are retried forever.
    for (int i = 0; i < kStepsUntilQuiet && !cluster_.Quiet(); ++i) cluster_.network()->Step();
    for (size_t i = 0; i < 2; ++i) Check(cluster_.worker(i));
  }

  void Send() {
    const uint8_t to = input_->Byte();
    std::string message = input_->Text();
    if (to & 0x80) return liar_.Tell(std::move(message));
    static constexpr MessageKind kKinds[] = {
        MessageKind::kSearch, MessageKind::kGet,    MessageKind::kPut,      MessageKind::kDelete,
        MessageKind::kScan,   MessageKind::kFetch,  MessageKind::kUpload,   MessageKind::kStatus,
        MessageKind::kCheck,  MessageKind::kReport, MessageKind::kAddRoute, MessageKind::kMigration,
        MessageKind::kWeigh,  MessageKind::kRoute,  MessageKind::kCount,    MessageKind::kDeleteRange};
    const uint8_t kind_at = input_->Byte();
    MessageKind kind = kKinds[(kind_at & 15) % std::size(kKinds)];
    if (kind == MessageKind::kPut && (kind_at & 0x40) != 0) kind = MessageKind::kWriteIf;
    if (kind == MessageKind::kDelete && (kind_at & 0x40) != 0) kind = MessageKind::kApply;
    if (kind == MessageKind::kGet && (kind_at & 0x40) != 0) kind = MessageKind::kEvaluate;
    if (kind == MessageKind::kSearch && (kind_at & 0x40) != 0) kind = MessageKind::kGetSnapshot;
    if (kind == MessageKind::kScan && (kind_at & 0x40) != 0) kind = MessageKind::kScanSnapshot;
    if (kind == MessageKind::kWeigh && (kind_at & 0x40) != 0) kind = MessageKind::kSnapshot;
    if (kind == MessageKind::kUpload && (kind_at & 0x40) != 0) kind = MessageKind::kTransact;
    if (kind == MessageKind::kFetch && (kind_at & 0x40) != 0) kind = MessageKind::kDecide;
    if (!(to & 0x40)) {
      SetHeader(&message, kind);
      if (!(to & 0x20)) MakeRight(&message, kind, to >> 1);
      SetHeader(&message, kind);
    }
    if (message.size() > kMessageBytesMax) message.resize(kMessageBytesMax);
    const size_t room = kind_at & 0x80 ? kReplyBytesMin : kMessageBytesMax;
    client_->Call(connections_[to & 1], AsBytes(message), {}, room, INT64_MAX, NewAnswer(grants_.Of(message)));
    for (int i = kind_at / 16 % 8 * 8; i > 0; --i) Step();
  }

 private:
  Answer* NewAnswer(FuzzGrants::Expects expects) {
    answers_.push_back(std::make_unique<Answer>(expects));
    return answers_.back().get();
  }
  void Step() {
    cluster_.network()->Step();
    client_->Poll();
    liar_fabric_->Poll();
  }
  // Gives the first server a tree, routes above it and two parts of tables, and the liar a region of the tree's tier.
  void Fill() {
    Regions* const regions = cluster_.worker(0)->regions();
    RegionTable* const table = &cluster_.shared()->state.table;
    RegionContent routes, slots, buckets;
    std::vector<RegionClaim> claims;  // Held until the server has seen them in the table.
    routes.range.tier = 1;
    slots.hash_range = HashRange{0, UINT32_MAX / 4 * 3};
    buckets.hash_range = HashRange{UINT32_MAX / 4, UINT32_MAX};
    buckets.bucket_bytes = 512;
    for (const auto& [id, content] :
         {std::pair(kRoutes, routes), std::pair(kSlots, slots), std::pair(kBuckets, buckets)}) {
      const absl::StatusOr<HeldRegion*> made = regions->Create(id, content);
      if (!made.ok()) std::abort();
      claims.emplace_back(*made, ClaimPurpose::kFill);
      cluster_.worker(0)->scheduler()->Spawn(CreateLog(cluster_.worker(0), id));
      table->regions.Set(id, {{"server-0", 0}, 1});
    }
    table->regions.Set(kElsewhere, {{"server-2", 0}, 1});
    table->ids.next = 10;
    if (how_ & 16) table->root = how_ & 32 ? kElsewhere : kRoutes;
    CELL_CHECK(table->CreateTable("slots", 0, kSlots).ok());
    CELL_CHECK(table->CreateTable("buckets", 512, kBuckets).ok());
    table->grants = grants_.Make();
    ++table->version;
    cluster_.shared()->state.servers[2].workers[0].address = "liar";
    ++cluster_.shared()->changes;
    const Membership* const membership = cluster_.worker(0)->membership();
    while (!cluster_.Quiet() || membership->state().table.version < table->version) cluster_.network()->Step();
    claims.clear();
    Meganode* const tree = regions->Find(kRoutes)->tree;
    if (!tree->InsertRoute("", RootOf(kTree)).ok() || !tree->InsertRoute("k5", RootOf(kElsewhere)).ok()) std::abort();
    for (const uint32_t region : {kTree, kSlots, kBuckets}) {
      for (int i = 0; i < (how_ & 64 ? 150 : 20); ++i) {
        const std::string key = fmt::format("k{}", i);
        const std::string value(static_cast<size_t>(i * 37 % 200), 'v');
        (void)regions->Find(region)->store->Put(key, value, Crc64(value, Crc64(key)));
      }
    }
  }
  static void Check(Worker* worker) {
    for (const HeldRegion* region : worker->regions()->all()) {
      if (region->state() == RegionState::kFilling || region->claimed() || !region->readable()) continue;
      if (!region->transactions.empty()) continue;  // What is prepared has extents to which no leaf points.
      if (region->hash != nullptr) {
        if (!region->hash->Check().ok()) std::abort();
        continue;
      }
      const TreeReport report = CheckTree(*region->memory);
      if (report.ok()) continue;
      std::fprintf(stderr, "region %u: %s\n", region->region(), report.errors[0].c_str());
      std::abort();
    }
  }

  Input* const input_;
  const uint8_t how_;
  FuzzGrants grants_{0};
  Connected connected_;
  std::vector<std::unique_ptr<Answer>> answers_;  // Outlive the client.
  SimCluster cluster_;
  std::unique_ptr<SimFabric> liar_fabric_;
  Liar liar_;
  std::unique_ptr<SimFabric> client_;
  ConnectionId connections_[2];
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Fuzzed fuzzed(&input);
  for (size_t i = 0; i < kMessagesMax && !input.empty(); ++i) fuzzed.Send();
  return 0;
}

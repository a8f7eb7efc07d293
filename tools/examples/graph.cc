// Runs LinkBench's mix of operations on a social graph, and checks that its counts of links are right.
//
// Shows an application of which most operations need no transaction, and some do. GraphStore (graph_store.h) has the
// keys, and says which operations are transactions, and why.
//
// Why transactions: LinkBench asks how many links a node has. Some nodes have very many, so their number is stored and
// not counted each time. A link and its count are two keys, and in a graph of some size they are in different regions.
// With single puts, two links that are inserted at the same time could be counted once, and a program that ends between
// its two puts would leave a count wrong for ever.
//
// graph load makes a graph, graph run changes and reads it (by several programs at once, if wanted), and graph check
// compares all counts with the links.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/graph_check.h"
#include "tools/examples/graph_store.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr uint64_t kNodesPerTransaction = 10;
constexpr uint64_t kLinksLoaded = 4;     // Of each node and type, at most.
constexpr uint64_t kLinksPossible = 10;  // A node's links lead to the nodes that follow it, as in LinkBench.
constexpr uint64_t kLinksGot = 3;        // By one multiget.
constexpr size_t kNodeBytes = 128;       // LinkBench's medians.
constexpr size_t kLinkBytes = 8;

struct Flags {
  ClientOptions client;
  uint64_t nodes = 1000;
  uint64_t clients = 4;
  double seconds = 5;
};

std::string Data(Random* random, size_t bytes) {
  return std::string(bytes, static_cast<char>('a' + random->Below(26)));
}

// Makes the graph, some nodes with their links and counts in each transaction. Each makes sure that there are no nodes
// from its first one on, so of two programs that load at the same time one is refused, and so is one that loads while
// another runs. A graph that was loaded in part is removed by `cellctl delete-range`.
absl::StatusOr<int> Load(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
  Random random(1);
  uint64_t links = 0;
  for (uint64_t first = 0; first < flags.nodes; first += kNodesPerTransaction) {
    uint64_t added = 0;
    const auto body = [&](Transaction* tx) -> absl::Status {
      added = 0;
      ScanOptions any = PrefixScan("n/");
      any.from = NodeKey(first);
      any.limit = 1;
      ASSIGN_OR_RETURN(const Transaction::Pairs nodes, tx->Scan(any));
      // No commit is needed to know this: a single read is right at the moment at which it is made.
      if (!nodes.empty()) return absl::AlreadyExistsError("there is a graph already");
      for (uint64_t id = first; id < std::min(first + kNodesPerTransaction, flags.nodes); ++id) {
        RETURN_IF_ERROR(tx->Put(NodeKey(id), Data(&random, kNodeBytes)));
        for (uint64_t type = 0; type < kLinkTypes; ++type) {
          const uint64_t count = random.Below(kLinksLoaded + 1);
          for (uint64_t i = 1; i <= count; ++i) {
            RETURN_IF_ERROR(tx->Put(LinkKey({id, type, id + i}), Data(&random, kLinkBytes)));
          }
          RETURN_IF_ERROR(tx->Put(CountKey(id, type), std::to_string(count)));
          added += count;
        }
      }
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(RunUntilKnown(client.get(), body).status());
    links += added;
  }
  fmt::print("{} nodes and {} links were loaded\n", flags.nodes, links);
  return kDone;
}

// What a client of `graph run` knows.
struct Runner {
  GraphStore graph;
  Random random;
  uint64_t nodes_end;  // One above the greatest id that it has seen.

  // Draws a node. Low ids are drawn more often than high ones, so that clients meet.
  uint64_t Node() {
    const double place = random.Unit();
    return static_cast<uint64_t>(place * place * static_cast<double>(nodes_end));
  }
  Link AnyLink() {
    const uint64_t from = Node();
    return {from, random.Below(kLinkTypes), from + 1 + random.Below(kLinksPossible)};
  }
};

absl::Status InsertNode(Runner* runner) {
  ASSIGN_OR_RETURN(const uint64_t id, runner->graph.InsertNode(Data(&runner->random, kNodeBytes)));
  runner->nodes_end = std::max(runner->nodes_end, id + 1);
  return absl::OkStatus();
}

absl::Status GetLinks(Runner* runner) {
  Link link = runner->AnyLink();
  std::vector<Link> links;
  for (uint64_t i = 0; i < kLinksGot; ++i, ++link.to) links.push_back(link);
  return runner->graph.GetLinks(links);
}

struct Operation {
  const char* name;
  uint64_t per_mille;  // LinkBench's frequency of it, rounded.
  absl::Status (*run)(Runner* runner);
};

constexpr std::array<Operation, 10> kOperations = {{
    {"get node", 129, [](Runner* r) { return r->graph.GetNode(r->Node()).status(); }},
    {"insert node", 26, InsertNode},
    {"delete node", 10, [](Runner* r) { return r->graph.DeleteNode(r->Node()); }},
    {"update node", 74, [](Runner* r) { return r->graph.UpdateNode(r->Node(), Data(&r->random, kNodeBytes)); }},
    {"insert link", 90, [](Runner* r) { return r->graph.InsertLink(r->AnyLink(), Data(&r->random, kLinkBytes)); }},
    {"delete link", 30, [](Runner* r) { return r->graph.DeleteLink(r->AnyLink()); }},
    {"update link", 80, [](Runner* r) { return r->graph.UpdateLink(r->AnyLink(), Data(&r->random, kLinkBytes)); }},
    {"count links", 49, [](Runner* r) { return r->graph.CountLinks(r->Node(), r->random.Below(kLinkTypes)).status(); }},
    {"list links", 507, [](Runner* r) { return r->graph.ListLinks(r->Node(), r->random.Below(kLinkTypes)).status(); }},
    {"get links", 5, GetLinks},
}};

// Draws an operation by its frequency.
size_t Draw(Random* random) {
  uint64_t drawn = random->Below(1000);
  size_t i = 0;
  for (; drawn >= kOperations[i].per_mille; ++i) drawn -= kOperations[i].per_mille;
  return i;
}

struct Counts {
  std::array<uint64_t, kOperations.size()> done = {};
  uint64_t aborted = 0;
};

// Runs operations until the time is over. Runs in a thread with a client of its own.
absl::StatusOr<Counts> RunClient(const Flags& flags, uint64_t seed, SteadyClock::time_point until) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
  Runner runner{GraphStore(client.get()), Random(seed), 0};
  ASSIGN_OR_RETURN(runner.nodes_end, runner.graph.NodesEnd());
  if (runner.nodes_end == 0) return absl::NotFoundError("there is no graph: make one by graph load");
  Counts counts;
  do {
    const size_t drawn = Draw(&runner.random);
    const absl::Status status = kOperations[drawn].run(&runner);
    // An update whose answer was lost has happened or not. Either is right, so the run goes on.
    if (!status.ok() && !IsMaybeApplied(status)) return status;
    ++counts.done[drawn];
  } while (SteadyClock::now() < until);
  counts.aborted = runner.graph.aborted();
  return counts;
}

absl::StatusOr<int> Run(const Flags& flags) {
  std::random_device seeds;
  const std::chrono::duration<double> length(flags.seconds);
  const auto until = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(length);
  std::vector<std::future<absl::StatusOr<Counts>>> threads;
  for (uint64_t i = 0; i < flags.clients; ++i) {
    threads.push_back(std::async(std::launch::async, RunClient, std::cref(flags), seeds(), until));
  }
  Counts all;
  for (auto& thread : threads) {
    ASSIGN_OR_RETURN(const Counts counts, thread.get());
    for (size_t i = 0; i < kOperations.size(); ++i) all.done[i] += counts.done[i];
    all.aborted += counts.aborted;
  }
  uint64_t operations = 0;
  for (size_t i = 0; i < kOperations.size(); ++i) {
    fmt::print("{:<24}{:>10}\n", kOperations[i].name, all.done[i]);
    operations += all.done[i];
  }
  fmt::print("{:<24}{:>10.0f}\n", "operations per second", static_cast<double>(operations) / flags.seconds);
  const double each = static_cast<double>(std::max<uint64_t>(operations, 1));
  fmt::print("{:<24}{:>10.5f}\n", "aborts per operation", static_cast<double>(all.aborted) / each);
  return kDone;
}

absl::StatusOr<int> Check(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
  ASSIGN_OR_RETURN(const GraphFindings findings, CheckGraph(client.get()));
  for (const std::string& line : findings.wrong) fmt::print("{}\n", line);
  if (!findings.wrong.empty()) return kWrong;
  fmt::print("{} nodes and {} links, and every count is right\n", findings.nodes, findings.links);
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(const Flags&)> command;
  CLI::App app("Keep a social graph as LinkBench does, with a count of each node's links");
  DeclareCluster(&app, &flags.client);
  app.require_subcommand(1);
  CLI::App* const load = app.add_subcommand("load", "Make a graph");
  load->add_option("--nodes", flags.nodes, "Number of nodes")
      ->check(WholeNumber(1, 100'000'000))
      ->capture_default_str();
  load->callback([&command] { command = Load; });
  CLI::App* const run = app.add_subcommand("run", "Run LinkBench's mix of operations");
  run->add_option("--clients", flags.clients, "Number of threads, each with a client of its own")
      ->check(WholeNumber(1, 64))
      ->capture_default_str();
  run->add_option("--seconds", flags.seconds, "How long to run")->check(Between(0.1, 86'400))->capture_default_str();
  run->callback([&command] { command = Run; });
  CLI::App* const check =
      app.add_subcommand("check", "Compare all counts with the links: exit status 1 if they differ");
  check->callback([&command] { command = Check; });
  return RunExample("graph", &app, argc, argv, [&] { return command(flags); });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

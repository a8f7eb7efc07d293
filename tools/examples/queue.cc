// Keeps queues, from which each item is popped once, in the order in which the items were pushed.
//
// Shows that a transaction's scan counts as read with the keys that were not there: nobody can put a key into a range
// between the scan and the commit.
//
// Keys: queue/NAME/00000000000000000042 has the text of an item. The number of a new item is one above the last number,
// and the item with the lowest number is popped first.
//
// Why transactions: with single reads and writes, two producers could find the same end, and the item of one would
// replace that of the other. Two consumers could pop the same item. A counter of the next number would avoid the
// first, but it would be one more key that everybody writes. The last item itself says where the end is.
//
// What to look at: Push has read the range from the last item on, and Pop the range up to the last item that it takes.
// So a producer and a consumer abort each other only when the queue is nearly empty. Producers do meet at the end, and
// consumers at the beginning: all but one of those that commit at the same time begin again.
//
// An item is popped at most once. One that was popped by a program that then ended before it had written the item is
// gone. A program that must not lose it would delete the item in the transaction that writes what it has made of it.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"
#include "tools/examples/run_until_known.h"

namespace cell {
namespace {

struct Flags {
  ClientOptions client;
  std::string queue = "default";
  std::vector<std::string> texts;
  uint64_t count = 1;

  std::string prefix() const { return fmt::format("queue/{}/", queue); }
};

absl::StatusOr<int> Push(Client* client, const Flags& flags) {
  const auto body = [&flags](Transaction* tx) -> absl::Status {
    ScanOptions last = PrefixScan(flags.prefix());
    last.reverse = true;
    last.limit = 1;
    ASSIGN_OR_RETURN(const Transaction::Pairs end, tx->Scan(last));
    uint64_t number = 0;
    if (!end.empty()) {
      const std::string& key = end[0].first;
      ASSIGN_OR_RETURN(number, NumberIn(key, std::string_view(key).substr(flags.prefix().size())));
      ++number;
    }
    for (const std::string& text : flags.texts) {
      RETURN_IF_ERROR(tx->Put(fmt::format("{}{:020}", flags.prefix(), number++), text));
    }
    return absl::OkStatus();
  };
  // If the outcome of the commit was left unknown, pushing the items once more could double them.
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  return kDone;
}

absl::StatusOr<int> Pop(Client* client, const Flags& flags) {
  Transaction::Pairs items;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ScanOptions first = PrefixScan(flags.prefix());
    first.limit = flags.count;
    ASSIGN_OR_RETURN(items, tx->Scan(first));
    for (const auto& [key, text] : items) RETURN_IF_ERROR(tx->Delete(key));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(RunUntilKnown(client, body).status());
  for (const auto& [key, text] : items) fmt::print("{}\n", text);  // Before the commit, another one could have them.
  return items.empty() ? kWrong : kDone;
}

// Counts the items. This needs no transaction, because the next push makes any length out of date. The count is exact
// when nobody pushes or pops meanwhile.
absl::StatusOr<int> Length(Client* client, const Flags& flags) {
  const ScanOptions all = PrefixScan(flags.prefix());
  ASSIGN_OR_RETURN(const uint64_t length, client->Count(all.from, all.to));
  fmt::print("{}\n", length);
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(Client*, const Flags&)> command;
  CLI::App app("Push items to a queue, and pop them in the same order");
  DeclareCluster(&app, &flags.client);
  app.add_option("--queue", flags.queue, "Name of the queue")->check(PartOfKey())->capture_default_str();
  app.require_subcommand(1);
  CLI::App* const push = app.add_subcommand("push", "Push each TEXT as an item, all of them or none");
  push->add_option("text", flags.texts)->required();
  push->callback([&command] { command = Push; });
  CLI::App* const pop = app.add_subcommand("pop", "Pop the first items, one a line: exit status 1 if there is none");
  pop->add_option("--count", flags.count, "How many items to pop at most")
      ->check(WholeNumber(1, 1000))
      ->capture_default_str();
  pop->callback([&command] { command = Pop; });
  CLI::App* const length = app.add_subcommand("length", "Write the number of items");
  length->callback([&command] { command = Length; });
  return RunExample("queue", &app, argc, argv, [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
    return command(client.get(), flags);
  });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

// BenchTransactions runs the transactions of cell_bench's workloads tx-....
//
//   put          puts one key                     two       puts two keys, which are perhaps in two regions
//   read         gets four keys at once           rewrite   gets a key and puts it
//   snapshot     takes a snapshot of everything, gets a key that it has, and forgets it
//   small-bank   SmallBank (Alomari et al., ICDE 2008) with H-Store's frequencies. Keys 2i and 2i + 1 are a customer's
//                accounts
//   tatp         the Telecom Application Transaction Processing benchmark: 80 % reads. Keys 4i to 4i + 3 are a
//                subscriber's rows
//   new-order    the order of 5 to 15 items of TPC-C (revision 5.11, 2.4), with uniform draws. Its rows have keys of
//                their own below the prefix, and exist from when they are first written; there are 10,000 items, and
//                a warehouse for each 10,000 of --keys
//
// The first 8 bytes of a value count as a number where one is needed. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/random.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/transaction.h"
#include "tools/bench_data.h"

namespace cell {

enum class BenchTransaction { kPut, kTwo, kRead, kRewrite, kSnapshot, kSmallBank, kTatp, kNewOrder };

class BenchTransactions {
 public:
  // All arguments must outlive this. `keys`: how many were loaded.
  BenchTransactions(Client* client, const DataShape& shape, uint64_t keys, KeyChooser* chooser, Random* random)
      : client_(client), shape_(shape), keys_(keys), chooser_(chooser), random_(random) {}

  // Runs one transaction, and again after a pause while it is aborted. Returns what ended it otherwise.
  Task<absl::Status> Run(BenchTransaction kind);
  // Returns how many tries were aborted.
  uint64_t aborted() const { return aborted_; }
  void ResetCounters() { aborted_ = 0; }

 private:
  // What one transaction is about: the same for each try.
  struct Drawn {
    BenchTransaction kind;
    std::vector<uint64_t> numbers;  // Four distinct keys, if there are as many.
    Random random;
  };

  Task<absl::Status> ReadSnapshot(std::string key);
  Task<absl::Status> Body(Transaction* tx, const Drawn* drawn);
  Task<absl::Status> SmallBank(Transaction* tx, const Drawn* drawn);
  Task<absl::Status> Tatp(Transaction* tx, const Drawn* drawn);
  // Gives up one order in 100, for an item that does not exist (TPC-C 2.4.1.4): returns Cancelled.
  Task<absl::Status> NewOrder(Transaction* tx, const Drawn* drawn);
  // Gets all keys at the same time.
  Task<absl::Status> GetAll(Transaction* tx, std::vector<std::string> keys);
  // Gets the rows at the same time. A row that is not there yet has a value that its key gives.
  Task<absl::StatusOr<std::vector<std::string>>> Rows(Transaction* tx, std::vector<std::string> keys);
  std::string Key(uint64_t i) const;
  std::string Fresh(const std::string& key, uint64_t number) const;

  Client* const client_;
  const DataShape& shape_;
  const uint64_t keys_;
  KeyChooser* const chooser_;
  Random* const random_;
  uint64_t aborted_ = 0;
};

}  // namespace cell

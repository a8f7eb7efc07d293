// Writes random histories of transactions for adya, and prints what our checker says of each, for adya_beside_ours.py.
//
//   adya_random_histories DIRECTORY FIRST_SEED SEEDS small|larger
//
// For each seed it prints a line: the seed, "yes" or "no", and the number of files SEED.0, SEED.1, ..., one for each
// choice of absences. The history is right if adya finds any of them valid. There are none if that would be too many.
// SEED.one is the file that the simulation would write, and SEED.order has the order for all of them. There is none of
// these if two transactions wrote a key at one stamp, of which adya cannot be told.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/random.h"
#include "fmt/format.h"
#include "tests/simulation/adya_history.h"
#include "tests/simulation/random_transactions.h"
#include "tests/simulation/serializability.h"

namespace cell {
namespace {

constexpr size_t kChoicesMax = 500;

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  CELL_CHECK(file.good());
}

bool HasEqualStamps(const std::vector<TransactionRecord>& history) {
  std::map<std::pair<int, uint64_t>, int> writers;
  for (const TransactionRecord& one : history) {
    for (const TransactionRecord::Write& write : one.writes) {
      if (++writers[{write.key, one.stamp}] > 1) return true;
    }
  }
  return false;
}

void Write(const std::string& directory, uint64_t seed, bool larger) {
  Random random(seed);
  const std::vector<TransactionRecord> history = larger ? LargerHistory(&random) : SmallHistory(&random);
  const SerializabilityResult result = CheckSerializable(history);
  CELL_CHECK(result.kind != SerializabilityResult::kGaveUp);
  const bool yes = result.kind == SerializabilityResult::kYes;
  size_t written = 0;
  if (!HasEqualStamps(history)) {
    for (const SeenAbsences& absences : AllAbsences(history, kChoicesMax)) {
      WriteFile(fmt::format("{}/{}.{}", directory, seed, written++), WriteForAdya(history, absences).operations);
    }
    const AdyaHistory one =
        WriteForAdya(history, yes ? AbsencesInOrder(history, result.order) : CertainAbsences(history));
    WriteFile(fmt::format("{}/{}.one", directory, seed), one.operations);
    WriteFile(fmt::format("{}/{}.order", directory, seed), one.order);
  }
  fmt::print("{} {} {}\n", seed, yes ? "yes" : "no", written);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "adya_random_histories DIRECTORY FIRST_SEED SEEDS small|larger\n");
    return 2;
  }
  const uint64_t first = std::strtoull(argv[2], nullptr, 10), seeds = std::strtoull(argv[3], nullptr, 10);
  const bool larger = std::string(argv[4]) == "larger";
  for (uint64_t seed = first; seed < first + seeds; ++seed) cell::Write(argv[1], seed, larger);
  return 0;
}

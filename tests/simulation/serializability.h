// Checks whether a history of committed transactions is strictly serializable: whether they have a total order in which
//  1. a transaction that ended before another began comes before it,
//  2. the writers of each key come in the order of their stamps, and
//  3. each read sees the last write of its key before it.
//
// The stamps give the order of each key's versions, so most of this is a graph: each transaction comes after the
// writers of what it reads and overwrites, and after those that read what it overwrites (Adya 1999). A cycle refutes
// the history. A read of an absent key does not tell which absence it saw, the one before the first put or one after a
// delete. It is a choice for each time that the key was present: to come before the put, or after the delete (the
// polygraphs of Papadimitriou 1979). The search makes the choices that a topological order of the graph does not
// satisfy already, takes one that is forced as such, and goes back to a choice that a contradiction depends on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cell {

// A transaction that has committed. A read or a write of one key is a transaction too, and a scan is one that reads
// each key of its range. REQUIRES: begin_ns <= end_ns, keys are not negative, and each key is written at most once.
struct TransactionRecord {
  static constexpr int64_t kNever = INT64_MAX;

  struct Read {
    int key;
    uint64_t stamp;  // The version that was read. 0: the key was absent.
  };
  struct Write {
    int key;
    bool deletes;
  };
  int64_t begin_ns;
  int64_t end_ns;               // kNever: no answer came, but the transaction is known to have committed.
  uint64_t stamp = 0;           // The version of every key that it writes. 0: it writes nothing.
  std::vector<Read> reads{};    // They saw the state before its writes.
  std::vector<Write> writes{};  // Writes of one key have different stamps, else the history is refused.
  std::string name{};           // Reports use it. Empty: they use the index.
};

struct SerializabilityResult {
  enum Kind { kYes, kNo, kGaveUp };

  Kind kind;
  // Tells why not: lists transactions of which each must come before the next, up to the first one again, with the
  // reason for each step. It is a short contradiction, though not always the shortest.
  std::string why{};
  // With kYes: a total order as above, by indices of the history.
  std::vector<size_t> order{};
};

// Checks a history of keys that are all absent at first. Gives up when the search for the choices has taken more than
// `steps_max` steps, each of which looks at an edge or at a read. A history without a choice is always decided.
SerializabilityResult CheckSerializable(const std::vector<TransactionRecord>& history,
                                        uint64_t steps_max = 500'000'000);

}  // namespace cell

// Writes a history of transactions for adya (https://crates.io/crates/adya), a checker of isolation that others have
// written, so that it judges what CheckSerializable has judged. adya reads the history as one of registers, with the
// order of their writers:
//
//   adya check --model rw-register --consistency-models strict-serializable --transaction-order ORDER HISTORY
//
// A register of adya has no deletes. So a delete of a key is written as a write of a value of its own, and a read of
// an absent key as a read of such a value, or of null, which precedes all writes. Nobody knows which of the absences of
// a key a read saw, and adya judges only what it is told:
//  1. If adya finds a history valid for some choice of absences, the history is strictly serializable: the order that
//     adya has found is one of the transactions with deletes, too.
//  2. If a history is strictly serializable, adya must find it valid for some choice, but for others it need not.
//  3. A history whose reads of absent keys are left out stays strictly serializable if it was.
//
// Therefore a history that CheckSerializable accepts is written with the absences that follow from the order that it
// has found. That order proves nothing to adya: by 1, adya's "valid" does not depend on CheckSerializable. A history
// that CheckSerializable refuses, or gives up, is written without those reads of absent keys that leave a choice. By 3,
// adya's "invalid" does not depend on CheckSerializable either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/serializability.h"

namespace cell {

// The absences that reads saw, by transaction and key: the stamp of the delete before the read. 0: there was no write
// before it. Reads of absent keys that are not in it are left out.
using SeenAbsences = std::map<std::pair<size_t, int>, uint64_t>;

// Returns the absences that reads saw if transactions took effect in this order. It is one that CheckSerializable has
// found.
SeenAbsences AbsencesInOrder(const std::vector<TransactionRecord>& history, const std::vector<size_t>& order);

// Returns the absences of which no other choice is possible: those of keys that nobody deletes, and those of keys that
// the reader writes itself, whose last version before that is known.
SeenAbsences CertainAbsences(const std::vector<TransactionRecord>& history);

// Returns all choices of absences, which are CertainAbsences and each combination of the others. Returns nothing if
// there are more than `choices_max`.
std::vector<SeenAbsences> AllAbsences(const std::vector<TransactionRecord>& history, size_t choices_max);

// The texts of two files.
struct AdyaHistory {
  std::string operations;  // One operation in each line, as JSON.
  std::string order;       // A JSON object: the stamp of each writer by the index of the operation that ends it.
};

// Writes a history. A put writes its stamp. Each transaction has a process of its own, since a client may have several
// at once; one whose end is not known ends after everything else. adya does not object to a read of a value that
// nobody wrote, so a transaction that failed is added as the writer of each such value. Nor does it object to two
// transactions that wrote a key at the same stamp, which CheckSerializable refuses. REQUIRES: no stamp is above
// INT64_MAX.
AdyaHistory WriteForAdya(const std::vector<TransactionRecord>& history, const SeenAbsences& absences);

}  // namespace cell

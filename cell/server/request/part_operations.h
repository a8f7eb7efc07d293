// Tells what the operations of a transaction's part do, taken together. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "cell/layout/transaction.h"

namespace cell {

// Returns whether no key is read twice, nor written twice, by itself. Clients have no use for that, and what the same
// key costs again and again adds up.
inline bool EachKeyOnce(const std::vector<PartOperation>& operations) {
  if (operations.size() < 2) return true;
  std::vector<std::pair<bool, std::string_view>> keys;
  keys.reserve(operations.size());
  for (const PartOperation& operation : operations) {
    if (operation.kind != PartOperationKind::kReadRange) keys.emplace_back(operation.writes(), operation.key);
  }
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) == keys.end();
}

// Returns the put if the part writes nothing else, or null.
inline const PartOperation* OnlyPutOf(const std::vector<PartOperation>& operations) {
  const PartOperation* put = nullptr;
  for (const PartOperation& operation : operations) {
    if (!operation.writes()) continue;
    if (put != nullptr || operation.kind == PartOperationKind::kDelete) return nullptr;
    put = &operation;
  }
  return put;
}

// Returns how many ranges the part has read.
inline size_t RangesOf(const std::vector<PartOperation>& operations) {
  return static_cast<size_t>(std::count_if(operations.begin(), operations.end(), [](const PartOperation& operation) {
    return operation.kind == PartOperationKind::kReadRange;
  }));
}

}  // namespace cell

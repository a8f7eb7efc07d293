// Runs the same operations in this process, without a fabric: on Cell's own tree, and on LMDB for comparison.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "cell/layout/limits.h"
#include "tools/bench_data.h"

namespace cell {

struct LocalBench {
  std::string operation = "get";  // "get", "search", "scan" or "put", of a key that exists.
  uint64_t keys = 0;
  DataShape shape = {};  // Without a prefix.
  uint64_t seed = 1;
  double seconds = 5;
  bool zipfian = false;
  size_t depth = 1;  // Searches that are executed together.
  uint32_t scan_length = 100;
  uint32_t node_bytes = 1024;
  size_t inline_max = kInlineMaxDefault;  // See Meganode::set_inline_max.
  std::string lmdb_dir;                   // Where LMDB puts its file, which is removed at the end.
};

struct LocalResult {
  uint64_t operations = 0;
  uint64_t entries = 0;  // Entries of scans.
  double seconds = 0;
  double load_seconds = 0;
  uint64_t data_bytes = 0;    // Bytes of keys and values.
  uint64_t stored_bytes = 0;  // Bytes that the store uses for them.
};

absl::StatusOr<LocalResult> RunLocal(const LocalBench& bench);
// Does not know "put".
absl::StatusOr<LocalResult> RunLmdb(const LocalBench& bench);

}  // namespace cell

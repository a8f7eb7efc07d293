#include "tools/bench_local.h"

#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "cell/io/fabric/shm/shm_fabric.h"
#include "cell/region/region_memory.h"
#include "cell/tree/meganode.h"
#include "fmt/format.h"
#include "tools/bench_data.h"

namespace cell {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Means of the various sizes (DataShape).
constexpr size_t kKeyBytesUsual = 36;
constexpr size_t kValueBytesUsual = 132;

// Runs `step`, which executes some operations, until the time is over.
void Measure(double seconds, LocalResult* result, const std::function<void()>& step) {
  const double start = Now();
  while (result->seconds < seconds) {
    for (int i = 0; i < 256; ++i) step();
    result->seconds = Now() - start;
  }
}

// Data is copied out, as a caller would do. The sum keeps the compiler from removing that.
volatile uint64_t sink;

}  // namespace

absl::StatusOr<LocalResult> RunLocal(const LocalBench& bench) {
  LocalResult result;
  const size_t key_bytes = bench.shape.key_bytes != 0 ? bench.shape.key_bytes : kKeyBytesUsual;
  const size_t value_bytes = bench.shape.value_bytes != 0 ? bench.shape.value_bytes : kValueBytesUsual;
  const RegionShape shape{
      bench.node_bytes, RegionShape::RoundUp(bench.keys * 2 * (64 + key_bytes + bench.inline_max) + (1 << 20), 1 << 20),
      RegionShape::RoundUp(bench.keys * (64 + key_bytes + value_bytes) + (1 << 20), 1 << 20)};
  ShmFabric fabric;  // For memory like a server's: huge pages if there are any.
  ASSIGN_OR_RETURN(RegionMemory * memory, fabric.CreateRegion(1, shape.region_bytes()));
  RETURN_IF_ERROR(Meganode::Format(memory, 1, shape));
  Meganode tree(memory);
  tree.set_inline_max(bench.inline_max);
  std::string key, value;
  const double load_start = Now();
  for (uint64_t i = 0; i < bench.keys; ++i) {
    MakeKey(i, &key, bench.shape);
    MakeValue(i, 0, &value, bench.shape);
    RETURN_IF_ERROR(tree.Put(key, value, Crc64(value, Crc64(key))).status());
  }
  result.load_seconds = Now() - load_start;
  result.data_bytes = tree.header().data_bytes;
  result.stored_bytes = tree.header().nodes_used * bench.node_bytes + tree.extents().bytes_used;

  KeyChooser chooser(bench.keys, bench.zipfian, bench.seed);
  std::vector<char> out(kNodeBytesMax);
  const size_t depth = std::min(bench.depth, Meganode::kBatchMax);
  std::array<std::string, Meganode::kBatchMax> keys;
  std::array<Meganode::Lookup, Meganode::kBatchMax> lookups;
  const bool get = bench.operation == "get";
  for (Meganode::Lookup& lookup : lookups) {
    lookup.prefetches = get ? Meganode::Prefetches::kPair : Meganode::Prefetches::kNothing;
  }
  const auto take = [&](const Meganode::Location& location) {
    if (!get || !location.pair.has_value()) return;
    const std::string_view found = tree.ValueOf(*location.pair);
    std::memcpy(out.data(), found.data(), found.size());
    sink = static_cast<unsigned char>(out[0]);
  };
  absl::Status status;
  uint64_t version = 0;
  Measure(bench.seconds, &result, [&] {
    if (bench.operation == "put") {
      const uint64_t i = chooser.Next();
      MakeKey(i, &key, bench.shape);
      MakeValue(i, ++version, &value, bench.shape);
      status.Update(tree.Put(key, value, Crc64(value, Crc64(key))).status());
      ++result.operations;
    } else if (bench.operation == "scan") {
      MakeKey(chooser.Next(), &key, bench.shape);
      NodeView leaf = *tree.LeafOf(key);
      int slot = leaf.LowerBound(key);
      for (uint32_t taken = 0; taken < bench.scan_length;) {
        if (slot == leaf.count()) {
          if (!leaf.has_high()) break;
          leaf = tree.Node(leaf.right());
          slot = 0;
          continue;
        }
        const LeafPair found = leaf.pair(slot);
        if (found.is_inline) {
          leaf.CopyKey(slot, &key);
          std::memcpy(out.data(), key.data(), key.size());
          std::memcpy(out.data() + key.size(), found.value.data(), found.value.size());
        } else {
          std::memcpy(out.data(), tree.Extent(found.outside.extent), found.pair_bytes());
        }
        ++slot;
        ++taken;
        ++result.entries;
      }
      ++result.operations;
    } else if (depth == 1) {
      MakeKey(chooser.Next(), &key, bench.shape);
      const absl::StatusOr<Meganode::Location> location = tree.Find(key);
      if (!location.ok() || !location->pair.has_value()) status = absl::InternalError("a key is missing");
      take(*location);
      ++result.operations;
    } else {
      for (size_t i = 0; i < depth; ++i) {
        MakeKey(chooser.Next(), &keys[i], bench.shape);
        lookups[i].tree = &tree;
        lookups[i].key = keys[i];
      }
      Meganode::FindBatch({lookups.data(), depth});
      for (size_t i = 0; i < depth; ++i) {
        if (!lookups[i].location.pair.has_value()) status = absl::InternalError("a key is missing");
        take(lookups[i].location);
      }
      result.operations += depth;
    }
  });
  RETURN_IF_ERROR(status);
  return result;
}

absl::StatusOr<LocalResult> RunLmdb(const LocalBench& bench) {
  if (bench.operation == "put") return absl::InvalidArgumentError("--operation put: lmdb measures only reads");
  LocalResult result;
  const std::string file = fmt::format("{}/cell-bench-{}.lmdb", bench.lmdb_dir, ::getpid());
  MDB_env* env = nullptr;
  MDB_txn* txn = nullptr;
  MDB_dbi db = 0;
  int rc = 0;
  const auto ok = [&](int code) {
    if (rc == 0) rc = code;
    return rc == 0;
  };
  ok(mdb_env_create(&env));
  ok(mdb_env_set_mapsize(env, (size_t{1} << 30) + bench.keys * 512));
  ok(mdb_env_open(env, file.c_str(), MDB_NOSUBDIR | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOLOCK | MDB_NORDAHEAD, 0600));
  std::string key, value;
  const double load_start = Now();
  constexpr uint64_t kPutsPerTransaction = 10'000;
  for (uint64_t i = 0; i < bench.keys && rc == 0;) {
    if (!ok(mdb_txn_begin(env, nullptr, 0, &txn)) || !ok(mdb_dbi_open(txn, nullptr, 0, &db))) break;
    for (const uint64_t end = std::min(i + kPutsPerTransaction, bench.keys); i < end && rc == 0; ++i) {
      MakeKey(i, &key, bench.shape);
      MakeValue(i, 0, &value, bench.shape);
      MDB_val k{key.size(), key.data()}, v{value.size(), value.data()};
      ok(mdb_put(txn, db, &k, &v, 0));
      result.data_bytes += key.size() + value.size();
    }
    ok(mdb_txn_commit(txn));
  }
  result.load_seconds = Now() - load_start;
  MDB_cursor* cursor = nullptr;
  if (rc == 0 && ok(mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn)) && ok(mdb_cursor_open(txn, db, &cursor))) {
    MDB_stat stat;
    mdb_stat(txn, db, &stat);
    result.stored_bytes = (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * stat.ms_psize;
    KeyChooser chooser(bench.keys, bench.zipfian, bench.seed);
    std::vector<char> out(kNodeBytesMax);
    Measure(bench.seconds, &result, [&] {
      MakeKey(chooser.Next(), &key, bench.shape);
      MDB_val k{key.size(), key.data()}, v{};
      if (bench.operation == "scan") {
        int found = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
        for (uint32_t taken = 0; found == 0 && taken < bench.scan_length; ++taken) {
          std::memcpy(out.data(), k.mv_data, k.mv_size);
          std::memcpy(out.data() + k.mv_size, v.mv_data, v.mv_size);
          ++result.entries;
          found = mdb_cursor_get(cursor, &k, &v, MDB_NEXT);
        }
      } else {
        ok(mdb_get(txn, db, &k, &v));
        if (bench.operation == "get" && rc == 0) std::memcpy(out.data(), v.mv_data, v.mv_size);
      }
      sink = static_cast<unsigned char>(out[0]);
      ++result.operations;
    });
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
  }
  mdb_env_close(env);
  ::unlink(file.c_str());
  if (rc != 0) return absl::InternalError(fmt::format("LMDB in {}: {}", bench.lmdb_dir, mdb_strerror(rc)));
  return result;
}

}  // namespace cell

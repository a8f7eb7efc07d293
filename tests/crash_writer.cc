// Writes keys with growing versions for some seconds, whatever happens to the servers. Records in a file which writes
// were begun, and which were acknowledged when. Before that it compares the store with the file of the last run.
//
// A third of the keys is in the tree; the others are in Pilaf tables, one of each layout, named by --tables.
//
// The exit status is 0 if everything that must be there is there, and 1 otherwise (with one line per key).
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "CLI/CLI.hpp"
#include "cell/base/random.h"
#include "cell/client/client.h"
#include "fmt/format.h"

namespace cell {
namespace {

struct Flags {
  std::string cluster, state;
  std::vector<std::string> tables;
  int keys = 2000;
  double seconds = 1;
  double bound_ms = -1;    // async: writes acknowledged this long before...
  int64_t killed_ns = -1;  // ...this moment must be there. -1: all must be.
  // A sync may take any time, in which async writes wait: the bound counts from the last write that was lost.
  bool slow_syncs = false;
  uint64_t seed = 1;
};

// The tree and the tables. Key number i is in number i modulo their count.
struct Store {
  Client* client;
  std::vector<std::unique_ptr<Table>> tables;

  Table* table(size_t i) const {
    const size_t which = i % (tables.size() + 1);
    return which == 0 ? nullptr : tables[which - 1].get();
  }
};

struct Key {
  int begun = 0;
  int unknown = 0;  // The newest version whose put ended with an unknown outcome. It may be applied at any later time.
  std::map<int64_t, int> acknowledged;  // Versions and their times on CLOCK_BOOTTIME.
};

// A server's last answers may be read after it was killed. No other server answers for it for longer (kTableLeaseNs).
constexpr int64_t kAnswersNs = 500'000'000;

std::string Name(size_t i) { return fmt::format("crash{:06}", i); }
std::string Value(size_t i, int version) { return fmt::format("{} {} ", i, version) + std::string(64 + i % 200, 'v'); }

std::vector<Key> Read(const Flags& flags) {
  std::vector<Key> keys(static_cast<size_t>(flags.keys));
  std::ifstream file(flags.state);
  std::string line;
  for (size_t i = 0; i < keys.size() && std::getline(file, line); ++i) {
    std::istringstream fields(line);
    fields >> keys[i].begun >> keys[i].unknown;
    int64_t ns;
    int version;
    while (fields >> ns >> version) keys[i].acknowledged[ns] = version;
  }
  return keys;
}

// What was found of a key.
struct Found {
  absl::StatusOr<std::optional<std::string>> value = std::nullopt;
  int version = 0;
};

Found Find(const Store& store, size_t i) {
  CallOptions patient;
  patient.timeout_us = 20'000'000;
  Table* const table = store.table(i);
  Found found{table != nullptr ? table->Get(Name(i), patient) : store.client->Get(Name(i), patient)};
  if (found.value.ok() && found.value->has_value()) {
    found.version = std::stoi((*found.value)->substr((*found.value)->find(' ') + 1));
  }
  return found;
}

// Writes that were acknowledged in this time may be lost.
struct MayBeLost {
  int64_t after_ns = INT64_MAX;
  int64_t until_ns = INT64_MAX;
  bool Has(int64_t ns) const { return ns > after_ns && ns <= until_ns; }
};

MayBeLost WhatMayBeLost(const Flags& flags, const std::vector<Key>& keys, const std::vector<Found>& found) {
  if (flags.bound_ms < 0 || flags.killed_ns < 0) return {};
  const int64_t until_ns = flags.killed_ns + kAnswersNs;
  int64_t last_ns = flags.killed_ns;
  if (flags.slow_syncs) {
    last_ns = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      for (const auto& [ns, version] : keys[i].acknowledged) {
        if (version > found[i].version && ns <= until_ns) last_ns = std::max(last_ns, ns);
      }
    }
  }
  return {last_ns - static_cast<int64_t>(flags.bound_ms * 1e6), until_ns};
}

// Returns how many keys are wrong. What is found becomes the new initial state.
int Verify(const Flags& flags, const Store& store, std::vector<Key>* keys) {
  std::vector<Found> all;
  for (size_t i = 0; i < keys->size(); ++i) all.push_back((*keys)[i].begun == 0 ? Found{} : Find(store, i));
  const MayBeLost may_be_lost = WhatMayBeLost(flags, *keys, all);
  int wrong = 0;
  uint64_t lost = 0;
  for (size_t i = 0; i < keys->size(); ++i) {
    Key& key = (*keys)[i];
    const auto& [value, version] = all[i];
    if (key.begun == 0) continue;
    int must = 0, last = 0;
    std::string when;  // Times of acknowledgements relative to the kill.
    for (const auto& [ns, acknowledged] : key.acknowledged) {
      last = acknowledged;
      if (!may_be_lost.Has(ns)) must = acknowledged;
      if (ns > 0)
        when += fmt::format(" {} at {:.1f} ms", acknowledged, static_cast<double>(ns - flags.killed_ns) / 1e6);
    }
    lost += version < last;
    if (!value.ok() || version < must || version > key.begun || (value->has_value() && **value != Value(i, version))) {
      fmt::print("{}: version {}, must be {} to {} ({}); acknowledged, counted from the kill:{}\n", Name(i), version,
                 must, key.begun, value.status().ToString(), when);
      ++wrong;
    }
    key.begun = std::max(version, key.unknown);
    key.acknowledged = {{0, version}};
  }
  fmt::print("verified; {} keys lost their last write, {} wrongly\n", lost, wrong);
  std::fflush(stdout);
  return wrong;
}

Task<bool> Write(const Store* store, std::vector<Key>* keys, size_t first, size_t step, int64_t until_ns, uint64_t seed,
                 uint64_t* acknowledged) {
  Random random(seed);
  Client* const client = store->client;
  while (client->NowNs() < until_ns) {
    const size_t i = first + step * random.Below(keys->size() / step);
    Key& key = (*keys)[i];
    const std::string name = Name(i);
    const std::string value = Value(i, ++key.begun);
    const int version = key.begun;
    CallOptions options;
    options.timeout_us = 10'000'000;
    options.path = random.Below(2) == 0 ? Path::kServer : Path::kClient;
    Table* const table = store->table(i);
    absl::StatusOr<bool> existed = false;
    if (table != nullptr) {
      existed = co_await table->AsyncPut(name, value, options);
    } else {
      existed = co_await client->AsyncPut(name, value, options);
    }
    if (existed.ok()) {
      key.acknowledged[client->NowNs()] = version;
      ++*acknowledged;
    } else if (IsMaybeApplied(existed.status())) {
      key.unknown = version;
    } else {
      key.begun = version - 1;  // It must never be found.
    }
  }
  co_return true;
}

int Run(const Flags& flags) {
  ClientOptions options;
  options.cluster = flags.cluster;
  options.timeout_us = 20'000'000;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Open(options);
  if (!client.ok()) {
    fmt::print("{}\n", client.status().ToString());
    return 1;
  }
  Store store{client->get(), {}};
  for (const std::string& name : flags.tables) {
    absl::StatusOr<Table> table = (*client)->OpenTable(name);
    if (!table.ok()) {
      fmt::print("{}\n", table.status().ToString());
      return 1;
    }
    store.tables.push_back(std::make_unique<Table>(*std::move(table)));
  }
  std::vector<Key> keys = Read(flags);
  if (Verify(flags, store, &keys) > 0) return 1;
  constexpr size_t kWriters = 32;
  const int64_t until_ns = (*client)->NowNs() + static_cast<int64_t>(flags.seconds * 1e9);
  uint64_t acknowledged = 0;
  std::vector<Task<bool>> writers;
  for (size_t i = 0; i < kWriters; ++i) {
    writers.push_back(Write(&store, &keys, i, kWriters, until_ns, flags.seed * kWriters + i, &acknowledged));
    writers.back().Start();
  }
  for (const Task<bool>& writer : writers) {
    while (!writer.done()) (*client)->Poll((*client)->NowNs() + 1'000'000);
  }
  std::ofstream file(flags.state, std::ios::trunc);
  for (const Key& key : keys) {
    file << key.begun << ' ' << key.unknown;
    for (const auto& [ns, version] : key.acknowledged) file << ' ' << ns << ' ' << version;
    file << '\n';
  }
  fmt::print("{} writes acknowledged\n", acknowledged);
  return file.good() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{"Write and verify keys for tests/crash_loop.py."};
  app.add_option("--cluster", flags.cluster)->required();
  app.add_option("--state", flags.state)->required();
  app.add_option("--tables", flags.tables);
  app.add_option("--keys", flags.keys);
  app.add_option("--seconds", flags.seconds);
  app.add_option("--bound-ms", flags.bound_ms);
  app.add_option("--killed-ns", flags.killed_ns);
  app.add_flag("--slow-syncs", flags.slow_syncs);
  app.add_option("--seed", flags.seed);
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

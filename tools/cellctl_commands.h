// Declares the commands of cellctl. Each writes its output, and returns an exit status.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cell/client/client.h"
#include "cell/control/control_client.h"
#include "nlohmann/json.hpp"
#include "tools/hash_layout_flag.h"

namespace cell {

constexpr int kDone = 0, kAbsent = 1, kError = 2;

struct CtlFlags {
  ClientOptions client;
  uint32_t region = 0;
  std::string server;
  std::string level;
  bool cancel = false;
  uint32_t allocate = 1;
  std::string evict;
  std::string path = "hybrid";
  std::string output = "text";
  double timeout = 15;
  bool timeout_given = false;  // By the user.

  std::string key, value, from, to, prefix, file;
  bool has_to = false, has_prefix = false, keys_only = false, reverse = false;
  bool snapshot = false;     // Of scan: as of one moment.
  bool no_snapshot = false;  // Of backup: not as of one moment.
  bool yes = false;          // Do not ask.
  std::optional<double> ttl_us;
  bool if_absent = false, if_present = false;  // Conditions of put and del, of which at most one is given.
  std::optional<uint64_t> if_stamp;
  std::optional<std::string> if_value;
  bool stamp = false;                           // Of get: show the stamp instead of the value.
  std::string function, argument, type, where;  // Of apply and evaluate.
  int64_t by = 1;                               // Of incr.
  bool merge = false;
  bool raw = false;     // Lines without escapes.
  bool prompt = false;  // The command was given at the prompt, whose user sees no exit status.
  std::string table;    // Empty: the tree.
  HashLayoutFlags layout;
  uint32_t parts = 0;
  uint64_t limit = UINT64_MAX;
  double interval = 1;
  int count = 0;

  std::string user, rights, enforce;  // Of grants.

  std::string key_file;  // Of backups. Empty: they are not encrypted.
  std::string logs;      // Directory of the logs whose keys count.
  std::string who;       // An identity, ROLE/NAME.
  bool offline = false;  // The command needs no cluster.

  bool json() const { return output == "json"; }
};
// Reports an error.
int Fail(const absl::Status& status);
// Reports at the prompt that the key is absent.
int Absent(const CtlFlags& flags);

// Data: cellctl_data.cc.
int Put(Client* client, const CtlFlags& flags);
int Get(Client* client, const CtlFlags& flags);
int Has(Client* client, const CtlFlags& flags);
int TimeToLive(Client* client, const CtlFlags& flags);
int Del(Client* client, const CtlFlags& flags);
int Load(Client* client, const CtlFlags& flags);

// Functions of the servers: cellctl_functions.cc.
int Incr(Client* client, const CtlFlags& flags);
int Apply(Client* client, const CtlFlags& flags);
int Evaluate(Client* client, const CtlFlags& flags);
int ListFunctions(Client* client, const CtlFlags& flags);

// Transactions: cellctl_transactions.cc.
int RunScript(Client* client, const CtlFlags& flags);

// Ranges of keys: cellctl_range.cc.
// Returns InvalidArgument if a range ends before it begins, with the words of Client::Count.
absl::Status CheckRange(std::string_view from, const std::optional<std::string>& to);
int RunScan(Client* client, const CtlFlags& flags);
int RunCount(Client* client, const CtlFlags& flags);
int RunDeleteRange(Client* client, const CtlFlags& flags);

// Pilaf tables: cellctl_hash.cc.
int HashCreate(Client* client, const CtlFlags& flags);
int HashDrop(Client* client, const CtlFlags& flags);
int HashList(Client* client, const CtlFlags& flags);
int HashStats(Client* client, const CtlFlags& flags);

// The servers' state: cellctl_look.cc.
int Status(Client* client, const CtlFlags& flags);
int Check(Client* client, const CtlFlags& flags);
int Top(Client* client, const CtlFlags& flags);

// Requests to the servers' control planes: cellctl_control.cc.
// Opens a client of a server's control plane. Its calls end within --timeout if the user has given that.
absl::StatusOr<std::unique_ptr<ControlClient>> OpenControl(const Client::ServerInfo& server, const CtlFlags& flags);
// Returns the first server that answers and has room for `regions` more regions. If no server has that much room,
// returns the server with the most.
absl::StatusOr<std::unique_ptr<ControlClient>> AnyControl(Client* client, const CtlFlags& flags, uint32_t regions);
int Regions(Client* client, const CtlFlags& flags);
int Allocate(Client* client, const CtlFlags& flags);
int Split(Client* client, const CtlFlags& flags);
int Merge(Client* client, const CtlFlags& flags);
int Move(Client* client, const CtlFlags& flags);
int Drain(Client* client, const CtlFlags& flags);
int Checkpoint(Client* client, const CtlFlags& flags);
int Rebalance(Client* client, const CtlFlags& flags);
int LogLevel(Client* client, const CtlFlags& flags);

// Secrets, without a cluster: cellctl_secret.cc.
int SecretNew(Client* client, const CtlFlags& flags);
int SecretFor(Client* client, const CtlFlags& flags);
int SecretRotate(Client* client, const CtlFlags& flags);
int SecretRetire(Client* client, const CtlFlags& flags);
// Derives ZooKeeper's credentials of clients from those of servers.
int SecretReader(Client* client, const CtlFlags& flags);
int SecretShow(Client* client, const CtlFlags& flags);

// Rules of eviction: cellctl_evict.cc.
int Evict(Client* client, const CtlFlags& flags);

// Grants: cellctl_grants.cc.
int Grant(Client* client, const CtlFlags& flags);
int Revoke(Client* client, const CtlFlags& flags);
int Users(Client* client, const CtlFlags& flags);

// Keys of logs and backups, without a cluster: cellctl_key.cc.
int KeyNew(Client* client, const CtlFlags& flags);
int KeyRotate(Client* client, const CtlFlags& flags);
int KeyRetire(Client* client, const CtlFlags& flags);
int KeyShow(Client* client, const CtlFlags& flags);

// Backups: cellctl_backup.cc.
int Backup(Client* client, const CtlFlags& flags);
int Restore(Client* client, const CtlFlags& flags);
// Without a cluster.
int BackupRemove(Client* client, const CtlFlags& flags);

}  // namespace cell

// cellctl inspects a Cell cluster and changes its content. With a command, runs it; without one, shows a prompt.

#include <signal.h>
#include <sys/stat.h>

#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/cmd/help_text.h"
#include "cell/cmd/number_flags.h"
#include "cell/io/exec/invocation.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/cellctl_prompt.h"
#include "tools/client_flags.h"
#include "tools/command_line.h"

namespace cell {

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  std::fputs(fmt::format("cellctl: {}\n", std::string(status.message())).c_str(), stderr);
  return kError;
}

namespace {

// Declares --ttl, a number with a unit.
void AddTtl(CLI::App* app, CtlFlags* flags) {
  const std::map<std::string, double> units = {{"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6}};
  app->add_option("--ttl", flags->ttl_us,
                  "Time after which the pair expires, by its server's clock: a number and its unit, ms, s, m, h or d")
      ->transform(CLI::Validator(
          [number = CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED)](std::string& text) {
            const std::string given = text;
            // The library takes a unit alone for 1.
            const bool unit_alone = !given.empty() && std::isalpha(static_cast<unsigned char>(given[0])) != 0;
            try {
              if (!unit_alone) return number(text);
              throw CLI::ValidationError("no number");
            } catch (const CLI::ValidationError&) {
              return fmt::format("{} is not a number and its unit, ms, s, m, h or d", given);
            }
          },
          "NUMBER UNIT"));
}

enum class Write { kPut, kDelete };

// Declares the conditions of a write. `stamps`: pairs have stamps.
void AddConditions(CLI::App* app, CtlFlags* flags, Write write, bool stamps) {
  CLI::Option_group* group =
      app->add_option_group("Conditions", "If it does not hold, nothing is written: exit status 1");
  CLI::Option* const absent = group->add_flag("--if-absent", flags->if_absent, "Only if KEY is not there");
  if (write == Write::kDelete) absent->group("");  // Not in the help: it has a message of its own.
  group->add_flag("--if-present", flags->if_present, "Only if KEY is there");
  group->add_option("--if-value", flags->if_value, "Only if KEY is there with this value");
  if (stamps) {
    group->add_option("--if-stamp", flags->if_stamp, "Only if KEY is there with this stamp (get --stamp shows it)")
        ->check(Count());
  }
  app->parse_complete_callback([group, flags, write] {
    if (write == Write::kDelete && flags->if_absent) {
      throw CLI::ValidationError("--if-absent", "a key that is not there cannot be deleted");
    }
    std::vector<std::string> given;
    for (const CLI::Option* option : group->get_options()) {
      if (option->count() > 0) given.push_back(option->get_name());
    }
    if (given.size() < 2) return;
    throw CLI::ExcludesError(fmt::format("{} exclude each other: give one of them", fmt::join(given, " and ")),
                             CLI::ExitCodes::ExcludesError);
  });
}

void DeclareFunctions(CLI::App* app, CtlFlags* flags, Command* chosen) {
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* incr = add("incr", "Add BY to KEY's value, a decimal number, at its server, and write the new one", Incr);
  CLI::App* apply = add("apply", "Change KEY's value by FUNCTION at its server, and write what that returns", Apply);
  CLI::App* evaluate =
      add("evaluate", "Write what FUNCTION finds in KEY's value at its server, which it does not change", Evaluate);
  add("functions", "List the functions of the servers", ListFunctions);
  for (CLI::App* sub : {incr, apply, evaluate}) {
    sub->add_option("key", flags->key)->required();
    sub->add_option("--table", flags->table, "In this Pilaf table instead of the tree");
  }
  incr->add_option("by", flags->by, "A key that is not there counts as 0")
      ->transform(SignedNumber())
      ->capture_default_str();
  for (CLI::App* sub : {apply, evaluate}) {
    sub->add_option("function", flags->function)->required();
    sub->add_option("argument", flags->argument, "With --type: numbers, separated by commas; else bytes as they are");
    sub->add_option("--type", flags->type, "Type of the value's elements")
        ->check(CLI::IsMember({"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"}));
  }
  evaluate->add_option("--where", flags->where, "For count and filter: elements that compare so with ARGUMENT")
      ->check(CLI::IsMember({"eq", "ne", "lt", "le", "gt", "ge"}));
  apply->footer(
      "A value is a vector of elements in little-endian order; one number is applied to all of them, several one by "
      "one:\n"
      "  cellctl apply visits add 1 --type i64         cellctl apply log append 'a line'\n"
      "  cellctl apply limits max 5,7,0 --type u16     cellctl functions lists all of them\n"
      "To replace a value that is as you expect: cellctl put KEY VALUE --if-value EXPECTED.");
  evaluate->footer(
      "  cellctl evaluate weights sum --type f32       cellctl evaluate weights filter 0.5 --where gt --type f32\n"
      "Exit status 1 if there is no such key.");
}

void DeclareHash(CLI::App* app, CtlFlags* flags, Command* chosen) {
  CLI::App* hash = app->add_subcommand(
      "hash", "Manage and use Pilaf tables: unordered maps that are read with one or two one-sided reads");
  hash->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = hash->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* create = add("create", "Create TABLE, with its parts spread over all servers", HashCreate);
  CLI::App* drop = add("drop", "Drop TABLE and its contents", HashDrop);
  add("list", "List all tables", HashList);
  CLI::App* put = add("put", "Store VALUE under KEY; if VALUE is -, read it from standard input", Put);
  CLI::App* ttl = add(
      "ttl", "Say how long KEY's pair is there before it expires: exit status 1 if there is no such key", TimeToLive);
  CLI::App* get = add("get", "Write KEY's value to standard output", Get);
  CLI::App* del = add("del", "Delete KEY", Del);
  CLI::App* has = add("has", "Check whether KEY exists: exit status 0 if it does, 1 if not", Has);
  CLI::App* stats =
      add("stats", "Show the fill of a table, probes per lookup and moved keys, for each part", HashStats);
  for (CLI::App* sub : {create, drop, put, ttl, get, del, has, stats}) {
    sub->add_option("table,--table", flags->table, "Name of the table, as the first argument or with --table")
        ->required();
  }
  for (CLI::App* sub : {put, ttl, get, del, has}) sub->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  AddTtl(put, flags);
  AddConditions(put, flags, Write::kPut, /*stamps=*/false);
  AddConditions(del, flags, Write::kDelete, /*stamps=*/false);
  create->footer(
      "If the servers have no room for the requested parts, no table is created. If a server does not accept its "
      "parts\nafterwards, the table has fewer parts: it can be used, the message says how many it has, and the exit "
      "status is\n2.");
  AddHashLayoutFlags(create, &flags->layout);
  create->add_option("--parts", flags->parts, "Initial number of parts; 0: one for each worker that has room")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

void DeclareSecret(CLI::App* app, CtlFlags* flags, Command* chosen) {
  CLI::App* secret = app->add_subcommand("secret", "Make the secrets by which clients and servers prove who they are");
  secret->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = secret->add_subcommand(name, what);
    sub->callback([chosen, flags, command] {
      *chosen = command;
      flags->offline = true;
    });
    return sub;
  };
  CLI::App* made =
      add("new", "Make a cluster's secret, of 32 random bytes, in the new file FILE (mode 0600)", SecretNew);
  CLI::App* derived = add(
      "for", "Derive the secret of WHO (client/NAME or operator/NAME) from the cluster's in FILE, into the new file TO",
      SecretFor);
  CLI::App* rotate =
      add("rotate", "Put a new secret before that in FILE. Servers accept both until it is retired", SecretRotate);
  CLI::App* retire = add("retire", "Remove all secrets but the newest from FILE", SecretRetire);
  CLI::App* reader =
      add("reader",
          "Derive ZooKeeper's credentials for clients, which only read, from the servers' in FILE (one line "
          "USER:PASSWORD), into the new file TO",
          SecretReader);
  CLI::App* show = add("show", "List whose secrets FILE has, and their ids, without the secrets", SecretShow);
  derived->add_option("who", flags->who, "client/NAME, operator/NAME or server/NAME")->required();
  for (CLI::App* sub : {made, derived, rotate, retire, reader, show}) {
    sub->add_option("file", flags->file)->required();
  }
  for (CLI::App* sub : {derived, reader}) sub->add_option("to", flags->to)->required();
  secret->footer(
      "Servers need the cluster's secret (--secret-file). Who has it can be anybody, so clients should have their "
      "own.\n"
      "To replace a secret while the cluster runs: rotate, copy FILE to all servers, derive the clients' secrets "
      "again,\n"
      "give them out, retire, and copy FILE again. Servers and clients read their files again within a second.");
}

void DeclareKey(CLI::App* app, CtlFlags* flags, Command* chosen) {
  CLI::App* key = app->add_subcommand("data-key", "Make the keys by which logs, checkpoints and backups are encrypted");
  key->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = key->add_subcommand(name, what);
    sub->callback([chosen, flags, command] {
      *chosen = command;
      flags->offline = true;
    });
    sub->add_option("file", flags->file)->required();
    return sub;
  };
  add("new", "Make a key, of 32 random bytes, in the new file FILE (mode 0600)", KeyNew);
  add("rotate", "Put a new key before those in FILE. It encrypts from now on; all of them decrypt", KeyRotate);
  CLI::App* retire = add("retire", "Remove all keys but the newest from FILE, if no log needs them", KeyRetire);
  CLI::App* show = add("show", "List the ids of the keys in FILE, without the keys", KeyShow);
  retire->add_option("--logs", flags->logs,
                     "The servers' --log-dir or --log-store: refuse if a file there needs one of the keys");
  retire->add_flag("--yes", flags->yes, "Without --logs: nothing needs them any more");
  show->add_option("--logs", flags->logs,
                   "The servers' --log-dir or --log-store: show how many files there need each key, too");
  key->footer(
      "Servers get FILE by --log-key, backup and restore by --key. Without its keys nobody can read what they "
      "encrypt:\n"
      "keep a copy elsewhere. To replace a key while the cluster runs: rotate, copy FILE to all servers, cellctl "
      "checkpoint,\n"
      "retire --logs, and copy FILE again. Old backups need old keys, and retire does not look at them.");
}

void DeclareGrants(CLI::App* app, CtlFlags* flags, Command* chosen) {
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* grant = add("grant", "Give USER (a client's name, or * for every client) rights", Grant);
  CLI::App* revoke =
      add("revoke", "Take RIGHTS, and those that include one of them, from USER; without RIGHTS, all that USER has",
          Revoke);
  CLI::App* users = add("users", "List who may do what, or set whether that is enforced", Users);
  for (CLI::App* sub : {grant, revoke}) {
    sub->add_option("user", flags->user, "The NAME of client/NAME in a certificate or a secret, or *")->required();
    CLI::Option* const rights = sub->add_option("rights", flags->rights, "A list of read, scan, write, admin");
    if (sub == grant) rights->required();
    CLI::Option* const prefix =
        sub->add_option("--prefix", flags->prefix, "For the keys of the tree that begin with this");
    CLI::Option* const table = sub->add_option("--table", flags->table, "For this Pilaf table")->excludes(prefix);
    if (sub == revoke) {
      prefix->needs(rights);
      table->needs(rights);
    }
    sub->parse_complete_callback([flags, prefix] { flags->has_prefix = prefix->count() > 0; });
  }
  grant->footer(
      "Rights\n"
      "  read   get pairs, and ask whether they are there\n"
      "  scan   also list and count the pairs of a range\n"
      "  write  put and delete\n"
      "  admin  all of it; by the control plane, also change these grants and rules of eviction, and drop the table\n"
      "Without --prefix and --table they are for everything: the tree and all tables. Only who may scan everything "
      "reads\n"
      "servers' memory by itself; for others servers do the work. Operators and servers need no grants.");
  users
      ->add_option("enforce", flags->enforce,
                   "enforce: clients may do only what grants allow; open: every client may do everything")
      ->check(CLI::IsMember({"enforce", "open"}));
}

void DeclareBackup(CLI::App* app, CtlFlags* flags, Command* chosen) {
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    sub->footer(
        "PLACE is a directory, or rados:POOL[/NAME][@CONF][?user=USER]: the backup NAME (without it, \"backup\") in a "
        "pool\n"
        "of the Ceph cluster whose ceph.conf is CONF (without it, that of CEPH_CONF, or /etc/ceph/ceph.conf), as "
        "Ceph's "
        "user\n"
        "client.USER (without it, client.admin).");
    sub->add_option("place", flags->file, "The backup: a directory (DIR or dir:DIR), or rados:POOL...")->required();
    return sub;
  };
  CLI::App* backup = add("backup", "Write all pairs that the tree has at one moment to a new backup in PLACE", Backup);
  backup->add_flag("--no-snapshot", flags->no_snapshot,
                   "Read the pairs as they are when their turn comes, not as of one moment. For backups that take "
                   "longer than an hour, or for which too much is changed meanwhile for the servers' --snapshot-bytes");
  CLI::App* restore =
      add("restore", "Restore all pairs of the backup in PLACE into this cluster, which must be empty", Restore);
  for (CLI::App* sub : {backup, restore}) {
    sub->add_option(
        "--key", flags->key_file,
        "File with the keys of encrypted backups (cellctl data-key new): the first one encrypts, all decrypt");
  }
  restore->add_flag("--merge", flags->merge,
                    "Allow a cluster that has keys; the backup's values replace those of equal keys");
  add("backup-remove", "Remove the backup in PLACE, or what one that was interrupted has left there", BackupRemove)
      ->parse_complete_callback([flags] { flags->offline = true; });
}

// Declares the arguments that name a range of keys.
void AddRange(CLI::App* app, CtlFlags* flags) {
  app->add_option("from", flags->from, "First key; without it, the range begins with the tree");
  CLI::Option* to = app->add_option("to", flags->to, "Key behind the range; without it, the range has no end");
  CLI::Option* prefix = app->add_option("--prefix", flags->prefix, "All keys that begin with this prefix");
  app->parse_complete_callback([flags, to, prefix] {
    flags->has_to = to->count() > 0;
    flags->has_prefix = prefix->count() > 0;
    if (flags->has_prefix && !flags->from.empty()) throw CLI::ValidationError("--prefix", "cannot be used with FROM");
  });
}

}  // namespace

void Declare(CLI::App* app, CtlFlags* flags, Command* chosen) {
  app->formatter(HelpText());
  app->require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* what, const Command& command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* put = add("put", "Store VALUE under KEY; if VALUE is -, read it from standard input", Put);
  put->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  AddTtl(put, flags);
  AddConditions(put, flags, Write::kPut, /*stamps=*/true);
  add("ttl", "Say how long KEY's pair is there before it expires: exit status 1 if there is no such key", TimeToLive)
      ->add_option("key", flags->key)
      ->required();
  CLI::App* get = add("get", "Write KEY's value to standard output", Get);
  get->add_option("key", flags->key)->required();
  get->add_flag("--stamp", flags->stamp, "Write its stamp instead, which names this version of the pair");
  CLI::App* del = add("del", "Delete KEY", Del);
  del->add_option("key", flags->key)->required();
  AddConditions(del, flags, Write::kDelete, /*stamps=*/true);
  add("has", "Check whether KEY exists: exit status 0 if it does, 1 if not", Has)
      ->add_option("key", flags->key)
      ->required();
  CLI::App* scan = add("scan", "List the pairs from FROM (inclusive) to TO (exclusive) as key TAB value", RunScan);
  scan->footer(
      "Keys and values are escaped: \\\\ \\t \\n \\r, and \\xHH for a byte that is not text. With -o json each pair "
      "is\nan object, in which strings that are not text are {\"hex\": \"00ff\"}. load reads both.\n"
      "With --snapshot, servers keep what is changed meanwhile, for an hour and within their --snapshot-bytes. If that "
      "is\nnot enough, or a region is moved, the scan ends with an error.");
  AddRange(scan, flags);
  scan->add_option("--limit", flags->limit, "Maximum number of pairs")->check(Count());
  scan->add_flag("--keys-only", flags->keys_only, "List keys without values");
  scan->add_flag("--reverse", flags->reverse, "List from the last key down to the first");
  scan->add_flag("--snapshot", flags->snapshot,
                 "List what the range has at one moment, with all of each transaction or nothing of it");
  CLI::App* count = add("count", "Count the keys from FROM (inclusive) to TO (exclusive)", RunCount);
  count->footer("The servers count. Keys that are put or deleted meanwhile are counted or not.");
  AddRange(count, flags);
  CLI::App* delete_range =
      add("delete-range", "Delete all pairs from FROM (inclusive) to TO (exclusive)", RunDeleteRange);
  delete_range->footer(
      "The servers delete, some leaves at a time. Keys that are put meanwhile are deleted or not. Ctrl-C stops, and "
      "says\n"
      "how far the deletion came. The command can be repeated.");
  AddRange(delete_range, flags);
  delete_range->add_flag("--yes", flags->yes, "Do not ask, even if the range has no end");
  CLI::App* load =
      add("load", "Store the pairs from FILE, or from standard input (-), in the format that scan writes", Load);
  load->footer(
      "A line is \"key TAB value\", each escaped (\\\\ \\t \\n \\r \\xHH), or {\"key\": ..., \"value\": ...}. Empty\n"
      "lines are skipped. If a line is invalid, the lines before it are stored.");
  load->add_option("file", flags->file)->required();
  load->add_option("--table", flags->table, "Store the pairs in this Pilaf table instead of the tree");
  load->add_flag("--raw", flags->raw,
                 "Read lines as \"key TAB value\" without escapes: a backslash is an ordinary byte");
  CLI::App* tx = add("tx", "Run the script in FILE, or from standard input (-), as one transaction", RunScript);
  tx->add_option("file", flags->file, "The script, or - for standard input")->required();
  tx->footer(
      "A line is a command, with words as in a shell; a line that begins with # is a comment:\n"
      "  get KEY           write the value               scan FROM [TO]     write the pairs of a range\n"
      "  put KEY VALUE     del KEY                       add KEY NUMBER     to a decimal number; absent counts as 0\n"
      "  expect KEY VALUE  absent KEY                    else nothing is stored: exit status 1\n"
      "  hash get TABLE KEY, hash put TABLE KEY VALUE and so on: the same in a Pilaf table, but for scan\n"
      "All lines take effect at one moment, or none does. While something that was read changes meanwhile, the script\n"
      "is run again. Then what get and scan have read is written as key TAB value, escaped as by scan. Of a key that\n"
      "is absent, get writes the key alone, without a TAB (with -o json, the value null).\n"
      "Exit status\n"
      "  0  all lines have taken effect; that get finds a key absent is no error\n"
      "  1  an expect or absent did not hold: nothing is stored\n"
      "  2  error: nothing is stored or, if the message begins with MaybeApplied, perhaps all of it");
  DeclareFunctions(app, flags, chosen);
  DeclareHash(app, flags, chosen);
  DeclareSecret(app, flags, chosen);
  DeclareKey(app, flags, chosen);
  DeclareGrants(app, flags, chosen);
  add("status", "Show each server's state, problems, regions, keys and fill", Status);
  add("check",
      "Check every invariant of the tree and the tables, region by region, beside other requests (1 s "
      "per GB)",
      Check);
  add("regions", "List all regions with owner, state, epoch, tier and fill", Regions);
  CLI::App* allocate = add("allocate", "Prepare memory for new regions on SERVER", Allocate);
  allocate->add_option("server", flags->server)->required();
  allocate->add_option("--count", flags->allocate, "Number of regions")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  add("split", "Split REGION now", Split)->add_option("region", flags->region)->required();
  add("merge", "Merge REGION into its left neighbour or, if it is the leftmost, its right neighbour into it", Merge)
      ->add_option("region", flags->region)
      ->required();
  CLI::App* move = add("move", "Migrate REGION to SERVER", Move);
  move->add_option("region", flags->region)->required();
  move->add_option("server", flags->server)->required();
  CLI::App* drain = add("drain", "Migrate all regions away from SERVER, and assign it no new ones", Drain);
  drain->add_option("server", flags->server)->required();
  drain->add_flag("--cancel", flags->cancel, "End the drain: SERVER can be assigned regions again");
  CLI::App* evict = add("evict", "Say, or set, which pairs are deleted when a full server gets more", Evict);
  evict->footer(
      "Without RULE, lists the rules. Rules:\n"
      "  none         pairs stay; puts are refused when there is no room (this is the default)\n"
      "  ttl          pairs with an expiry go, of some pairs at random those first that would expire first\n"
      "  lru-sampled  any pair goes, of some pairs at random those first that were not used for longest\n"
      "  default      no rule of its own: what holds for a shorter prefix\n"
      "For each key the rule with its longest prefix counts. A server evicts when a region is full and it holds as "
      "many\n"
      "regions as it may (--regions-max, --memory-max). A Pilaf table has one rule for all its keys.");
  evict->add_option("rule", flags->evict, "none, ttl, lru-sampled or default")
      ->check(CLI::IsMember({"none", "ttl", "lru-sampled", "default"}));
  CLI::Option* const of_keys =
      evict->add_option("--prefix", flags->prefix, "Only for keys that begin with this; without it, for all keys")
          ->needs(evict->get_option("rule"));
  evict->add_option("--table", flags->table, "For this Pilaf table, instead of the tree")
      ->needs(evict->get_option("rule"))
      ->excludes(of_keys);
  add("checkpoint", "Write checkpoints of all regions, and trim their logs", Checkpoint);
  DeclareBackup(app, flags, chosen);
  add("rebalance", "Migrate regions to servers that use fewer bytes, until the load is balanced", Rebalance);
  CLI::App* log_level = add("log-level", "Set the log level of SERVER: trace, debug, info, warning or error", LogLevel);
  log_level->add_option("server", flags->server)->required();
  log_level->add_option("level", flags->level)->required();
  CLI::App* top = add("top", "Show the clients' rate, latency, paths and retries at each interval", Top);
  top->footer(
      "Columns\n"
      "  operations/s    finished operations of all clients; p50 us: their mean of medians, p99 us: their worst\n"
      "  reads/op        one-sided reads of nodes, pairs and tables for each operation\n"
      "  trips/op        round trips for each operation: RPCs, and rounds of reads that are sent and waited for "
      "together\n"
      "  server, client  share of the meganodes searched by servers, and by clients themselves\n"
      "  retries/s       reads that were repeated, because a write interfered\n"
      "  clients         clients that report; servers: servers that answer, and all servers\n"
      "  splits/s ...    splits and joins of meganodes, pairs that had expired and were removed, pairs that were "
      "evicted\n"
      "  tables          lookups by reads, reads for each, and why lookups read again");
  top->add_option("--interval", flags->interval, "Interval in seconds")->check(Between(0.1, 3600));
  top->add_option("--count", flags->count, "Number of lines to show; 0: no limit")->check(CLI::NonNegativeNumber);
}

void AddOutputFlag(CLI::App* app, CtlFlags* flags) {
  app->add_option("-o,--output", flags->output, "Output format: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

int RunCommand(const Command& command, Client* client, const CtlFlags& flags) {
  try {
    const int result = command(client, flags);
    if (result == kError) return result;
    const absl::Status written = FlushOutput();
    return written.ok() ? result : Fail(written);
  } catch (const nlohmann::json::exception& error) {
    return Fail(absl::DataLossError(fmt::format("a server's answer is malformed: {}", error.what())));
  } catch (const std::system_error& error) {  // fmt::print throws it when a write fails.
    return Fail(std::ferror(stdout) != 0 ? OutputError(error.code().value()) : absl::InternalError(error.what()));
  }
}

namespace {

absl::StatusOr<std::unique_ptr<Client>> Open(const CtlFlags& flags) {
  ClientOptions options = flags.client;
  if (options.cluster.empty()) {
    return absl::InvalidArgumentError("no cluster was given: use --cluster DIR, or set CELL_CLUSTER=DIR");
  }
  options.path = *ParsePath(flags.path);
  options.timeout_us = static_cast<int64_t>(flags.timeout * 1e6);
  options.report = false;   // `top` shows the other clients.
  options.connect = false;  // Commands that read the tree connect themselves.
  return Client::Open(options);
}

int Main(int argc, char** argv) {
  ::umask(S_IRWXG | S_IRWXO);  // Backups have the data in plain.
  HoldStandardStreams();
  EnterCallersDirectory();
  CtlFlags flags;
  Command command;
  CLI::App app{
      "Inspect and administer a Cell cluster, and read and write its data. Without a command, start a prompt.\n"
      "Exit status: 0 found or done, 1 key absent, 2 error (one line on standard error)."};
  AddClientFlags(&app, &flags.client);
  app.add_option("--path", flags.path, "Search path: by the server's CPU, by one-sided reads of the client, or hybrid")
      ->check(CLI::IsMember({"server", "client", "hybrid"}))
      ->capture_default_str();
  AddOutputFlag(&app, &flags);
  const CLI::Option* const timeout =
      app.add_option("--timeout", flags.timeout,
                     "Timeout of one operation in seconds. If given, also of each request to a control plane, which "
                     "otherwise may take longer (drain, rebalance, checkpoint: as long as necessary)")
          ->check(Between(0.001, 3600))
          ->capture_default_str();
  app.fallthrough();
  Declare(&app, &flags, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse("cellctl", app, error);
  }
  flags.timeout_given = timeout->count() > 0;
  ::signal(SIGPIPE, SIG_DFL);
  if (flags.offline) return RunCommand(command, nullptr, flags);
  absl::StatusOr<std::unique_ptr<Client>> client = Open(flags);
  if (!client.ok()) return Fail(client.status());
  if (!command) command = RunPrompt;
  return RunCommand(command, client->get(), flags);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

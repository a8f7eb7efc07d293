// cellctl inspects a Cell cluster and changes its content. With a command, runs it; without one, shows a prompt.

#include <signal.h>

#include <cstdio>
#include <system_error>

#include "CLI/CLI.hpp"
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

void DeclareHash(CLI::App* app, CtlFlags* flags, Command* chosen) {
  CLI::App* hash = app->add_subcommand("hash", "Pilaf tables: maps without order, found by one or two reads");
  hash->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, Command command) {
    CLI::App* sub = hash->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* create = add("create", "Make TABLE, its parts spread over all servers", HashCreate);
  CLI::App* drop = add("drop", "Drop TABLE and all that is in it", HashDrop);
  add("list", "All tables", HashList);
  CLI::App* put = add("put", "Store VALUE under KEY; VALUE - reads standard input", Put);
  CLI::App* get = add("get", "Write KEY's value to standard output", Get);
  CLI::App* del = add("del", "Delete KEY", Del);
  CLI::App* has = add("has", "Is KEY stored? By the exit status", Has);
  CLI::App* stats = add("stats", "How full a table is, probes per lookup, keys kicked; part by part", HashStats);
  for (CLI::App* sub : {create, drop, put, get, del, has, stats}) {
    sub->add_option("table,--table", flags->table, "The table, as the first argument or by this flag")->required();
  }
  for (CLI::App* sub : {put, get, del, has}) sub->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  create->footer(
      "When the servers have no room for the parts that are asked for, no table is made. When a server does not take\n"
      "its parts after all, the table has fewer: it can be used, the message has their number, and the exit status is "
      "2.");
  AddHashLayoutFlags(create, &flags->layout);
  create
      ->add_option("--parts", flags->parts,
                   "Parts that it begins with; 0: one for each worker, as far as there is room")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

}  // namespace

void Declare(CLI::App* app, CtlFlags* flags, Command* chosen) {
  app->require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* what, Command command) {
    CLI::App* sub = app->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* put = add("put", "Store VALUE under KEY; VALUE - reads standard input", Put);
  put->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  add("get", "Write KEY's value to standard output", Get)->add_option("key", flags->key)->required();
  add("del", "Delete KEY", Del)->add_option("key", flags->key)->required();
  add("has", "Is KEY stored? By the exit status", Has)->add_option("key", flags->key)->required();
  CLI::App* scan = add("scan", "List key TAB value from FROM (inclusive) to TO (exclusive)", RunScan);
  scan->footer(
      "Keys and values are escaped: \\\\ \\t \\n \\r, and \\xHH for a byte that is no text. With -o json each pair is\n"
      "an object, whose strings that are no text are {\"hex\": \"00ff\"}. load reads both.");
  scan->add_option("from", flags->from);
  CLI::Option* to = scan->add_option("to", flags->to);
  CLI::Option* prefix = scan->add_option("--prefix", flags->prefix, "All keys that begin with this");
  scan->add_option("--limit", flags->limit, "The number of pairs at most")->check(Count());
  scan->add_flag("--keys-only", flags->keys_only, "Keys without values");
  scan->add_flag("--reverse", flags->reverse, "From the last key down to the first");
  scan->parse_complete_callback([flags, to, prefix] {
    flags->has_to = to->count() > 0;
    flags->has_prefix = prefix->count() > 0;
    if (flags->has_prefix && !flags->from.empty()) throw CLI::ValidationError("--prefix", "cannot go with FROM");
  });
  CLI::App* load = add("load", "Store the pairs of FILE, or of standard input (-), as scan writes them", Load);
  load->footer(
      "A line is \"key TAB value\", each escaped (\\\\ \\t \\n \\r \\xHH), or {\"key\": ..., \"value\": ...}. Empty\n"
      "lines are skipped. What comes before a line that is neither is stored.");
  load->add_option("file", flags->file)->required();
  load->add_option("--table", flags->table, "In this Pilaf table; else in the tree");
  load->add_flag("--raw", flags->raw, "Lines are \"key TAB value\", and a backslash is a byte like any other");
  DeclareHash(app, flags, chosen);
  add("status", "Every server, its state and what is wrong; its regions, keys and fill", Status);
  add("check",
      "Check every invariant of every tree, a region at a time, which stops its server meanwhile (a second per GB)",
      Check);
  add("regions", "All regions: whose each is, its state, epoch, tier and fill", Regions);
  CLI::App* allocate = add("allocate", "Get memory for new regions on SERVER ready", Allocate);
  allocate->add_option("server", flags->server)->required();
  allocate->add_option("--count", flags->allocate, "How many regions")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  add("split", "Split a region's meganode now", Split)->add_option("region", flags->region)->required();
  CLI::App* move = add("move", "Move REGION to SERVER", Move);
  move->add_option("region", flags->region)->required();
  move->add_option("server", flags->server)->required();
  CLI::App* drain = add("drain", "Move all regions away from SERVER, and give it no more", Drain);
  drain->add_option("server", flags->server)->required();
  drain->add_flag("--cancel", flags->cancel, "Give it regions again");
  add("checkpoint", "Write checkpoints of all regions, and trim their logs", Checkpoint);
  add("backup", "Write all pairs to a new backup in directory DIR", Backup)->add_option("dir", flags->file)->required();
  CLI::App* restore = add("restore", "Put all pairs of the backup in DIR into this cluster, which is empty", Restore);
  restore->add_option("dir", flags->file)->required();
  restore->add_flag("--merge", flags->merge, "The cluster may have keys: the backup's replace those of the same name");
  add("rebalance", "Move regions to servers that hold less, until that would not help", Rebalance);
  CLI::App* log_level = add("log-level", "Set what SERVER logs: trace, debug, info, warning, error", LogLevel);
  log_level->add_option("server", flags->server)->required();
  log_level->add_option("level", flags->level)->required();
  CLI::App* top = add("top", "What clients do, line by line: rate, latency, paths, retries", Top);
  top->add_option("--interval", flags->interval, "Seconds between lines")->check(Between(0.1, 3600));
  top->add_option("--count", flags->count, "End after this number of lines; 0: never")->check(CLI::NonNegativeNumber);
}

void AddOutputFlag(CLI::App* app, CtlFlags* flags) {
  app->add_option("-o,--output", flags->output, "text or json")
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
    return Fail(absl::DataLossError(fmt::format("a server's answer makes no sense: {}", error.what())));
  } catch (const std::system_error& error) {  // fmt::print throws it when a write fails.
    return Fail(std::ferror(stdout) != 0 ? OutputError(error.code().value()) : absl::InternalError(error.what()));
  }
}

namespace {

absl::StatusOr<std::unique_ptr<Client>> Open(const CtlFlags& flags) {
  ClientOptions options = flags.client;
  if (options.cluster.empty()) {
    return absl::InvalidArgumentError("say which cluster: --cluster DIR, or CELL_CLUSTER=DIR");
  }
  options.path = *ParsePath(flags.path);
  options.timeout_us = static_cast<int64_t>(flags.timeout * 1e6);
  options.report = false;   // `top` shows the other clients.
  options.connect = false;  // Commands that read the tree connect themselves.
  return Client::Open(options);
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  EnterCallersDirectory();
  CtlFlags flags;
  Command command;
  CLI::App app{
      "Looks at a Cell cluster and changes what is in it. Without a command: a prompt.\n"
      "Exit status: 0 found or done, 1 absent, 2 error (one line on standard error)."};
  AddClientFlags(&app, &flags.client);
  app.add_option("--tls-authority", flags.tls.authority, "PEM: who signs the control planes' certificates");
  app.add_option("--tls-certificate", flags.tls.certificate, "PEM: ours, if they ask for one");
  app.add_option("--tls-key", flags.tls.key, "PEM: its key");
  app.add_option("--path", flags.path, "Who walks the tree")
      ->check(CLI::IsMember({"server", "client", "hybrid"}))
      ->capture_default_str();
  AddOutputFlag(&app, &flags);
  app.add_option("--timeout", flags.timeout, "Seconds that one operation may take")
      ->check(Between(0.001, 3600))
      ->capture_default_str();
  app.fallthrough();
  Declare(&app, &flags, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse("cellctl", app, error);
  }
  ::signal(SIGPIPE, SIG_DFL);
  absl::StatusOr<std::unique_ptr<Client>> client = Open(flags);
  if (!client.ok()) return Fail(client.status());
  if (!command) command = RunPrompt;
  return RunCommand(command, client->get(), flags);
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

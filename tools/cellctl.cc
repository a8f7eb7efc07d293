// cellctl: looks at a Cell cluster and changes what is in it. With a command, runs it; without, gives a prompt.

#include <histedit.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "CLI/CLI.hpp"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/client_flags.h"

namespace cell {

int Fail(const absl::Status& status) {
  std::fflush(stdout);
  fmt::print(stderr, "cellctl: {}\n", std::string(status.message()));
  return kError;
}

namespace {

using Command = std::function<int(Client*, const CtlFlags&)>;

// Of Pilaf tables.
void DeclareHash(CLI::App* app, CtlFlags* flags, Command* chosen) {
  CLI::App* hash = app->add_subcommand("hash", "Pilaf tables: maps without order, found by one or two reads");
  hash->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, Command command) {
    CLI::App* sub = hash->add_subcommand(name, what);
    sub->callback([chosen, command] { *chosen = command; });
    return sub;
  };
  CLI::App* create = add("create", "Make TABLE, its parts spread over all servers", HashCreate);
  create->add_option("table", flags->table)->required();
  AddHashLayoutFlags(create, &flags->layout);
  create->add_option("--parts", flags->parts, "So many to begin with; 0: one for each worker")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  add("drop", "Drop TABLE and all that is in it", HashDrop)->add_option("table", flags->table)->required();
  add("list", "All tables", HashList);
  CLI::App* put = add("put", "Store VALUE under KEY; VALUE - reads standard input", Put);
  put->add_option("key", flags->key)->required();
  put->add_option("value", flags->value)->required();
  CLI::App* get = add("get", "Write KEY's value to standard output", Get);
  get->add_option("key", flags->key)->required();
  CLI::App* del = add("del", "Delete KEY", Del);
  del->add_option("key", flags->key)->required();
  CLI::App* has = add("has", "Is KEY stored? By the exit status", Has);
  has->add_option("key", flags->key)->required();
  CLI::App* stats = add("stats", "How full a table is, probes per lookup, keys kicked; part by part", HashStats);
  for (CLI::App* sub : {put, get, del, has, stats}) sub->add_option("--table", flags->table, "Which")->required();
}

// Declares the commands on `app`; the one that is parsed is left in *chosen.
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
  scan->add_option("from", flags->from);
  CLI::Option* to = scan->add_option("to", flags->to);
  CLI::Option* prefix = scan->add_option("--prefix", flags->prefix, "All keys that begin with this");
  scan->add_option("--limit", flags->limit, "At most so many");
  scan->add_flag("--keys-only", flags->keys_only, "Keys without values");
  scan->add_flag("--reverse", flags->reverse, "From the last key down to the first");
  scan->parse_complete_callback([flags, to, prefix] {
    flags->has_to = to->count() > 0;
    flags->has_prefix = prefix->count() > 0;
    if (flags->has_prefix && !flags->from.empty()) throw CLI::ValidationError("--prefix", "cannot go with FROM");
  });
  CLI::App* load = add("load", "Store the lines \"key TAB value\" of FILE, or of standard input (-)", Load);
  load->add_option("file", flags->file)->required();
  load->add_option("--table", flags->table, "In this Pilaf table; else in the tree");
  DeclareHash(app, flags, chosen);
  add("status", "Each server's regions, keys and fill", Status);
  add("check",
      "Check every invariant of every tree, a region at a time, which stops its server meanwhile (a second per GB)",
      Check);
  add("regions", "The regions of all servers, with epoch, tier and fill", Regions);
  CLI::App* allocate = add("allocate", "Get memory for new regions on SERVER ready", Allocate);
  allocate->add_option("server", flags->server)->required();
  allocate->add_option("--count", flags->allocate, "So many regions")
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
  top->add_option("--interval", flags->interval, "Seconds between lines")->check(CLI::Range(0.1, 3600.0));
  top->add_option("--count", flags->count, "End after so many lines; 0: never")->check(CLI::NonNegativeNumber);
}

absl::StatusOr<std::unique_ptr<Client>> Open(const CtlFlags& flags) {
  ClientOptions options = flags.client;
  if (options.cluster.empty()) {
    return absl::InvalidArgumentError("say which cluster: --cluster DIR, or CELL_CLUSTER=DIR");
  }
  options.path = *ParsePath(flags.path);
  options.timeout_us = static_cast<int64_t>(flags.timeout * 1e6);
  options.report = false;  // `top` shows the others.
  return Client::Open(options);
}

int Prompt(const CtlFlags& given) {
  absl::StatusOr<std::unique_ptr<Client>> client = Open(given);
  if (!client.ok()) return Fail(client.status());
  const bool terminal = ::isatty(STDIN_FILENO) != 0;
  EditLine* edit = terminal ? el_init("cellctl", stdin, stdout, stderr) : nullptr;
  History* lines = history_init();
  HistEvent event;
  history(lines, &event, H_SETSIZE, 1000);
  const char* home = std::getenv("HOME");
  const std::string history_file = home == nullptr ? "" : std::string(home) + "/.cellctl_history";
  if (edit != nullptr) {
    el_set(
        edit, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("cell> "); });
    el_set(edit, EL_EDITOR, "emacs");
    el_set(edit, EL_HIST, ::history, lines);
    if (!history_file.empty()) history(lines, &event, H_LOAD, history_file.c_str());
    fmt::print(
        "Commands: put get del has scan load hash status check top regions split move drain rebalance checkpoint "
        "backup "
        "restore log-level. "
        "help, "
        "exit.\n");
  }
  int last = kDone;
  for (;;) {
    std::string line;
    if (edit != nullptr) {
      int bytes = 0;
      const char* text = el_gets(edit, &bytes);
      if (text == nullptr || bytes <= 0) break;
      line = text;
      history(lines, &event, H_ENTER, text);
    } else if (!std::getline(std::cin, line)) {
      break;
    }
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
    if (line.empty()) continue;
    if (line == "exit" || line == "quit") break;
    CtlFlags flags = given;
    Command command;
    CLI::App app{"", "cell>"};
    Declare(&app, &flags, &command);
    try {
      app.parse(line == "help" ? "--help" : line, false);
      last = command ? command(client->get(), flags) : kError;
      if (!command) fmt::print(stderr, "cellctl: no such command: {}\n", line);
    } catch (const CLI::ParseError& error) {
      last = app.exit(error) == 0 ? kDone : kError;
    }
    std::fflush(stdout);
  }
  if (edit != nullptr) {
    if (!history_file.empty()) history(lines, &event, H_SAVE, history_file.c_str());
    el_end(edit);
  }
  history_end(lines);
  return last;
}

int Main(int argc, char** argv) {
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
  app.add_option("-o,--output", flags.output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--timeout", flags.timeout, "Seconds that one operation may take")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.fallthrough();
  Declare(&app, &flags, &command);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kError;
  }
  ::signal(SIGPIPE, SIG_DFL);
  if (!command) return Prompt(flags);
  absl::StatusOr<std::unique_ptr<Client>> client = Open(flags);
  if (!client.ok()) return Fail(client.status());
  const int result = command(client->get(), flags);
  return std::fflush(stdout) == 0 ? result : kError;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

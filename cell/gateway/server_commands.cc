#include "cell/gateway/server_commands.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/gateway/connection.h"
#include "cell/gateway/glob.h"
#include "cell/gateway/space.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

// A part of a command, and how many words a request for it has with both names; below 0: at least -arity.
struct Subcommand {
  std::string_view name;
  int arity;
};

// Returns the one that was asked for, or an empty name after it has replied with what is wrong.
std::string_view FindSubcommand(absl::Span<const Subcommand> all, Words words, ReplyWriter* reply) {
  const auto count = static_cast<int>(words.size());
  for (const Subcommand& one : all) {
    if (!IsOption(words[1], one.name)) continue;
    if (one.arity >= 0 ? count == one.arity : count >= -one.arity) return one.name;
    reply->Error(fmt::format("ERR wrong number of arguments for '{}|{}' command", Lower(words[0]), Lower(one.name)));
    return "";
  }
  std::string name = Lower(words[0]);
  for (char& c : name) c = static_cast<char>(c - 'a' + 'A');  // A command's name has letters alone.
  reply->Error(fmt::format("ERR unknown subcommand '{}'. Try {} HELP.", words[1].substr(0, 128), name));
  return "";
}

constexpr std::string_view kRedisVersion = "7.0.0";  // Clients conclude from it which commands there are.

// A setting as CONFIG GET returns it. Clients ask for these; none can be changed.
struct Setting {
  std::string_view name;
  std::string value;
};

std::vector<Setting> Settings(const Totals& totals) {
  return {{"appendonly", "no"},
          {"databases", "1"},
          {"maxclients", std::to_string(totals.connections_max)},
          {"maxmemory", "0"},
          {"maxmemory-policy", "noeviction"},
          {"proto-max-bulk-len", std::to_string(kArgumentBytesMax)},
          {"save", ""},
          {"timeout", std::to_string(totals.idle_s)}};
}

// Returns whether a client may call itself so.
bool IsClientName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}
constexpr std::string_view kNotAName = "ERR Client names cannot contain spaces, newlines or special characters.";

}  // namespace

Task<bool> Ping(Connection*, Words words, ReplyWriter* reply) {
  if (words.size() > 2) {
    reply->Error("ERR wrong number of arguments for 'ping' command");
  } else {
    words.size() == 2 ? reply->Bulk(words[1]) : reply->Simple("PONG");
  }
  co_return true;
}

Task<bool> Echo(Connection*, Words words, ReplyWriter* reply) {
  reply->Bulk(words[1]);
  co_return true;
}

namespace {

// Makes the connection that of a user. Returns the error to reply with if the password is wrong.
std::optional<std::string_view> LogIn(Connection* connection, std::string_view name, std::string_view password) {
  const User* const user = FindUser(connection->shared()->users, name, password);
  if (user == nullptr) return "WRONGPASS invalid username-password pair or user is disabled.";
  connection->BecomeUser(*user);
  return std::nullopt;
}

}  // namespace

Task<bool> Auth(Connection* connection, Words words, ReplyWriter* reply) {
  if (words.size() > 3) {
    reply->Error(kSyntaxError);
    co_return true;
  }
  if (words.size() == 2 && connection->shared()->users.empty()) {
    reply->Error(
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
        "configuration is correct?");
    co_return true;
  }
  const std::string_view name = words.size() == 3 ? std::string_view(words[1]) : "default";
  if (connection->shared()->users.empty() && name == "default") {  // Any password is right, because none is needed.
    reply->Simple("OK");
    co_return true;
  }
  const std::optional<std::string_view> wrong = LogIn(connection, name, words.back());
  wrong.has_value() ? reply->Error(*wrong) : reply->Simple("OK");
  co_return true;
}

Task<bool> Hello(Connection* connection, Words words, ReplyWriter* reply) {
  int64_t version = connection->version();
  if (words.size() > 1 && !ParseInteger(words[1], &version)) {
    reply->Error("ERR Protocol version is not an integer or out of range");
    co_return true;
  }
  if (version != 2 && version != 3) {
    reply->Error("NOPROTO unsupported protocol version");
    co_return true;
  }
  const std::string* name = nullptr;
  for (size_t i = 2; i < words.size(); ++i) {
    if (IsOption(words[i], "SETNAME") && i + 1 < words.size()) {
      name = &words[++i];
      if (!IsClientName(*name)) {
        reply->Error(kNotAName);
        co_return true;
      }
    } else if (IsOption(words[i], "AUTH") && i + 2 < words.size()) {
      if (const std::optional<std::string_view> wrong = LogIn(connection, words[i + 1], words[i + 2])) {
        reply->Error(*wrong);
        co_return true;
      }
      i += 2;
    } else {
      reply->Error(fmt::format("ERR Syntax error in HELLO option '{}'", words[i]));
      co_return true;
    }
  }
  if (connection->client() == nullptr) {
    reply->Error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
        "<pass> option can be used to authenticate the client and select the RESP protocol version at the same time");
    co_return true;
  }
  if (name != nullptr) *connection->name() = *name;
  connection->set_version(static_cast<int>(version));
  reply->set_version(static_cast<int>(version));
  reply->Map(7);
  reply->Bulk("server");
  reply->Bulk("redis");  // Clients look for it.
  reply->Bulk("version");
  reply->Bulk(kRedisVersion);
  reply->Bulk("proto");
  reply->Integer(version);
  reply->Bulk("id");
  reply->Integer(static_cast<int64_t>(connection->id()));
  reply->Bulk("mode");
  reply->Bulk("standalone");
  reply->Bulk("role");
  reply->Bulk("master");
  reply->Bulk("modules");
  reply->Array(0);
  co_return true;
}

namespace {

// Runs a command that does not look at its connection between MULTI and EXEC.
Task<absl::Status> AsPart(Task<bool> (*command)(Connection*, Words, ReplyWriter*), Words words, ReplyWriter* reply) {
  co_await command(nullptr, words, reply);
  co_return absl::OkStatus();
}

}  // namespace

Task<absl::Status> PingWithin(Space*, Words words, ReplyWriter* reply) { return AsPart(Ping, words, reply); }
Task<absl::Status> EchoWithin(Space*, Words words, ReplyWriter* reply) { return AsPart(Echo, words, reply); }
Task<absl::Status> SelectWithin(Space*, Words words, ReplyWriter* reply) { return AsPart(Select, words, reply); }
Task<absl::Status> UnwatchWithin(Space*, Words, ReplyWriter* reply) {
  reply->Simple("OK");  // EXEC has forgotten all keys already.
  co_return absl::OkStatus();
}

Task<bool> Quit(Connection* connection, Words, ReplyWriter* reply) {
  connection->Quit();
  reply->Simple("OK");
  co_return true;
}

Task<bool> Reset(Connection* connection, Words, ReplyWriter* reply) {
  connection->Reset();
  reply->set_version(2);
  reply->Simple("RESET");
  co_return true;
}

Task<bool> Select(Connection*, Words words, ReplyWriter* reply) {
  int64_t number = 0;
  if (!ParseInteger(words[1], &number)) {
    reply->Error(kNotAnInteger);
  } else {
    number == 0 ? reply->Simple("OK") : reply->Error("ERR DB index is out of range");
  }
  co_return true;
}

Task<bool> ClientCommand(Connection* connection, Words words, ReplyWriter* reply) {
  static constexpr Subcommand kParts[] = {{"ID", 2},   {"GETNAME", 2},  {"SETNAME", 3}, {"SETINFO", 4},
                                          {"INFO", 2}, {"NO-EVICT", 3}, {"NO-TOUCH", 3}};
  const std::string_view part = FindSubcommand(kParts, words, reply);
  if (part == "ID") {
    reply->Integer(static_cast<int64_t>(connection->id()));
  } else if (part == "GETNAME") {
    connection->name()->empty() ? reply->Null() : reply->Bulk(*connection->name());
  } else if (part == "SETNAME") {
    const bool fits = IsClientName(words[2]);
    if (fits) *connection->name() = words[2];
    fits ? reply->Simple("OK") : reply->Error(kNotAName);
  } else if (part == "INFO") {
    reply->Bulk(fmt::format("id={} addr={} name={} db=0 resp={}\n", connection->id(), connection->peer(),
                            *connection->name(), reply->version()));
  } else if (!part.empty()) {  // The others change nothing here.
    reply->Simple("OK");
  }
  co_return true;
}

Task<bool> ConfigCommand(Connection* connection, Words words, ReplyWriter* reply) {
  static constexpr Subcommand kParts[] = {{"GET", -3}};
  if (FindSubcommand(kParts, words, reply).empty()) co_return true;
  std::vector<Setting> settings = Settings(*connection->shared()->totals);
  std::erase_if(settings, [words](const Setting& setting) {
    return std::none_of(words.begin() + 2, words.end(),
                        [&](const std::string& pattern) { return MatchesGlob(Lower(pattern), setting.name); });
  });
  reply->Map(settings.size());
  for (const Setting& setting : settings) {
    reply->Bulk(setting.name);
    reply->Bulk(setting.value);
  }
  co_return true;
}

namespace {
void Describe(const Command& command, ReplyWriter* reply) {
  reply->Array(6);
  reply->Bulk(command.name);
  reply->Integer(command.arity);
  reply->Set(command.kind == Command::kOther ? 0 : 1);
  if (command.kind != Command::kOther) reply->Simple(command.kind == Command::kRead ? "readonly" : "write");
  reply->Integer(command.first_key);
  reply->Integer(command.last_key);
  reply->Integer(command.step);
}
}  // namespace

Task<bool> CommandCommand(Connection*, Words words, ReplyWriter* reply) {
  static constexpr Subcommand kParts[] = {{"COUNT", 2}, {"LIST", 2}, {"INFO", -2}, {"DOCS", -2}};
  const absl::Span<const Command> all = AllCommands();
  const std::string_view part = words.size() == 1 ? "ALL" : FindSubcommand(kParts, words, reply);
  if (part == "ALL" || (part == "INFO" && words.size() == 2)) {
    reply->Array(all.size());
    for (const Command& command : all) Describe(command, reply);
  } else if (part == "COUNT") {
    reply->Integer(static_cast<int64_t>(all.size()));
  } else if (part == "LIST") {
    reply->Array(all.size());
    for (const Command& command : all) reply->Bulk(command.name);
  } else if (part == "INFO") {
    reply->Array(words.size() - 2);
    for (const std::string& name : words.subspan(2)) {
      const Command* const command = FindCommand(name);
      command == nullptr ? reply->NullArray() : Describe(*command, reply);
    }
  } else if (part == "DOCS") {
    reply->Map(0);
  }
  co_return true;
}

Task<bool> Info(Connection* connection, Words words, ReplyWriter* reply) {
  const Totals& totals = *connection->shared()->totals;
  const auto wanted = [&](std::string_view section) {
    if (words.size() == 1) return true;
    return std::any_of(words.begin() + 1, words.end(), [&](const std::string& word) {
      return IsOption(word, section) || IsOption(word, "ALL") || IsOption(word, "DEFAULT") ||
             IsOption(word, "EVERYTHING");
    });
  };
  std::string text;
  if (wanted("SERVER")) {
    text += fmt::format(
        "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\nserver_name:cell_gateway\r\nprocess_id:{}\r\n"
        "uptime_in_seconds:{}\r\n\r\n",
        kRedisVersion, ::getpid(), (UnixNs() - totals.begun_ns) / 1'000'000'000);
  }
  if (wanted("CLIENTS")) text += fmt::format("# Clients\r\nconnected_clients:{}\r\n\r\n", totals.connections.load());
  if (wanted("STATS")) {
    text += fmt::format("# Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\n\r\n",
                        totals.connected.load(), totals.commands.load());
  }
  if (wanted("REPLICATION")) text += "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n";
  if (wanted("CLUSTER")) text += "# Cluster\r\ncluster_enabled:0\r\n\r\n";
  if (!text.empty()) text.resize(text.size() - 2);
  reply->Bulk(text);
  co_return true;
}

Task<bool> ExecCommand(Connection* connection, Words, ReplyWriter* reply) {
  co_return co_await connection->Exec(reply);
}

Task<bool> DiscardCommand(Connection* connection, Words, ReplyWriter* reply) {
  connection->Unwatch();
  reply->Simple("OK");
  co_return true;
}

Task<bool> WatchCommand(Connection* connection, Words words, ReplyWriter* reply) {
  co_return co_await connection->Watch(words.subspan(1), reply);
}

Task<bool> UnwatchCommand(Connection* connection, Words, ReplyWriter* reply) {
  connection->Unwatch();
  reply->Simple("OK");
  co_return true;
}

}  // namespace cell::gateway

#include "cell/gateway/command.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "cell/gateway/hash_commands.h"
#include "cell/gateway/keyspace_commands.h"
#include "cell/gateway/server_commands.h"
#include "cell/gateway/string_commands.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

using Multi = Command::Multi;

// Make commands that have one key, the first argument.
constexpr Command Reads(std::string_view name, int arity, Alone alone, Within within) {
  return {name, arity, Command::kRead, 1, 1, 1, alone, within};
}
constexpr Command Writes(std::string_view name, int arity, Alone alone, Within within) {
  return {name, arity, Command::kWrite, 1, 1, 1, alone, within};
}
constexpr Command Writes(std::string_view name, int arity, Within within) {
  return Writes(name, arity, nullptr, within);
}
// Make commands of which each argument, or each `step`th, is a key.
constexpr Command ReadsMany(std::string_view name, int arity, Alone alone, Within within) {
  return {name, arity, Command::kRead, 1, -1, 1, alone, within};
}
constexpr Command WritesMany(std::string_view name, int arity, int step, Alone alone, Within within) {
  return {name, arity, Command::kWrite, 1, -1, step, alone, within};
}
// Makes a command about the connection or the store.
constexpr Command IsAbout(std::string_view name, int arity, About about, Multi multi = Multi::kPlain,
                          Within within = nullptr, bool before_auth = false) {
  return {name, arity, Command::kOther, 0, 0, 0, nullptr, within, about, multi, before_auth};
}

// In alphabetical order.
constexpr std::array kCommands = std::to_array<Command>({
    Writes("append", 3, AppendWithin),
    IsAbout("auth", -2, Auth, Multi::kPlain, nullptr, /*before_auth=*/true),
    IsAbout("client", -2, ClientCommand),
    IsAbout("command", -1, CommandCommand),
    IsAbout("config", -2, ConfigCommand),
    IsAbout("dbsize", 1, Dbsize),
    Writes("decr", 2, AddAlone, AddWithin),
    Writes("decrby", 3, AddAlone, AddWithin),
    WritesMany("del", -2, 1, DelAlone, DelWithin),
    IsAbout("discard", 1, DiscardCommand, Multi::kDiscard),
    IsAbout("echo", 2, Echo, Multi::kPlain, EchoWithin),
    IsAbout("exec", 1, ExecCommand, Multi::kExec),
    ReadsMany("exists", -2, ExistsAlone, ExistsWithin),
    Writes("expire", -3, ExpireWithin),
    Writes("expireat", -3, ExpireWithin),
    Reads("get", 2, GetAlone, GetWithin),
    Writes("getdel", 2, GetdelWithin),
    Writes("getset", 3, SetWithin),
    Writes("hdel", -3, HdelWithin),
    IsAbout("hello", -1, Hello, Multi::kPlain, nullptr, /*before_auth=*/true),
    Reads("hexists", 3, HashReadAlone, HashReadWithin),
    Reads("hget", 3, HashReadAlone, HashReadWithin),
    Reads("hgetall", 2, HashReadAlone, HashReadWithin),
    Writes("hincrby", 4, HincrbyWithin),
    Reads("hkeys", 2, HashReadAlone, HashReadWithin),
    Reads("hlen", 2, HashReadAlone, HashReadWithin),
    Reads("hmget", -3, HashReadAlone, HashReadWithin),
    Writes("hmset", -4, HsetWithin),
    Reads("hscan", -3, HashReadAlone, HashReadWithin),
    Writes("hset", -4, HsetWithin),
    Writes("hsetnx", 4, HsetWithin),
    Reads("hstrlen", 3, HashReadAlone, HashReadWithin),
    Reads("hvals", 2, HashReadAlone, HashReadWithin),
    Writes("incr", 2, AddAlone, AddWithin),
    Writes("incrby", 3, AddAlone, AddWithin),
    IsAbout("info", -1, Info),
    IsAbout("keys", 2, Keys),
    ReadsMany("mget", -2, MgetAlone, MgetWithin),
    WritesMany("mset", -3, 2, nullptr, MsetWithin),
    WritesMany("msetnx", -3, 2, nullptr, MsetWithin),
    IsAbout("multi", 1, nullptr, Multi::kMulti),
    Writes("persist", 2, PersistWithin),
    Writes("pexpire", -3, ExpireWithin),
    Writes("pexpireat", -3, ExpireWithin),
    IsAbout("ping", -1, Ping, Multi::kPlain, PingWithin),
    Writes("psetex", 4, SetAlone, SetWithin),
    Reads("pttl", 2, TtlAlone, TtlWithin),
    IsAbout("quit", -1, Quit, Multi::kEnds, nullptr, /*before_auth=*/true),
    IsAbout("reset", 1, Reset, Multi::kEnds, nullptr, /*before_auth=*/true),
    IsAbout("scan", -2, ScanCommand),
    IsAbout("select", 2, Select, Multi::kPlain, SelectWithin),
    Writes("set", -3, SetAlone, SetWithin),
    Writes("setex", 4, SetAlone, SetWithin),
    Writes("setnx", 3, SetAlone, SetWithin),
    Reads("strlen", 2, StrlenAlone, StrlenWithin),
    ReadsMany("touch", -2, ExistsAlone, ExistsWithin),
    Reads("ttl", 2, TtlAlone, TtlWithin),
    Reads("type", 2, TypeAlone, TypeWithin),
    WritesMany("unlink", -2, 1, DelAlone, DelWithin),
    IsAbout("unwatch", 1, UnwatchCommand, Multi::kPlain, UnwatchWithin),
    IsAbout("watch", -2, WatchCommand, Multi::kNotInside),
    IsAbout("zlexcount", 4, RangeCommand),
    IsAbout("zrange", -4, RangeCommand),
    IsAbout("zrangebylex", -4, RangeCommand),
    IsAbout("zrevrangebylex", -4, RangeCommand),
});

}  // namespace

absl::Span<const Command> AllCommands() { return kCommands; }

const Command* FindCommand(std::string_view name) {
  constexpr size_t kLongest = 16;
  if (name.empty() || name.size() > kLongest) return nullptr;
  char lower[kLongest];
  std::transform(name.begin(), name.end(), lower,
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  const std::string_view wanted(lower, name.size());
  const auto found = std::lower_bound(kCommands.begin(), kCommands.end(), wanted,
                                      [](const Command& command, std::string_view key) { return command.name < key; });
  return found == kCommands.end() || found->name != wanted ? nullptr : &*found;
}

std::string_view ErrorCode(const absl::Status& status) {
  if (IsMaybeApplied(status)) return "MAYBEAPPLIED";
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return "CLUSTERDOWN";
    case absl::StatusCode::kPermissionDenied:
      return "NOPERM";
    case absl::StatusCode::kResourceExhausted:
      return "OOM";
    case absl::StatusCode::kAborted:
      return "TRYAGAIN";
    default:
      return "ERR";
  }
}

void WriteError(const absl::Status& status, ReplyWriter* reply) {
  reply->Error(fmt::format("{} {}", ErrorCode(status), std::string(status.message())));
}

bool ParseInteger(std::string_view text, int64_t* number) {
  if (text.empty() || text.size() > 20) return false;
  const char* const end = text.data() + text.size();
  const auto [stop, wrong] = std::from_chars(text.data(), end, *number);
  if (wrong != std::errc() || stop != end) return false;
  // Redis takes a number only as it would write it.
  return text == "0" || (text[0] != '0' && (text[0] != '-' || text[1] != '0'));
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsOption(std::string_view word, std::string_view name) {
  return std::equal(word.begin(), word.end(), name.begin(), name.end(), [](char a, char b) {
    return std::toupper(static_cast<unsigned char>(a)) == static_cast<unsigned char>(b);
  });
}

}  // namespace cell::gateway

// Defines what a command is: how it is called, and what runs it. command.cc has the table of all commands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/gateway/resp.h"
#include "cell/gateway/space.h"

namespace cell::gateway {

class Connection;

// The words of a request, the command's name first. They live until the command has ended.
using Words = absl::Span<const std::string>;

// Runs a command without a transaction. Writes the reply, or returns false if these words need Within.
using Alone = Task<bool> (*)(Client* client, Words words, ReplyWriter* reply);
// Runs a command as a part of a transaction, or on a pair. Returns an error if nothing of it can be done; other errors
// are replies.
using Within = Task<absl::Status> (*)(Space* space, Words words, ReplyWriter* reply);
// Runs a command about the connection itself, or the whole store, while no other command of the connection is in
// flight.
using About = Task<bool> (*)(Connection* connection, Words words, ReplyWriter* reply);

struct Command {
  std::string_view name;  // In lower case.
  int arity;              // The number of words; if below 0, at least -arity.
  enum Kind : uint8_t { kRead, kWrite, kOther } kind;
  // The words that are keys: each `step`th from `first_key` to `last_key`, which counts from the end if below 0. No
  // words if `first_key` is 0.
  int first_key, last_key, step;
  Alone alone = nullptr;
  Within within = nullptr;  // Null: the command cannot be between MULTI and EXEC.
  About about = nullptr;
  // How it behaves with MULTI.
  enum class Multi : uint8_t {
    kPlain,      // Is noted between MULTI and EXEC.
    kMulti,      // MULTI.
    kExec,       // EXEC.
    kDiscard,    // DISCARD.
    kNotInside,  // WATCH.
    kEnds,       // Runs at once, and ends MULTI: QUIT, RESET.
  } multi = Multi::kPlain;
  bool before_auth = false;  // Runs for clients that have not authenticated.
};

// Finds a command by its name in any case of letters. Returns null if there is no such command.
const Command* FindCommand(std::string_view name);
absl::Span<const Command> AllCommands();

// Calls `see(key)` for the keys of a request, which has at least as many words as the command takes.
template <typename See>
void ForEachKey(const Command& command, Words words, const See& see) {
  if (command.first_key == 0) return;
  const auto count = static_cast<int>(words.size());
  const int last = command.last_key < 0 ? count + command.last_key : command.last_key;
  for (int i = command.first_key; i <= last && i < count; i += command.step) see(words[static_cast<size_t>(i)]);
}

inline constexpr size_t kReplyBytesMax = size_t{64} << 20;  // The longest reply of a command, or of an EXEC.

// Returns the code with which the error of an operation begins, such as "CLUSTERDOWN" (docs/redis.md).
std::string_view ErrorCode(const absl::Status& status);
// Writes the error of an operation: a code of Redis and the message.
void WriteError(const absl::Status& status, ReplyWriter* reply);

// Parses a decimal integer as Redis does: nothing else, no blanks, no sign but '-'.
bool ParseInteger(std::string_view text, int64_t* number);
// Returns the text in lower case.
std::string Lower(std::string_view text);
// Returns whether a word is an option's name, in any case of letters. `name` is in upper case.
bool IsOption(std::string_view word, std::string_view name);

inline constexpr std::string_view kNotAnInteger = "ERR value is not an integer or out of range";
inline constexpr std::string_view kWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";
inline constexpr std::string_view kOverflow = "ERR increment or decrement would overflow";
inline constexpr std::string_view kBuffersFull = "ERR the gateway's buffers are full (--buffer-bytes-max)";
inline constexpr std::string_view kReplyTooLarge = "ERR the reply would have more than 64 MB";
inline constexpr size_t kPatternBytesMax = 1024;  // A match takes as many steps for each byte of a key.
inline constexpr std::string_view kPatternTooLong = "ERR the pattern has more than 1024 bytes";
inline constexpr std::string_view kSyntaxError = "ERR syntax error";

}  // namespace cell::gateway

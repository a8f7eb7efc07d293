#include "cell/gateway/string_commands.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/client/functions.h"
#include "cell/gateway/hash_record.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr size_t kConditionBytesMax = 4096;  // The longest value of a Condition.
constexpr size_t kKeysATime = 256;           // Keys that a command reads or deletes at a time.

// Parses a time of EXPIRE and its relatives. Returns nullopt if it cannot be stored, which ends with the year 2262.
std::optional<Expiry> ParseExpiry(int64_t number, bool seconds, bool moment) {
  if (seconds && __builtin_mul_overflow(number, int64_t{1000}, &number)) return std::nullopt;
  const int64_t now_ms = UnixNs() / kMsNs;
  const int64_t most_ms = INT64_MAX / kMsNs - 1000 - (moment ? 0 : now_ms);
  if (number > most_ms) return std::nullopt;
  const int64_t ns = std::max<int64_t>(number, 0) * kMsNs;
  return moment ? Expiry::At(ns) : Expiry::After(ns);
}

// The options of SET and its relatives.
struct SetOptions {
  std::string_view value = {};
  bool if_absent = false, if_present = false, returns_old = false, keeps_expiry = false, returns_number = false;
  std::optional<std::string_view> if_equal = {};
  std::optional<Expiry> expiry = {};

  bool has_condition() const { return if_absent || if_present || if_equal.has_value(); }
};

// Parses an expiry that must be in the future, as Redis demands of SET. Returns the error to reply with.
std::optional<std::string> ParseNewExpiry(std::string_view text, bool seconds, bool moment, std::string_view command,
                                          SetOptions* options) {
  int64_t number = 0;
  if (!ParseInteger(text, &number)) return std::string(kNotAnInteger);
  if (number > 0) options->expiry = ParseExpiry(number, seconds, moment);
  if (options->expiry.has_value()) return std::nullopt;
  return fmt::format("ERR invalid expire time in '{}' command", command);
}

// Parses the words behind SET's value. Returns the error to reply with.
std::optional<std::string> ParseSetWords(Words words, SetOptions* options) {
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const bool seconds = IsOption(word, "EX") || IsOption(word, "EXAT");
    const bool moment = IsOption(word, "EXAT") || IsOption(word, "PXAT");
    if (IsOption(word, "NX")) {
      options->if_absent = true;
    } else if (IsOption(word, "XX")) {
      options->if_present = true;
    } else if (IsOption(word, "GET")) {
      options->returns_old = true;
    } else if (IsOption(word, "KEEPTTL")) {
      if (options->expiry.has_value()) return std::string(kSyntaxError);
      options->keeps_expiry = true;
    } else if (IsOption(word, "IFEQ")) {
      if (++i == words.size()) return std::string(kSyntaxError);
      options->if_equal = words[i];
    } else if (seconds || moment || IsOption(word, "PX")) {
      if (++i == words.size() || options->keeps_expiry || options->expiry.has_value()) return std::string(kSyntaxError);
      if (auto wrong = ParseNewExpiry(words[i], seconds, moment, "set", options); wrong.has_value()) return wrong;
    } else {
      return std::string(kSyntaxError);
    }
  }
  if (options->if_absent + options->if_present + options->if_equal.has_value() > 1) return std::string(kSyntaxError);
  return std::nullopt;
}

// Parses SET, SETNX, SETEX, PSETEX or GETSET. Returns the error to reply with.
std::optional<std::string> ParseSet(Words words, SetOptions* options) {
  const std::string_view name = words[0];
  const bool seconds = IsOption(name, "SETEX");
  options->value = words[seconds || IsOption(name, "PSETEX") ? 3 : 2];
  if (IsOption(name, "SET")) return ParseSetWords(words.subspan(3), options);
  if (IsOption(name, "SETNX")) {
    options->if_absent = options->returns_number = true;
  } else if (IsOption(name, "GETSET")) {
    options->returns_old = true;
  } else {
    return ParseNewExpiry(words[2], seconds, /*moment=*/false, seconds ? "setex" : "psetex", options);
  }
  return std::nullopt;
}

// Replies to a SET that returns no value.
void ReplySet(const SetOptions& options, bool applied, ReplyWriter* reply) {
  if (options.returns_number) return reply->Integer(applied ? 1 : 0);
  applied ? reply->Simple("OK") : reply->Null();
}

// Returns whether a key has something else than a string, and then replies so.
bool IsWrongType(const std::optional<std::string>& value, ReplyWriter* reply) {
  if (!value.has_value() || !IsHash(*value)) return false;
  reply->Error(kWrongType);
  return true;
}

void ReplyString(const std::optional<std::string>& value, ReplyWriter* reply) {
  if (!value.has_value()) return reply->Null();
  if (!IsWrongType(value, reply)) reply->Bulk(*value);
}

void ReplyLength(const std::optional<std::string>& value, ReplyWriter* reply) {
  if (!IsWrongType(value, reply)) reply->Integer(static_cast<int64_t>(value.value_or("").size()));
}

void ReplyType(const std::optional<std::string>& value, ReplyWriter* reply) {
  reply->Simple(!value.has_value() ? "none" : IsHash(*value) ? "hash" : "string");
}

// The values of MGET, while they are read.
class Strings {
 public:
  // Returns false if they are too many bytes for a reply.
  bool Add(std::optional<std::string> value) {
    bytes_ += value.has_value() ? value->size() : 0;
    values_.push_back(std::move(value));
    return bytes_ <= kReplyBytesMax;
  }
  // A hash is null, as in Redis.
  void Reply(ReplyWriter* reply) const {
    reply->Array(values_.size());
    for (const std::optional<std::string>& value : values_) {
      value.has_value() && !IsHash(*value) ? reply->Bulk(*value) : reply->Null();
    }
  }

 private:
  std::vector<std::optional<std::string>> values_;
  size_t bytes_ = 0;
};

// Returns whether a string cannot be stored because it would be read as a hash, and then replies so.
bool RefusesString(std::string_view value, ReplyWriter* reply) {
  if (!IsHash(value)) return false;
  reply->Error("ERR the value begins with the 8 bytes by which the gateway knows a hash");
  return true;
}

// Puts a string; replies with the error if it cannot be stored. Returns whether it could.
bool PutOrReply(Space* space, std::string_view key, std::string_view value, Expiry expiry, ReplyWriter* reply) {
  if (RefusesString(value, reply)) return false;
  const absl::Status status = space->Put(key, value, expiry);
  if (!status.ok()) WriteError(status, reply);
  return status.ok();
}

// Returns by how much INCR, DECR, INCRBY or DECRBY adds, or nullopt after it has replied with an error.
std::optional<int64_t> Delta(Words words, ReplyWriter* reply) {
  const bool down = IsOption(words[0], "DECR") || IsOption(words[0], "DECRBY");
  int64_t by = 1;
  if (words.size() == 3 && !ParseInteger(words[2], &by)) {
    reply->Error(kNotAnInteger);
    return std::nullopt;
  }
  if (down && by == INT64_MIN) {
    reply->Error("ERR decrement would overflow");
    return std::nullopt;
  }
  return down ? -by : by;
}

// Calls `begin(key)` for each key, some at a time, and replies with how many of these operations returned true.
template <typename Begin>
Task<bool> CountTrue(Words keys, bool writes, Begin begin, ReplyWriter* reply) {
  int64_t count = 0;
  absl::Status status;
  for (size_t from = 0; status.ok() && from < keys.size(); from += kKeysATime) {
    std::vector<Task<absl::StatusOr<bool>>> tasks;
    for (const std::string& key : keys.subspan(from, kKeysATime)) {
      tasks.push_back(begin(key));
      tasks.back().Start();
    }
    for (Task<absl::StatusOr<bool>>& task : tasks) {
      const absl::StatusOr<bool> one = co_await task.Join();
      if (status.ok() || IsMaybeApplied(one.status())) status = one.ok() ? status : one.status();
      if (one.ok() && *one) ++count;
    }
  }
  if (status.ok()) {
    reply->Integer(count);
  } else if (writes && count > 0) {
    reply->Error(
        fmt::format("{} {} keys were deleted; then: {}", ErrorCode(status), count, std::string(status.message())));
  } else {
    WriteError(status, reply);
  }
  co_return true;
}

// Writes the reply of TTL or PTTL.
void ReplyLeft(Words words, std::optional<int64_t> left_ns, ReplyWriter* reply) {
  if (!left_ns.has_value()) return reply->Integer(-2);
  if (*left_ns == kNeverExpires) return reply->Integer(-1);
  const int64_t left_ms = (*left_ns + kMsNs - 1) / kMsNs;
  reply->Integer(IsOption(words[0], "PTTL") ? left_ms : (left_ms + 500) / 1000);
}

// The options of EXPIRE.
struct ExpireOptions {
  bool if_never = false, if_expires = false, if_later = false, if_earlier = false;
};

// Returns the error to reply with.
std::optional<std::string> ParseExpireWords(Words words, ExpireOptions* options) {
  for (const std::string& word : words) {
    if (IsOption(word, "NX")) {
      options->if_never = true;
    } else if (IsOption(word, "XX")) {
      options->if_expires = true;
    } else if (IsOption(word, "GT")) {
      options->if_later = true;
    } else if (IsOption(word, "LT")) {
      options->if_earlier = true;
    } else {
      return "ERR Unsupported option " + word;
    }
  }
  if (options->if_never && (options->if_expires || options->if_later || options->if_earlier)) {
    return "ERR NX and XX, GT or LT options at the same time are not compatible";
  }
  if (options->if_later && options->if_earlier) return "ERR GT and LT options at the same time are not compatible";
  return std::nullopt;
}

void ReplyWithOne(const absl::Status& put, ReplyWriter* reply) {
  put.ok() ? reply->Integer(1) : WriteError(put, reply);
}

}  // namespace

Task<bool> GetAlone(Client* client, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(words[1]);
  value.ok() ? ReplyString(*value, reply) : WriteError(value.status(), reply);
  co_return true;
}

Task<bool> StrlenAlone(Client* client, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(words[1]);
  value.ok() ? ReplyLength(*value, reply) : WriteError(value.status(), reply);
  co_return true;
}

Task<bool> TypeAlone(Client* client, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(words[1]);
  value.ok() ? ReplyType(*value, reply) : WriteError(value.status(), reply);
  co_return true;
}

Task<bool> SetAlone(Client* client, Words words, ReplyWriter* reply) {
  SetOptions options;
  if (const std::optional<std::string> wrong = ParseSet(words, &options); wrong.has_value()) {
    reply->Error(*wrong);
    co_return true;
  }
  if (RefusesString(options.value, reply)) co_return true;
  const Expiry expiry = options.expiry.value_or(Expiry::Never());
  if (options.returns_old || options.keeps_expiry || expiry.LeftNs() <= 0) co_return false;
  if (options.if_equal.value_or("").size() > kConditionBytesMax) co_return false;
  if (!options.has_condition()) {
    const absl::StatusOr<bool> put = co_await client->AsyncPut(words[1], options.value, expiry.expires());
    put.ok() ? ReplySet(options, true, reply) : WriteError(put.status(), reply);
    co_return true;
  }
  Condition condition = options.if_absent ? Condition::Absent() : Condition::Present();
  if (options.if_equal.has_value()) condition = Condition::ValueIs(*options.if_equal);
  const absl::StatusOr<WriteIfResult> put =
      co_await client->AsyncPutIf(words[1], options.value, expiry.expires(), condition);
  put.ok() ? ReplySet(options, put->applied, reply) : WriteError(put.status(), reply);
  co_return true;
}

Task<bool> DelAlone(Client* client, Words words, ReplyWriter* reply) {
  const auto erase = [client](const std::string& key) { return client->AsyncDelete(key); };
  co_return co_await CountTrue(words.subspan(1), /*writes=*/true, erase, reply);
}

Task<bool> ExistsAlone(Client* client, Words words, ReplyWriter* reply) {
  const auto contains = [client](const std::string& key) { return client->AsyncContains(key); };
  co_return co_await CountTrue(words.subspan(1), /*writes=*/false, contains, reply);
}

Task<bool> MgetAlone(Client* client, Words words, ReplyWriter* reply) {
  const std::vector<std::string_view> keys(words.begin() + 1, words.end());
  Strings strings;
  for (size_t from = 0; from < keys.size(); from += kKeysATime) {
    const auto some = absl::MakeConstSpan(keys).subspan(from, kKeysATime);
    absl::StatusOr<std::vector<std::optional<std::string>>> values = co_await client->AsyncMultiGet(some);
    if (!values.ok()) {
      WriteError(values.status(), reply);
      co_return true;
    }
    for (std::optional<std::string>& value : *values) {
      if (strings.Add(std::move(value))) continue;
      reply->Error(kReplyTooLarge);
      co_return true;
    }
  }
  strings.Reply(reply);
  co_return true;
}

Task<bool> AddAlone(Client* client, Words words, ReplyWriter* reply) {
  const std::optional<int64_t> by = Delta(words, reply);
  if (!by.has_value()) co_return true;
  const FunctionCall call = functions::AddDecimal(*by);
  const absl::StatusOr<ApplyResult> applied = co_await client->AsyncApply(words[1], call);
  if (applied.ok()) {
    int64_t now = 0;
    ParseInteger(applied->result, &now);
    reply->Integer(now);
  } else if (absl::IsFailedPrecondition(applied.status())) {
    const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(words[1]);
    if (!value.ok() || !IsWrongType(*value, reply)) reply->Error(kNotAnInteger);
  } else if (absl::IsOutOfRange(applied.status())) {
    reply->Error(kOverflow);
  } else {
    WriteError(applied.status(), reply);
  }
  co_return true;
}

Task<bool> TtlAlone(Client* client, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<int64_t>> left = co_await client->AsyncTimeLeftNs(words[1]);
  left.ok() ? ReplyLeft(words, *left, reply) : WriteError(left.status(), reply);
  co_return true;
}

Task<absl::Status> GetWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  ReplyString(*value, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> SetWithin(Space* space, Words words, ReplyWriter* reply) {
  SetOptions options;
  if (const std::optional<std::string> wrong = ParseSet(words, &options); wrong.has_value()) {
    reply->Error(*wrong);
    co_return absl::OkStatus();
  }
  const std::string& key = words[1];
  Space::Found old;
  if (options.keeps_expiry) {
    absl::StatusOr<Space::Found> found = co_await space->Read(key);
    if (!found.ok()) co_return found.status();
    old = *std::move(found);
  } else if (options.has_condition() || options.returns_old) {
    absl::StatusOr<std::optional<std::string>> value = co_await space->Get(key);
    if (!value.ok()) co_return value.status();
    old.value = *std::move(value);
  }
  if (options.returns_old && IsWrongType(old.value, reply)) co_return absl::OkStatus();
  const bool there = old.value.has_value();
  const bool holds = (!options.if_absent || !there) && (!options.if_present || there) &&
                     (!options.if_equal.has_value() || (there && *old.value == *options.if_equal));
  const Expiry expiry = options.keeps_expiry ? old.expiry : options.expiry.value_or(Expiry::Never());
  if (holds && !options.keeps_expiry && expiry.LeftNs() <= 0) {  // It would expire at once.
    space->Delete(key);
  } else if (holds && !PutOrReply(space, key, options.value, expiry, reply)) {
    co_return absl::OkStatus();
  }
  options.returns_old ? ReplyString(old.value, reply) : ReplySet(options, holds, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> DelWithin(Space* space, Words words, ReplyWriter* reply) {
  int64_t deleted = 0;
  for (const std::string& key : words.subspan(1)) {
    const absl::StatusOr<std::optional<std::string>> old = co_await space->Get(key);
    if (!old.ok()) co_return old.status();
    if (!old->has_value()) continue;
    space->Delete(key);
    ++deleted;
  }
  reply->Integer(deleted);
  co_return absl::OkStatus();
}

Task<absl::Status> ExistsWithin(Space* space, Words words, ReplyWriter* reply) {
  int64_t found = 0;
  for (const std::string& key : words.subspan(1)) {
    const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(key);
    if (!value.ok()) co_return value.status();
    if (value->has_value()) ++found;
  }
  reply->Integer(found);
  co_return absl::OkStatus();
}

Task<absl::Status> MgetWithin(Space* space, Words words, ReplyWriter* reply) {
  Strings strings;
  for (const std::string& key : words.subspan(1)) {
    absl::StatusOr<std::optional<std::string>> value = co_await space->Get(key);
    if (!value.ok()) co_return value.status();
    if (strings.Add(*std::move(value))) continue;
    reply->Error(kReplyTooLarge);
    co_return absl::OkStatus();
  }
  strings.Reply(reply);
  co_return absl::OkStatus();
}

Task<absl::Status> MsetWithin(Space* space, Words words, ReplyWriter* reply) {
  const bool if_absent = IsOption(words[0], "MSETNX");
  if (words.size() % 2 == 0) {
    reply->Error(fmt::format("ERR wrong number of arguments for '{}' command", if_absent ? "msetnx" : "mset"));
    co_return absl::OkStatus();
  }
  for (size_t i = 1; if_absent && i < words.size(); i += 2) {
    const absl::StatusOr<std::optional<std::string>> old = co_await space->Get(words[i]);
    if (!old.ok()) co_return old.status();
    if (old->has_value()) {
      reply->Integer(0);
      co_return absl::OkStatus();
    }
  }
  for (size_t i = 1; i < words.size(); i += 2) {
    if (RefusesString(words[i + 1], reply)) co_return absl::OkStatus();
    // All of them are put, or none: this ends the transaction.
    const absl::Status put = space->Put(words[i], words[i + 1], Expiry::Never());
    if (!put.ok()) co_return put;
  }
  if_absent ? reply->Integer(1) : reply->Simple("OK");
  co_return absl::OkStatus();
}

Task<absl::Status> AddWithin(Space* space, Words words, ReplyWriter* reply) {
  const std::optional<int64_t> by = Delta(words, reply);
  if (!by.has_value()) co_return absl::OkStatus();
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  int64_t number = 0;
  if (IsWrongType(old->value, reply)) co_return absl::OkStatus();
  if (old->value.has_value() && !ParseInteger(*old->value, &number)) {
    reply->Error(kNotAnInteger);
  } else if (__builtin_add_overflow(number, *by, &number)) {
    reply->Error(kOverflow);
  } else if (PutOrReply(space, words[1], std::to_string(number), old->expiry, reply)) {
    reply->Integer(number);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> AppendWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  if (IsWrongType(old->value, reply)) co_return absl::OkStatus();
  const std::string value = old->value.value_or("") + words[2];
  if (PutOrReply(space, words[1], value, old->expiry, reply)) reply->Integer(static_cast<int64_t>(value.size()));
  co_return absl::OkStatus();
}

Task<absl::Status> StrlenWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  ReplyLength(*value, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> GetdelWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  if (IsWrongType(*value, reply)) co_return absl::OkStatus();
  if (value->has_value()) space->Delete(words[1]);
  ReplyString(*value, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> ExpireWithin(Space* space, Words words, ReplyWriter* reply) {
  const bool seconds = IsOption(words[0], "EXPIRE") || IsOption(words[0], "EXPIREAT");
  const bool moment = IsOption(words[0], "EXPIREAT") || IsOption(words[0], "PEXPIREAT");
  ExpireOptions options;
  if (const std::optional<std::string> wrong = ParseExpireWords(words.subspan(3), &options); wrong.has_value()) {
    reply->Error(*wrong);
    co_return absl::OkStatus();
  }
  int64_t number = 0;
  if (!ParseInteger(words[2], &number)) {
    reply->Error(kNotAnInteger);
    co_return absl::OkStatus();
  }
  const std::optional<Expiry> expiry = ParseExpiry(number, seconds, moment);
  if (!expiry.has_value()) {
    reply->Error(fmt::format("ERR invalid expire time in '{}' command", Lower(words[0])));
    co_return absl::OkStatus();
  }
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  const bool there = old->value.has_value(), never = old->expiry.never();
  absl::StatusOr<int64_t> left_ns = kNeverExpires;
  if (there && !never && (options.if_later || options.if_earlier)) left_ns = co_await space->LeftNs(words[1]);
  if (!left_ns.ok()) co_return left_ns.status();
  const bool applies = there && (!options.if_never || never) && (!options.if_expires || !never) &&
                       (!options.if_later || (!never && expiry->LeftNs() > *left_ns)) &&
                       (!options.if_earlier || expiry->LeftNs() < *left_ns);
  if (!applies) {
    reply->Integer(0);
  } else if (expiry->LeftNs() <= 0) {
    space->Delete(words[1]);
    reply->Integer(1);
  } else {
    ReplyWithOne(space->Put(words[1], *old->value, *expiry), reply);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> PersistWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  if (!old->value.has_value() || old->expiry.never()) {
    reply->Integer(0);
  } else {
    ReplyWithOne(space->Put(words[1], *old->value, Expiry::Never()), reply);
  }
  co_return absl::OkStatus();
}

Task<absl::Status> TtlWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  std::optional<int64_t> left_ns;
  if (value->has_value()) {
    const absl::StatusOr<int64_t> left = co_await space->LeftNs(words[1]);
    if (!left.ok()) co_return left.status();
    left_ns = *left;
  }
  ReplyLeft(words, left_ns, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> TypeWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  ReplyType(*value, reply);
  co_return absl::OkStatus();
}

}  // namespace cell::gateway

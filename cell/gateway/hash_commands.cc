#include "cell/gateway/hash_commands.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/gateway/glob.h"
#include "cell/gateway/hash_record.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

// Returns the hash that a key has, an empty one if the key is not there, or nullopt if it has something else.
std::optional<HashRecord> HashOf(const std::optional<std::string>& value) {
  return value.has_value() ? HashRecord::Parse(*value) : HashRecord();
}

// Replies with all fields that match: a hash is one value, so that one step of the scan has read all of it.
void ReplyScan(Words words, const HashRecord& hash, ReplyWriter* reply) {
  std::string_view pattern = "*";
  int64_t count = 0;
  for (size_t i = 3; i < words.size(); i += 2) {
    if (i + 1 == words.size()) return reply->Error(kSyntaxError);
    if (IsOption(words[i], "MATCH")) {
      pattern = words[i + 1];
    } else if (!IsOption(words[i], "COUNT")) {
      return reply->Error(kSyntaxError);
    } else if (!ParseInteger(words[i + 1], &count)) {
      return reply->Error(kNotAnInteger);
    } else if (count < 1) {
      return reply->Error(kSyntaxError);
    }
  }
  if (pattern.size() > kPatternBytesMax) return reply->Error(kPatternTooLong);
  std::vector<std::string_view> found;
  hash.ForEach([&](std::string_view field, std::string_view value) {
    if (!MatchesGlob(pattern, field)) return;
    found.push_back(field);
    found.push_back(value);
  });
  reply->Array(2);
  reply->Bulk("0");
  reply->Array(found.size());
  for (const std::string_view text : found) reply->Bulk(text);
}

// Writes the reply of a command that only reads a hash.
void ReplyRead(Words words, const std::optional<std::string>& value, ReplyWriter* reply) {
  std::optional<HashRecord> hash = HashOf(value);
  if (!hash.has_value()) return reply->Error(kWrongType);
  const std::string_view name = words[0];
  const auto bulk_or_null = [&](const std::string& field) {
    const std::optional<std::string_view> found = hash->Find(field);
    found.has_value() ? reply->Bulk(*found) : reply->Null();
  };
  if (IsOption(name, "HGET")) return bulk_or_null(words[2]);
  if (IsOption(name, "HLEN")) return reply->Integer(static_cast<int64_t>(hash->size()));
  if (IsOption(name, "HEXISTS")) return reply->Integer(hash->Find(words[2]).has_value() ? 1 : 0);
  if (IsOption(name, "HSTRLEN")) return reply->Integer(static_cast<int64_t>(hash->Find(words[2]).value_or("").size()));
  if (IsOption(name, "HMGET")) {
    size_t bytes = 0;
    for (const std::string& field : words.subspan(2)) bytes += hash->Find(field).value_or("").size();
    if (bytes > kReplyBytesMax) return reply->Error(kReplyTooLarge);
    reply->Array(words.size() - 2);
    for (const std::string& field : words.subspan(2)) bulk_or_null(field);
    return;
  }
  if (IsOption(name, "HSCAN")) return ReplyScan(words, *hash, reply);
  const bool keys = !IsOption(name, "HVALS"), values = !IsOption(name, "HKEYS");
  keys&& values ? reply->Map(hash->size()) : reply->Array(hash->size());
  hash->ForEach([&](std::string_view field, std::string_view its) {
    if (keys) reply->Bulk(field);
    if (values) reply->Bulk(its);
  });
}

// Puts a hash that was changed, or deletes one that has no fields left. Replies if it cannot be stored. Returns whether
// it could.
bool PutHash(Space* space, std::string_view key, const HashRecord& hash, Expiry expiry, ReplyWriter* reply) {
  if (hash.size() == 0) {
    space->Delete(key);
    return true;
  }
  const absl::Status status = space->Put(key, hash.Encode(), expiry);
  if (!status.ok()) WriteError(status, reply);
  return status.ok();
}

}  // namespace

Task<bool> HashReadAlone(Client* client, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await client->AsyncGet(words[1]);
  value.ok() ? ReplyRead(words, *value, reply) : WriteError(value.status(), reply);
  co_return true;
}

Task<absl::Status> HashReadWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<std::optional<std::string>> value = co_await space->Get(words[1]);
  if (!value.ok()) co_return value.status();
  ReplyRead(words, *value, reply);
  co_return absl::OkStatus();
}

Task<absl::Status> HsetWithin(Space* space, Words words, ReplyWriter* reply) {
  const bool if_absent = IsOption(words[0], "HSETNX"), says_ok = IsOption(words[0], "HMSET");
  if (words.size() % 2 != 0) {
    reply->Error(fmt::format("ERR wrong number of arguments for '{}' command", says_ok ? "hmset" : "hset"));
    co_return absl::OkStatus();
  }
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  std::optional<HashRecord> hash = HashOf(old->value);
  if (!hash.has_value()) {
    reply->Error(kWrongType);
    co_return absl::OkStatus();
  }
  if (if_absent && hash->Find(words[2]).has_value()) {
    reply->Integer(0);
    co_return absl::OkStatus();
  }
  int64_t added = 0;
  for (size_t i = 2; i < words.size(); i += 2) added += hash->Set(words[i], words[i + 1]) ? 1 : 0;
  if (PutHash(space, words[1], *hash, old->expiry, reply)) says_ok ? reply->Simple("OK") : reply->Integer(added);
  co_return absl::OkStatus();
}

Task<absl::Status> HdelWithin(Space* space, Words words, ReplyWriter* reply) {
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  std::optional<HashRecord> hash = HashOf(old->value);
  if (!hash.has_value()) {
    reply->Error(kWrongType);
    co_return absl::OkStatus();
  }
  int64_t removed = 0;
  for (const std::string& field : words.subspan(2)) removed += hash->Remove(field) ? 1 : 0;
  if (removed == 0 || PutHash(space, words[1], *hash, old->expiry, reply)) reply->Integer(removed);
  co_return absl::OkStatus();
}

Task<absl::Status> HincrbyWithin(Space* space, Words words, ReplyWriter* reply) {
  int64_t by = 0, number = 0;
  if (!ParseInteger(words[3], &by)) {
    reply->Error(kNotAnInteger);
    co_return absl::OkStatus();
  }
  const absl::StatusOr<Space::Found> old = co_await space->Read(words[1]);
  if (!old.ok()) co_return old.status();
  std::optional<HashRecord> hash = HashOf(old->value);
  if (!hash.has_value()) {
    reply->Error(kWrongType);
    co_return absl::OkStatus();
  }
  const std::optional<std::string_view> now = hash->Find(words[2]);
  if (now.has_value() && !ParseInteger(*now, &number)) {
    reply->Error("ERR hash value is not an integer");
  } else if (__builtin_add_overflow(number, by, &number)) {
    reply->Error(kOverflow);
  } else {
    const std::string text = std::to_string(number);
    hash->Set(words[2], text);
    if (PutHash(space, words[1], *hash, old->expiry, reply)) reply->Integer(number);
  }
  co_return absl::OkStatus();
}

}  // namespace cell::gateway

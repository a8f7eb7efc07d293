#include "cell/gateway/keyspace_commands.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cell/gateway/connection.h"
#include "cell/gateway/cursors.h"
#include "cell/gateway/glob.h"
#include "cell/gateway/hash_record.h"

namespace cell::gateway {
namespace {

constexpr int64_t kScanCountMax = 10'000;
// ZRANGEBYLEX of this name is a range of the tree's keys; what follows the name is a prefix that all of them have.
constexpr std::string_view kSortedKeys = "cell:keys";

}  // namespace

Task<bool> Dbsize(Connection* connection, Words, ReplyWriter* reply) {
  const absl::StatusOr<uint64_t> count = co_await connection->client()->AsyncCount("", std::nullopt, RangeOptions());
  count.ok() ? reply->Integer(static_cast<int64_t>(*count)) : WriteError(count.status(), reply);
  co_return true;
}

namespace {

// Returns the range of keys that begin with a prefix, keys alone.
ScanOptions KeysWith(const std::string& prefix) {
  ScanOptions options;
  if (!prefix.empty()) options = PrefixScan(prefix);
  options.keys_only = true;
  return options;
}

}  // namespace

namespace {

// The keys of a reply, while a scan finds them.
class KeyList {
 public:
  // Adds the keys of a scan for which `fits(key)` is true. Returns InvalidArgument if they are too many for a reply.
  template <typename Fits>
  Task<absl::Status> Fill(Client* client, ScanOptions options, Fits fits) {
    Scan scan = client->NewScan(std::move(options));
    while (true) {
      const auto batch = co_await scan.AsyncNextBatch();
      if (!batch.ok()) co_return batch.status();
      if (batch->empty()) co_return absl::OkStatus();
      for (const Scan::Entry& entry : *batch) {
        if (!fits(entry.key)) continue;
        keys_.emplace_back(entry.key);
        bytes_ += entry.key.size() + sizeof(std::string);
      }
      if (bytes_ > kReplyBytesMax) {
        co_return absl::InvalidArgumentError("the reply would have more than 64 MB: use SCAN, or LIMIT");
      }
    }
  }
  // Replies with the keys without their first `skipped` bytes, or with the error of Fill.
  void Reply(const absl::Status& status, size_t skipped, ReplyWriter* reply) const {
    if (!status.ok()) return WriteError(status, reply);
    reply->Array(keys_.size());
    for (const std::string& key : keys_) reply->Bulk(std::string_view(key).substr(skipped));
  }

 private:
  std::vector<std::string> keys_;
  size_t bytes_ = 0;
};

}  // namespace

Task<bool> Keys(Connection* connection, Words words, ReplyWriter* reply) {
  const std::string& pattern = words[1];
  if (pattern.size() > kPatternBytesMax) {
    reply->Error(kPatternTooLong);
    co_return true;
  }
  const std::string prefix = GlobPrefix(pattern);
  KeyList keys;
  absl::Status status;
  if (prefix.size() <= connection->client()->key_bytes_max()) {
    ScanOptions options = KeysWith(prefix);
    const auto fits = [&pattern](std::string_view key) { return MatchesGlob(pattern, key); };
    status = co_await keys.Fill(connection->client(), std::move(options), fits);
  }
  keys.Reply(status, 0, reply);
  co_return true;
}

Task<bool> ScanCommand(Connection* connection, Words words, ReplyWriter* reply) {
  uint64_t cursor = 0;
  const char* const end = words[1].data() + words[1].size();
  if (const auto [stop, wrong] = std::from_chars(words[1].data(), end, cursor); wrong != std::errc() || stop != end) {
    reply->Error("ERR invalid cursor");
    co_return true;
  }
  std::string pattern = "*";
  int64_t count = 10;
  std::optional<std::string> type;
  for (size_t i = 2; i < words.size(); i += 2) {
    if (i + 1 == words.size()) {
      reply->Error(kSyntaxError);
      co_return true;
    }
    if (IsOption(words[i], "MATCH")) {
      pattern = words[i + 1];
    } else if (IsOption(words[i], "COUNT")) {
      if (!ParseInteger(words[i + 1], &count)) {
        reply->Error(kNotAnInteger);
        co_return true;
      }
      if (count < 1) {
        reply->Error(kSyntaxError);
        co_return true;
      }
    } else if (IsOption(words[i], "TYPE")) {
      type = Lower(words[i + 1]);
    } else {
      reply->Error(kSyntaxError);
      co_return true;
    }
  }
  if (pattern.size() > kPatternBytesMax) {
    reply->Error(kPatternTooLong);
    co_return true;
  }
  ScanOptions options = KeysWith(GlobPrefix(pattern));
  options.keys_only = !type.has_value();
  Cursors& cursors = connection->shared()->totals->cursors;
  bool done = GlobPrefix(pattern).size() > connection->client()->key_bytes_max();
  if (cursor != 0) {
    const std::optional<std::string> from = cursors.Find(cursor);
    if (!from.has_value()) {
      reply->Error("ERR this gateway does not know the cursor any more: begin the scan again with 0");
      co_return true;
    }
    options.from = *from;
  }
  options.limit = static_cast<uint64_t>(std::min(count, kScanCountMax));
  std::vector<std::string> found;
  std::string last;
  uint64_t seen = 0;
  Scan scan = connection->client()->NewScan(options);
  while (!done && seen < options.limit) {
    const auto batch = co_await scan.AsyncNextBatch();
    if (!batch.ok()) {
      WriteError(batch.status(), reply);
      co_return true;
    }
    done = batch->empty();
    for (const Scan::Entry& entry : *batch) {
      last = entry.key;
      ++seen;
      const bool fits = !type.has_value() || *type == (IsHash(entry.value) ? "hash" : "string");
      if (fits && MatchesGlob(pattern, entry.key)) found.emplace_back(entry.key);
    }
  }
  reply->Array(2);
  reply->Bulk(done ? "0" : std::to_string(cursors.Add(last + '\0')));
  reply->Array(found.size());
  for (const std::string& key : found) reply->Bulk(key);
  co_return true;
}

namespace {

// A bound of a range of strings: "-", "+", "[key" or "(key".
struct Bound {
  bool least = false, most = false;
  std::string key = {};
  bool inclusive = false;
};

std::optional<Bound> ParseBound(const std::string& word) {
  if (word == "-") return Bound{.least = true};
  if (word == "+") return Bound{.most = true};
  if (word.empty() || (word[0] != '[' && word[0] != '(')) return std::nullopt;
  return Bound{.key = word.substr(1), .inclusive = word[0] == '['};
}

// Returns the least key above `key`, of those with at most `bytes_max` bytes. Returns nullopt if no key is above it.
std::optional<std::string> Successor(std::string key, size_t bytes_max) {
  if (key.size() < bytes_max) return key + '\0';
  key.resize(bytes_max);
  while (!key.empty() && key.back() == '\xff') key.pop_back();
  if (key.empty()) return std::nullopt;
  key.back() = static_cast<char>(static_cast<unsigned char>(key.back()) + 1);
  return key;
}

// A parsed ZRANGEBYLEX, or one of its relatives.
struct RangeRequest {
  bool counts = false, reverse = false;
  Bound low = {}, high = {};
  int64_t offset = 0, limit = -1;
};

// Returns the error to reply with.
std::optional<std::string_view> ParseRange(Words words, RangeRequest* range) {
  range->counts = IsOption(words[0], "ZLEXCOUNT");
  range->reverse = IsOption(words[0], "ZREVRANGEBYLEX");
  bool by_keys = !IsOption(words[0], "ZRANGE");
  bool limited = false;
  for (size_t i = 4; i < words.size(); ++i) {
    if (!by_keys && IsOption(words[i], "BYLEX")) {
      by_keys = true;
    } else if (IsOption(words[0], "ZRANGE") && IsOption(words[i], "REV")) {
      range->reverse = true;
    } else if (!range->counts && IsOption(words[i], "LIMIT") && i + 2 < words.size()) {
      if (!ParseInteger(words[i + 1], &range->offset) || !ParseInteger(words[i + 2], &range->limit)) {
        return kNotAnInteger;
      }
      limited = true;
      i += 2;
    } else {
      return kSyntaxError;
    }
  }
  if (!by_keys) {
    return limited ? "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
                   : "ERR only ZRANGE ... BYLEX is possible here: keys have no scores";
  }
  const std::optional<Bound> first = ParseBound(words[2]), second = ParseBound(words[3]);
  if (!first.has_value() || !second.has_value()) return "ERR min or max not valid string range item";
  range->low = range->reverse ? *second : *first;
  range->high = range->reverse ? *first : *second;
  return std::nullopt;
}

// Returns the scan for a range of the keys that begin with `prefix`, or nullopt if it is empty.
std::optional<ScanOptions> ScanOf(const RangeRequest& range, const std::string& prefix, size_t key_bytes_max) {
  if (range.low.most || range.high.least || range.offset < 0 || range.limit == 0) return std::nullopt;
  if (prefix.size() > key_bytes_max) return std::nullopt;
  ScanOptions options = KeysWith(prefix);
  if (!range.low.least) {
    std::optional<std::string> from = prefix + range.low.key;
    if (!range.low.inclusive || from->size() > key_bytes_max) from = Successor(*std::move(from), key_bytes_max);
    if (!from.has_value()) return std::nullopt;
    options.from = *std::move(from);
  }
  if (!range.high.most) {
    std::string to = prefix + range.high.key;
    if (range.high.inclusive || to.size() > key_bytes_max) {
      if (auto behind = Successor(std::move(to), key_bytes_max); behind.has_value()) options.to = *std::move(behind);
    } else {
      options.to = std::move(to);
    }
  }
  if (options.to.has_value() && *options.to <= options.from) return std::nullopt;
  options.reverse = range.reverse;
  constexpr int64_t kMost = INT64_MAX / 2;
  if (range.limit >= 0) {
    options.limit = static_cast<uint64_t>(std::min(range.offset, kMost) + std::min(range.limit, kMost));
  }
  return options;
}

}  // namespace

Task<bool> RangeCommand(Connection* connection, Words words, ReplyWriter* reply) {
  RangeRequest range;
  if (const std::optional<std::string_view> wrong = ParseRange(words, &range); wrong.has_value()) {
    reply->Error(*wrong);
    co_return true;
  }
  Client* const client = connection->client();
  const std::string& set = words[1];
  if (!set.starts_with(kSortedKeys) || (set.size() > kSortedKeys.size() && set[kSortedKeys.size()] != ':')) {
    const absl::StatusOr<bool> there = co_await client->AsyncContains(set);
    if (there.ok() && *there) {
      reply->Error(kWrongType);
    } else {
      range.counts ? reply->Integer(0) : reply->Array(0);  // There are no other sorted sets.
    }
    co_return true;
  }
  const std::string prefix = set.size() > kSortedKeys.size() ? set.substr(kSortedKeys.size() + 1) : "";
  const std::optional<ScanOptions> options = ScanOf(range, prefix, client->key_bytes_max());
  if (!options.has_value()) {
    range.counts ? reply->Integer(0) : reply->Array(0);
    co_return true;
  }
  if (range.counts) {
    const auto to = options->to.has_value() ? std::optional<std::string_view>(*options->to) : std::nullopt;
    const absl::StatusOr<uint64_t> count = co_await client->AsyncCount(options->from, to, RangeOptions());
    count.ok() ? reply->Integer(static_cast<int64_t>(*count)) : WriteError(count.status(), reply);
    co_return true;
  }
  KeyList keys;
  const absl::Status status =
      co_await keys.Fill(client, *options, [&](std::string_view) { return range.offset-- <= 0; });
  keys.Reply(status, prefix.size(), reply);
  co_return true;
}

}  // namespace cell::gateway

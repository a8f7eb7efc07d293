#include "cell/cluster/grants.h"

#include <algorithm>
#include <utility>

#include "cell/base/bytes.h"
#include "cell/cluster/eviction_rules.h"
#include "cell/cluster/region_table.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr std::array<std::string_view, kRights> kNames = {"read", "scan", "write", "admin"};
constexpr std::array kAll = {Right::kRead, Right::kScan, Right::kWrite, Right::kAdmin};

constexpr uint8_t BitOf(Right right) { return static_cast<uint8_t>(1U << static_cast<int>(right)); }

// Returns a right and all that it includes.
constexpr uint8_t With(Right right) {
  switch (right) {
    case Right::kRead:
    case Right::kWrite:
      return BitOf(right);
    case Right::kScan:
      return BitOf(Right::kScan) | BitOf(Right::kRead);
    case Right::kAdmin:
      return BitOf(Right::kRead) | BitOf(Right::kScan) | BitOf(Right::kWrite) | BitOf(Right::kAdmin);
  }
  return 0;
}

// Sorts spans, and joins those that touch.
void Merge(std::vector<KeySpan>* spans) {
  std::sort(spans->begin(), spans->end(), [](const KeySpan& a, const KeySpan& b) { return a.from < b.from; });
  std::vector<KeySpan> merged;
  for (KeySpan& span : *spans) {
    if (merged.empty() || (merged.back().to.has_value() && *merged.back().to < span.from)) {
      merged.push_back(std::move(span));
    } else if (KeySpan& last = merged.back(); last.to.has_value() && (!span.to.has_value() || *last.to < *span.to)) {
      last.to = std::move(span.to);
    }
  }
  *spans = std::move(merged);
}

}  // namespace

std::string_view ToString(Right right) { return kNames[static_cast<size_t>(right)]; }

std::string ToString(const GrantScope& scope) {
  switch (scope.kind) {
    case GrantScope::Kind::kEverything:
      return "everything";
    case GrantScope::Kind::kTable:
      return fmt::format("the table {}", ForMessage(scope.name));
    case GrantScope::Kind::kPrefix:
      break;
  }
  return scope.name.empty() ? "all keys of the tree" : fmt::format("keys that begin with {}", ForMessage(scope.name));
}

std::optional<Rights> Rights::Parse(std::string_view text) {
  Rights rights;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto* const name = std::find(kNames.begin(), kNames.end(), text.substr(at, end - at));
    if (name == kNames.end()) return std::nullopt;
    rights.bits_ |= BitOf(static_cast<Right>(name - kNames.begin()));
    at = end + 1;
  }
  return rights;
}

void Rights::Remove(Rights rights) {
  for (const Right right : kAll) {
    if ((With(right) & rights.bits_) != 0) bits_ &= static_cast<uint8_t>(~BitOf(right));
  }
}

bool Rights::Has(Right right) const {
  return std::any_of(kAll.begin(), kAll.end(), [this, right](Right mine) {
    return (bits_ & BitOf(mine)) != 0 && (With(mine) & BitOf(right)) != 0;
  });
}

std::string Rights::ToText() const {
  std::string text;
  for (const Right right : kAll) {
    if ((bits_ & BitOf(right)) == 0) continue;
    if (!text.empty()) text += ',';
    text += ToString(right);
  }
  return text;
}

absl::Status Grants::Give(std::string_view user, const GrantScope& scope, Rights rights) {
  if (user != kEveryUser && !IsIdentityName(user)) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is no user: give the name of a client, of up to {} letters, digits and -_.:@+, or * for every client",
        ForMessage(user), kIdentityNameBytesMax));
  }
  if (rights.empty()) return absl::InvalidArgumentError("give at least one right: read, scan, write or admin");
  if (scope.kind == GrantScope::Kind::kPrefix && scope.name.size() > kPrefixBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("a prefix of {} bytes is too long: at most {}", scope.name.size(), kPrefixBytesMax));
  }
  if (scope.kind == GrantScope::Kind::kTable) {
    if (absl::Status status = RegionTable::CheckTableName(scope.name); !status.ok()) return status;
  }
  const auto its = by_user_.find(user);
  if (its == by_user_.end() || !its->second.contains(scope)) {
    size_t grants = 0;
    for (const auto& [name, of_user] : by_user_) grants += of_user.size();
    if (grants >= kGrantsMax) {
      return absl::ResourceExhaustedError(fmt::format("there are {} grants, the limit: revoke one", kGrantsMax));
    }
  }
  by_user_[std::string(user)][scope].Add(rights);
  ++version_;
  return absl::OkStatus();
}

absl::Status Grants::Take(std::string_view user, const GrantScope& scope, Rights rights) {
  const auto its = by_user_.find(user);
  if (its != by_user_.end()) {
    const auto grant = its->second.find(scope);
    if (grant != its->second.end()) {
      const Rights before = grant->second;
      grant->second.Remove(rights);
      if (grant->second != before) {
        if (grant->second.empty()) its->second.erase(grant);
        if (its->second.empty()) by_user_.erase(its);
        ++version_;
        return absl::OkStatus();
      }
    }
  }
  return absl::NotFoundError(
      fmt::format("{} has no grant of {} for {}", ForMessage(user), rights.ToText(), ToString(scope)));
}

void Grants::DropTable(std::string_view table) {
  const GrantScope scope{GrantScope::Kind::kTable, std::string(table)};
  size_t taken = 0;
  for (auto& [user, its] : by_user_) taken += its.erase(scope);
  if (taken == 0) return;
  std::erase_if(by_user_, [](const auto& one) { return one.second.empty(); });
  ++version_;
}

void Grants::Enforce(bool enforced) {
  if (enforced == enforced_) return;
  enforced_ = enforced;
  ++version_;
}

UserRights::UserRights(const Grants& grants, std::string_view user) {
  for (const std::string_view name : {user, Grants::kEveryUser}) {
    const auto its = grants.by_user().find(name);
    if (its == grants.by_user().end()) continue;
    for (const auto& [scope, rights] : its->second) {
      if (scope.kind == GrantScope::Kind::kTable) {
        tables_[scope.name].Add(rights);
        continue;
      }
      const bool everything = scope.kind == GrantScope::Kind::kEverything;
      if (everything) everything_.Add(rights);
      for (const Right right : kAll) {
        if (!rights.Has(right)) continue;
        spans(right).push_back(everything ? KeySpan{"", std::nullopt} : KeySpan{scope.name, EndOfPrefix(scope.name)});
      }
    }
  }
  for (std::vector<KeySpan>& spans : spans_) Merge(&spans);
}

const KeySpan* UserRights::SpanOf(Right right, std::string_view key) const {
  const std::vector<KeySpan>& all = spans(right);
  const auto above = std::upper_bound(all.begin(), all.end(), key,
                                      [](std::string_view wanted, const KeySpan& span) { return wanted < span.from; });
  if (above == all.begin()) return nullptr;
  const KeySpan& span = *std::prev(above);
  return !span.to.has_value() || key < *span.to ? &span : nullptr;
}

bool UserRights::OfTable(Right right, std::string_view table) const {
  if (everything_.Has(right)) return true;
  const auto its = tables_.find(table);
  return its != tables_.end() && its->second.Has(right);
}

bool UserRights::OfRange(Right right, std::string_view from, std::optional<std::string_view> to) const {
  const KeySpan* const span = SpanOf(right, from);
  if (span == nullptr) return false;
  return !span->to.has_value() || (to.has_value() && *to <= *span->to);
}

bool UserRights::OfScope(Right right, const GrantScope& scope) const {
  switch (scope.kind) {
    case GrantScope::Kind::kEverything:
      return everything_.Has(right);
    case GrantScope::Kind::kTable:
      return OfTable(right, scope.name);
    case GrantScope::Kind::kPrefix:
      break;
  }
  const std::optional<std::string> end = EndOfPrefix(scope.name);
  return OfRange(right, scope.name, end.has_value() ? std::optional<std::string_view>(*end) : std::nullopt);
}

bool UserRights::Somewhere(Right right) const {
  return !spans(right).empty() ||
         std::any_of(tables_.begin(), tables_.end(), [right](const auto& its) { return its.second.Has(right); });
}

std::set<std::string, std::less<>> ReadersOfMemory(const Grants& grants) {
  std::set<std::string, std::less<>> readers;
  for (const auto& [user, its] : grants.by_user()) {
    const auto everything = its.find(GrantScope{});
    if (everything != its.end() && everything->second.Has(Right::kScan)) readers.insert(user);
  }
  return readers;
}

}  // namespace cell

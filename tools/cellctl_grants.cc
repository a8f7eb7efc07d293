// cellctl: which client may do what.
#include <algorithm>
#include <string>
#include <string_view>

#include "cell/base/json.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

std::string ScopeText(const Client::GrantInfo& grant) {
  switch (grant.scope) {
    case Client::GrantInfo::kEverything:
      return "everything";
    case Client::GrantInfo::kTable:
      return "table " + grant.of;
    case Client::GrantInfo::kTree:
      break;
  }
  return grant.of.empty() ? "all keys of the tree" : "keys that begin with " + EscapeText(grant.of);
}

int List(Client* client, const CtlFlags& flags) {
  const Client::GrantsInfo info = client->Grants();
  if (flags.json()) {
    nlohmann::json json = {{"enforced", info.enforced}, {"grants", nlohmann::json::array()}};
    for (const Client::GrantInfo& grant : info.grants) {
      nlohmann::json one = {{"user", grant.user}, {"rights", grant.rights}};
      if (grant.scope == Client::GrantInfo::kTable) one["table"] = grant.of;
      if (grant.scope == Client::GrantInfo::kTree) one["prefix"] = BytesAsJson(grant.of);
      json["grants"].push_back(std::move(one));
    }
    fmt::print("{}\n", JsonText(json));
    return kDone;
  }
  size_t width = 4;
  for (const Client::GrantInfo& grant : info.grants) width = std::max(width, grant.user.size());
  if (!info.grants.empty()) fmt::print("{:<{}}  {:<16}  {}\n", "user", width, "rights", "for");
  for (const Client::GrantInfo& grant : info.grants) {
    fmt::print("{:<{}}  {:<16}  {}\n", grant.user, width, grant.rights, ScopeText(grant));
  }
  if (!info.enforced) {
    fmt::print("grants are not enforced: every client may do everything (cellctl users enforce)\n");
  } else if (info.grants.empty()) {
    fmt::print("no client may do anything: there are no grants\n");
  }
  return kDone;
}

// Returns the user that was given, as NAME or client/NAME.
absl::StatusOr<std::string> UserOf(const CtlFlags& flags) {
  std::string_view user = flags.user;
  if (user.starts_with("operator/") || user.starts_with("server/")) {
    return absl::InvalidArgumentError(
        fmt::format("{} needs no grants: operators and servers may do everything", EscapeText(flags.user)));
  }
  if (user.starts_with("client/")) user.remove_prefix(std::string_view("client/").size());
  return std::string(user);
}

absl::Status Change(Client* client, const CtlFlags& flags, const ControlClient::GrantChange& change) {
  ASSIGN_OR_RETURN(const auto control, AnyControl(client, flags, 0));
  return control->ChangeGrant(change);
}

absl::StatusOr<ControlClient::GrantChange> ChangeOf(const CtlFlags& flags) {
  ControlClient::GrantChange change;
  ASSIGN_OR_RETURN(change.user, UserOf(flags));
  change.rights = flags.rights;
  change.table = flags.table;
  change.prefix = flags.prefix;
  change.everything = flags.table.empty() && !flags.has_prefix;
  return change;
}

// Takes all that a user has.
absl::Status RevokeAll(Client* client, const CtlFlags& flags, const std::string& user) {
  bool any = false;
  for (const Client::GrantInfo& grant : client->Grants().grants) {
    if (grant.user != user) continue;
    ControlClient::GrantChange change{.user = user, .rights = grant.rights, .revoke = true};
    change.everything = grant.scope == Client::GrantInfo::kEverything;
    (grant.scope == Client::GrantInfo::kTable ? change.table : change.prefix) = grant.of;
    change.rights = "read,scan,write,admin";
    if (absl::Status status = Change(client, flags, change); !status.ok() && !absl::IsNotFound(status)) return status;
    any = true;
  }
  return any ? absl::OkStatus() : absl::NotFoundError(fmt::format("{} has no grants", EscapeText(user)));
}

}  // namespace

int Grant(Client* client, const CtlFlags& flags) {
  const absl::StatusOr<ControlClient::GrantChange> change = ChangeOf(flags);
  const absl::Status status = change.ok() ? Change(client, flags, *change) : change.status();
  return status.ok() ? List(client, flags) : Fail(status);
}

int Revoke(Client* client, const CtlFlags& flags) {
  absl::StatusOr<ControlClient::GrantChange> change = ChangeOf(flags);
  if (!change.ok()) return Fail(change.status());
  change->revoke = true;
  const absl::Status status =
      flags.rights.empty() ? RevokeAll(client, flags, change->user) : Change(client, flags, *change);
  return status.ok() ? List(client, flags) : Fail(status);
}

int Users(Client* client, const CtlFlags& flags) {
  if (flags.enforce.empty()) return List(client, flags);
  const auto control = AnyControl(client, flags, 0);
  const absl::Status status = control.ok() ? (*control)->EnforceGrants(flags.enforce == "enforce") : control.status();
  return status.ok() ? List(client, flags) : Fail(status);
}

}  // namespace cell

// Keeps users, and an index that finds them by their city.
//
// Shows that a pair and the entries of an index about it change together, so that no reader finds one without the
// other.
//
// Keys:
//   user/ID          has "CITY NAME"
//   by-city/CITY/ID  has nothing; it says that the user ID lives in CITY
//
// Why transactions: a user who moves changes three keys, of which the two of the index are usually in other regions
// than the user. With single puts, a reader could find the user in two cities or in none, a program that ends in
// between would leave the index wrong for ever, and of two programs that move the same user, each could remove what the
// other has put.
//
// Put and Delete do the same when they are done twice. So Client::RunTransaction is enough for them: after an error
// that says MaybeApplied, give the same command again.
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "fmt/format.h"
#include "tools/examples/example.h"

namespace cell {
namespace {

constexpr std::string_view kUsers = "user/";
constexpr std::string_view kIndex = "by-city/";

struct Flags {
  ClientOptions client;
  std::string id;
  std::string city;
  std::string name;
};

std::string UserKey(std::string_view id) { return fmt::format("{}{}", kUsers, id); }
std::string IndexKey(std::string_view city, std::string_view id) { return fmt::format("{}{}/{}", kIndex, city, id); }

// Return the two parts of a user's value.
std::string CityOf(const std::string& user) { return user.substr(0, user.find(' ')); }
std::string NameOf(const std::string& user) {
  const size_t space = user.find(' ');
  return space == std::string::npos ? std::string() : user.substr(space + 1);
}

absl::StatusOr<int> Put(Client* client, const Flags& flags) {
  const auto body = [&flags](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<std::string> before, tx->Get(UserKey(flags.id)));
    if (before.has_value()) RETURN_IF_ERROR(tx->Delete(IndexKey(CityOf(*before), flags.id)));
    RETURN_IF_ERROR(tx->Put(UserKey(flags.id), fmt::format("{} {}", flags.city, flags.name)));
    return tx->Put(IndexKey(flags.city, flags.id), "");  // If the city is the same, this takes the Delete back.
  };
  RETURN_IF_ERROR(client->RunTransaction(body).status());
  return kDone;
}

absl::StatusOr<int> Delete(Client* client, const Flags& flags) {
  bool existed = false;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<std::string> before, tx->Get(UserKey(flags.id)));
    existed = before.has_value();
    if (!existed) return absl::OkStatus();
    RETURN_IF_ERROR(tx->Delete(IndexKey(CityOf(*before), flags.id)));
    return tx->Delete(UserKey(flags.id));
  };
  RETURN_IF_ERROR(client->RunTransaction(body).status());
  if (!existed) fmt::print("there is no user {}\n", flags.id);
  return existed ? kDone : kWrong;
}

// Lists the users of a city. Before the commit, the index and the users may be of different moments. So the body only
// collects what it reads, and what that means is decided afterwards.
absl::StatusOr<int> ListCity(Client* client, const Flags& flags) {
  const std::string prefix = IndexKey(flags.city, "");
  std::vector<std::string> ids;
  std::vector<std::optional<std::string>> users;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const Transaction::Pairs entries, tx->Scan(PrefixScan(prefix)));
    ids.clear();
    std::vector<std::string> keys;
    for (const auto& [key, value] : entries) {
      ids.push_back(key.substr(prefix.size()));
      keys.push_back(UserKey(ids.back()));
    }
    ASSIGN_OR_RETURN(users, tx->MultiGet(std::vector<std::string_view>(keys.begin(), keys.end())));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(client->RunTransaction(body).status());
  int result = kDone;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (users[i].has_value() && CityOf(*users[i]) == flags.city) {
      fmt::print("{}\t{}\n", ids[i], NameOf(*users[i]));
    } else {
      fmt::print("the index is wrong: user {} does not live in {}\n", ForMessage(ids[i]), flags.city);
      result = kWrong;
    }
  }
  return result;
}

// Compares all users with the whole index, at one moment. For more than 16,384 pairs in a region, this would have to go
// city by city.
absl::StatusOr<int> Check(Client* client, const Flags&) {
  std::set<std::string> wanted, found;
  size_t users_count = 0;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const Transaction::Pairs users, tx->Scan(PrefixScan(kUsers)));
    ASSIGN_OR_RETURN(const Transaction::Pairs entries, tx->Scan(PrefixScan(kIndex)));
    wanted.clear();
    found.clear();
    users_count = users.size();
    for (const auto& [key, user] : users) wanted.insert(IndexKey(CityOf(user), key.substr(kUsers.size())));
    for (const auto& [key, nothing] : entries) found.insert(key);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(client->RunTransaction(body).status());
  std::vector<std::string> missing, extra;
  std::set_difference(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), wanted.begin(), wanted.end(), std::back_inserter(extra));
  for (const std::string& key : missing) fmt::print("{} is missing from the index\n", ForMessage(key));
  for (const std::string& key : extra) fmt::print("{} is in the index, and there is no such user\n", ForMessage(key));
  if (!missing.empty() || !extra.empty()) return kWrong;
  fmt::print("{} users, and the index is right\n", users_count);
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(Client*, const Flags&)> command;
  CLI::App app("Keep users, and an index of them by city");
  DeclareCluster(&app, &flags.client);
  app.require_subcommand(1);
  CLI::App* const put =
      app.add_subcommand("put", "Store the user ID with CITY and NAME, in the place of an earlier one");
  CLI::App* const del = app.add_subcommand("delete", "Delete the user ID: exit status 1 if it does not exist");
  CLI::App* const city = app.add_subcommand("city", "List the users in CITY as ID TAB NAME");
  CLI::App* const check = app.add_subcommand("check", "Compare all users with the index: exit status 1 if they differ");
  for (CLI::App* const sub : {put, del}) sub->add_option("id", flags.id)->required()->check(PartOfKey());
  for (CLI::App* const sub : {put, city}) sub->add_option("city", flags.city)->required()->check(PartOfKey());
  put->add_option("name", flags.name)->required();
  put->callback([&command] { command = Put; });
  del->callback([&command] { command = Delete; });
  city->callback([&command] { command = ListCity; });
  check->callback([&command] { command = Check; });
  return RunTransactions("secondary_index", &app, argc, argv, flags.client,
                         [&](Client* client) { return command(client, flags); });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

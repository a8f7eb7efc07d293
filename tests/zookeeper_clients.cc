// Opens memberships of clients of a cluster in ZooKeeper in one process, for zookeeper_test. Arguments: the cluster,
// and after how many seconds an idle connection ends. Reads a command a line, and prints a line of answer:
//
//   open        opens one more; prints the cluster's uuid
//   refresh N   refreshes the Nth; prints the version of its region table
//   servers N   prints how many servers there are according to the Nth
//   close N     closes the Nth
//   fork        forks a process that opens one, and closes it; prints the cluster's uuid
//   together N  opens N at once, each in a thread of its own, and closes them; prints how many could be opened
//
// An error is printed as "error: " and its text.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cell/base/check.h"
#include "cell/cluster/zookeeper/zookeeper_membership.h"
#include "fmt/format.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

std::string Refresh(Membership* membership) {
  absl::Status refreshed;
  bool done = false;
  membership->Refresh([&](const absl::Status& status) { refreshed = status, done = true; });
  while (!done) membership->Poll();
  if (!refreshed.ok()) return fmt::format("error: {}", std::string(refreshed.message()));
  return fmt::format("{}", membership->state().table.version);
}

int OpenTogether(const ZooKeeperOptions& options, int count) {
  std::atomic<int> opened = 0;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] { opened += ZooKeeperMembership::Open(options).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  return opened;
}

// Opens one in a process that is forked, which must have done so within 20 s.
std::string OpenInChild(const ZooKeeperOptions& options) {
  int ends[2];
  CELL_CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  CELL_CHECK(child >= 0);
  if (child == 0) {
    ::alarm(20);
    auto membership = ZooKeeperMembership::Open(options);
    const std::string answer = membership.ok() ? (*membership)->state().uuid
                                               : fmt::format("error: {}", std::string(membership.status().message()));
    if (membership.ok()) membership->reset();
    CELL_CHECK(::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string answer(256, '\0');
  answer.resize(static_cast<size_t>(std::max<ssize_t>(0, ::read(ends[0], answer.data(), answer.size()))));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? answer : fmt::format("error: the child ended with status {}", status);
}

void Run(const std::string& uri, double idle_s) {
  spdlog::set_level(spdlog::level::off);  // The output is for answers.
  const absl::StatusOr<ZooKeeperOptions> options = ZooKeeperOptions::Parse(uri);
  CELL_CHECK(options.ok());
  ZooKeeperOptions with_digest = *options;
  if (const char* const digest = std::getenv("CELL_ZOOKEEPER_DIGEST")) with_digest.digest = digest;
  with_digest.idle_ns = static_cast<int64_t>(idle_s * 1e9);
  std::map<int, std::unique_ptr<Membership>> memberships;
  int opened = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int which = 0;
    words >> command >> which;
    std::string answer = "closed";
    if (command == "open") {
      auto membership = ZooKeeperMembership::Open(with_digest);
      answer = membership.ok() ? (*membership)->state().uuid
                               : fmt::format("error: {}", std::string(membership.status().message()));
      if (membership.ok()) memberships[opened++] = *std::move(membership);
    } else if (command == "refresh") {
      answer = Refresh(memberships.at(which).get());
    } else if (command == "servers") {
      answer = fmt::format("{}", memberships.at(which)->state().servers.size());
    } else if (command == "fork") {
      answer = OpenInChild(with_digest);
    } else if (command == "together") {
      answer = fmt::format("{}", OpenTogether(with_digest, which));
    } else {
      memberships.erase(which);
    }
    std::cout << answer << std::endl;
  }
}

}  // namespace
}  // namespace cell

int main(int, char** arguments) {
  cell::Run(arguments[1], std::atof(arguments[2]));
  return 0;
}

// Provides connections of the gateway over a simulated cluster, for tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cell/gateway/connection.h"
#include "tests/clusters.h"

namespace cell::gateway {

// Returns the bytes of a request.
inline std::string Request(const std::vector<std::string>& words) {
  std::string bytes = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) bytes += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return bytes;
}

class GatewayTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Client> NewClient(SimCluster* cluster) {
    ClientOptions options;
    options.report = false;
    return cluster->NewClient(options);
  }
  // Returns what the gateway sends for these bytes, once all is done.
  std::string Answer(Connection* connection, std::string_view bytes) {
    connection->Receive(bytes);
    connection->Advance();
    return Finish(connection);
  }
  std::string Finish(Connection* connection) {
    std::string answer;
    do {
      answer += std::exchange(*connection->out(), "");
      if (connection->busy()) client_->Poll(client_->NowNs() + 1'000'000);
      ReadyList::Take(&shared_, [](Connection* ready) { ready->Advance(); });
      connection->Advance();
    } while (connection->busy() || !connection->out()->empty());
    return answer;
  }
  std::string Run(const std::vector<std::string>& words) { return Answer(&one_, Request(words)); }

  SimCluster cluster_{{512, 32 << 10, 2 << 20}, {}, SpreadingOptions()};
  std::unique_ptr<Client> client_ = NewClient(&cluster_);
  Totals totals_{100, 0, size_t{1} << 30};
  Shared shared_{&totals_, client_.get(), {}};
  Connection one_{&shared_, 1, "127.0.0.1:1"}, other_{&shared_, 2, "127.0.0.1:2"};
};

}  // namespace cell::gateway

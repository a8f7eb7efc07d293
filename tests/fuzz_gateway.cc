// libFuzzer: sends any bytes to two connections of the gateway over a simulated cluster, in pieces, and goes away at
// any moment. Nothing may crash or hang, and every reply must be well-formed.
//
// An input is a list of pieces: a byte that says to which connection it goes and how long it is, then the piece.
#include <cstdlib>
#include <memory>
#include <string>

#include "cell/gateway/connection.h"
#include "spdlog/spdlog.h"
#include "tests/sim_cluster.h"

namespace {

using namespace cell;
using namespace cell::gateway;

constexpr int kPollsMax = 200'000;
constexpr size_t kDepthMax = 8;

// Returns where the reply that begins at `at` ends, or npos if it is not well-formed.
size_t EndOfReply(std::string_view out, size_t at, size_t depth = 0) {
  constexpr size_t kWrong = std::string_view::npos;
  const size_t end = at < out.size() ? out.find("\r\n", at) : kWrong;
  if (end == kWrong || depth > kDepthMax) return kWrong;
  const std::string number(out.substr(at + 1, end - at - 1));
  const long long count = std::strtoll(number.c_str(), nullptr, 10);
  switch (out[at]) {
    case '+':
    case '-':
    case '_':
    case ',':
    case '#':
      return end + 2;
    case ':':
      return std::to_string(count) == number ? end + 2 : kWrong;
    case '$': {
      if (count < 0) return end + 2;
      const size_t behind = end + 2 + static_cast<size_t>(count);
      return behind + 2 <= out.size() && out.substr(behind, 2) == "\r\n" ? behind + 2 : kWrong;
    }
    case '*':
    case '~':
    case '%': {
      size_t next = end + 2;
      for (long long i = 0; i < (out[at] == '%' ? 2 * count : count) && next != kWrong; ++i) {
        next = EndOfReply(out, next, depth + 1);
      }
      return next;
    }
    default:
      return kWrong;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  spdlog::set_level(spdlog::level::off);
  SimCluster cluster({512, 16 << 10, 1 << 20}, {});
  ClientOptions options;
  options.report = false;
  const std::unique_ptr<Client> client = cluster.NewClient(options);
  Totals totals(100, 0, size_t{1} << 30);
  Shared open{&totals, client.get(), {}};
  Shared guarded{&totals, nullptr, {{"user", "password", client.get()}}};
  std::unique_ptr<Connection> connections[] = {std::make_unique<Connection>(&open, 1, "a"),
                                               std::make_unique<Connection>(&guarded, 2, "b")};
  std::string out[2];
  const auto advance = [&](size_t which) {
    connections[which]->Advance();
    out[which] += std::exchange(*connections[which]->out(), "");
  };
  const auto poll = [&] {
    client->Poll(client->NowNs() + 1'000'000);
    for (Shared* shared : {&open, &guarded}) ReadyList::Take(shared, [](Connection*) {});
    advance(0);
    advance(1);
  };
  std::string_view left(reinterpret_cast<const char*>(data), size);
  while (!left.empty()) {
    const auto head = static_cast<uint8_t>(left[0]);
    if (head == 0xff) connections[1]->Abandon();  // It goes away.
    const std::string_view piece = left.substr(1, head / 2 + 1);
    left.remove_prefix(1 + piece.size());
    const size_t which = head % 2;
    if (connections[which]->should_close() || !connections[which]->takes_input()) continue;
    connections[which]->Receive(piece);
    advance(which);
    if (head % 8 < 4) poll();
  }
  if (size % 3 == 0) connections[0]->Abandon();
  const auto unfinished = [](const std::unique_ptr<Connection>& one) { return one->busy() || one->has_more(); };
  for (int polls = 0; unfinished(connections[0]) || unfinished(connections[1]); ++polls) {
    if (polls == kPollsMax) std::abort();
    poll();
  }
  poll();
  for (const std::string& replies : out) {
    for (size_t at = 0; at < replies.size();) {
      at = EndOfReply(replies, at);
      if (at == std::string_view::npos) std::abort();
    }
  }
  return 0;
}

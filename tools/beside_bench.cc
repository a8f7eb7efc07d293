// beside_bench runs cell_bench's gets and puts on Redis or memcached, to compare them with Cell. It uses one connection
// over a Unix socket with --depth requests in flight, so that both need as few system calls as possible. See
// tools/measure_pilaf.py.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <string>

#include "CLI/CLI.hpp"
#include "cell/base/histogram.h"
#include "cell/base/random.h"
#include "cell/base/status_macros.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/bench_data.h"

namespace cell {
namespace {

struct Flags {
  std::string store = "redis";
  std::string socket;
  uint64_t keys = 100'000;
  size_t value_bytes = 32;
  int gets = 90;  // In percent.
  size_t depth = 16;
  double seconds = 2;
  bool zipfian = false;
  uint64_t seed = 1;
};

int64_t NowNs() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

class Bench {
 public:
  Bench(const Flags& flags, int fd)
      : flags_(flags), fd_(fd), chooser_(flags.keys, flags.zipfian, flags.seed), random_(flags.seed + 1) {}

  absl::StatusOr<nlohmann::json> Run() {
    for (uint64_t i = 0; i < flags_.keys; ++i) {
      AddPut(i);
      if (in_flight_.size() == 64) RETURN_IF_ERROR(Exchange(0));
    }
    RETURN_IF_ERROR(Exchange(0));
    const int64_t warm_ns = NowNs() + 500'000'000;
    int64_t begun_ns = warm_ns;
    const int64_t end_ns = warm_ns + static_cast<int64_t>(flags_.seconds * 1e9);
    bool measuring = false;
    while (NowNs() < end_ns) {
      if (!measuring && NowNs() >= warm_ns) {
        measuring = true;
        latency_ns_.Clear();
        operations_ = absent_ = 0;
        begun_ns = NowNs();
      }
      while (in_flight_.size() < flags_.depth) {
        const uint64_t i = chooser_.Next();
        if (random_.Below(100) < static_cast<uint64_t>(flags_.gets)) {
          AddGet(i);
        } else {
          AddPut(i);
        }
      }
      RETURN_IF_ERROR(Exchange(flags_.depth - 1));
    }
    const double seconds = static_cast<double>(NowNs() - begun_ns) / 1e9;
    const auto us = [&](double q) { return static_cast<double>(latency_ns_.Quantile(q)) / 1e3; };
    return nlohmann::json{
        {"store", flags_.store},
        {"ops_per_second", static_cast<double>(operations_) / seconds},
        {"latency_us", {{"p10", us(0.1)}, {"p50", us(0.5)}, {"p90", us(0.9)}, {"p99", us(0.99)}, {"p999", us(0.999)}}},
        {"absent", absent_}};
  }

 private:
  struct Request {
    bool get;
    int64_t begun_ns;
  };

  // memcached accepts no other bytes.
  static std::string Key(uint64_t i) { return fmt::format("{:016x}", Mix64(i + 1)); }
  void AddGet(uint64_t i) {
    out_ += flags_.store == "redis" ? fmt::format("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", Key(i))
                                    : fmt::format("get {}\r\n", Key(i));
    in_flight_.push_back({true, NowNs()});
  }
  void AddPut(uint64_t i) {
    const std::string value(flags_.value_bytes, static_cast<char>('a' + random_.Below(26)));
    out_ += flags_.store == "redis"
                ? fmt::format("*3\r\n$3\r\nSET\r\n$16\r\n{}\r\n${}\r\n{}\r\n", Key(i), value.size(), value)
                : fmt::format("set {} 0 0 {}\r\n{}\r\n", Key(i), value.size(), value);
    in_flight_.push_back({false, NowNs()});
  }

  // Sends what is to be sent, and receives until at most `left` answers are outstanding.
  absl::Status Exchange(size_t left) {
    for (size_t sent = 0; sent < out_.size();) {
      const ssize_t bytes = ::send(fd_, out_.data() + sent, out_.size() - sent, MSG_NOSIGNAL);
      if (bytes <= 0) return absl::UnavailableError("the server has closed the connection");
      sent += static_cast<size_t>(bytes);
    }
    out_.clear();
    while (in_flight_.size() > left) {
      char buffer[65536];
      const ssize_t bytes = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (bytes <= 0) return absl::UnavailableError("the server has closed the connection");
      in_.append(buffer, static_cast<size_t>(bytes));
      size_t at = 0;
      while (!in_flight_.empty()) {
        ASSIGN_OR_RETURN(const size_t answer, AnswerBytes(std::string_view(in_).substr(at)));
        if (answer == 0) break;
        at += answer;
        ++operations_;
        latency_ns_.Record(static_cast<uint64_t>(NowNs() - in_flight_.front().begun_ns));
        in_flight_.pop_front();
      }
      in_.erase(0, at);
    }
    return absl::OkStatus();
  }

  // Returns the size of the answer to the first request in flight, or 0 if it is not complete.
  absl::StatusOr<size_t> AnswerBytes(std::string_view in) {
    const size_t line = in.find("\r\n");
    if (line == std::string_view::npos) return 0;
    const std::string head(in.substr(0, line));
    if (!in_flight_.front().get) {
      if (head == "+OK" || head == "STORED") return line + 2;
      return absl::UnavailableError(head);
    }
    if (head == "$-1" || head == "END") {
      ++absent_;
      return line + 2;
    }
    size_t bytes = 0;
    const size_t behind = flags_.store == "redis" ? 2 : 7;  // For memcached this includes "END".
    const bool value = flags_.store == "redis" ? std::sscanf(head.c_str(), "$%zu", &bytes) == 1
                                               : std::sscanf(head.c_str(), "VALUE %*s %*u %zu", &bytes) == 1;
    if (!value) return absl::UnavailableError(head);
    const size_t all = line + 2 + bytes + behind;
    return in.size() < all ? 0 : all;
  }

  const Flags& flags_;
  const int fd_;
  KeyChooser chooser_;
  Random random_;
  std::string out_, in_;
  std::deque<Request> in_flight_;
  uint64_t operations_ = 0, absent_ = 0;
  Histogram latency_ns_;
};

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app{
      "Measure Redis or memcached in the same way as cell_bench measures Cell. Keys have 16 bytes; all keys are put "
      "first."};
  app.add_option("--store", flags.store)->check(CLI::IsMember({"redis", "memcached"}))->capture_default_str();
  app.add_option("--socket", flags.socket, "The server's Unix socket")->required();
  app.add_option("--keys", flags.keys)->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))->capture_default_str();
  app.add_option("--value-bytes", flags.value_bytes)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--gets", flags.gets, "Percentage of gets; the rest are puts")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  app.add_option("--depth", flags.depth, "Number of requests in flight")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--seconds", flags.seconds)->check(CLI::Range(0.1, 3600.0))->capture_default_str();
  app.add_flag("--zipfian", flags.zipfian, "Choose keys by a Zipf distribution with theta 0.99 instead of uniformly");
  app.add_option("--seed", flags.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (flags.socket.size() >= sizeof(address.sun_path)) {
    fmt::print(stderr, "beside_bench: the socket's path is too long\n");
    return 2;
  }
  flags.socket.copy(address.sun_path, flags.socket.size());
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fmt::print(stderr, "beside_bench: no server listens at {}\n", flags.socket);
    return 2;
  }
  const absl::StatusOr<nlohmann::json> result = Bench(flags, fd).Run();
  ::close(fd);
  if (!result.ok()) {
    fmt::print(stderr, "beside_bench: {}\n", std::string(result.status().message()));
    return 2;
  }
  fmt::print("{}\n", result->dump(2));
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

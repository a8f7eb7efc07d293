// rados_bench appends to objects of a pool of Ceph RADOS as the logs of as many regions would, but without Cell, to
// measure what the pool gives. Each log has one append in flight. tools/measure_rados.py runs it. Prints one line of
// JSON.

#include <rados/librados.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "cell/cmd/number_flags.h"
#include "cell/io/exec/system_clock.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr uint64_t kObjectBytes = uint64_t{32} << 20;  // As those of ObjectLogStore.
constexpr int64_t kWarmUpNs = 300'000'000;
constexpr const char* kEpochName = "epoch";
constexpr const char* kEpoch = "0000000002";  // Of all objects, and the highest that appends allow.
constexpr size_t kEpochBytes = 10;

struct Flags {
  std::string conf, pool;
  uint64_t logs = 1, bytes = 4096;
  double seconds = 2;
  bool unguarded = false, blocking = false;
};

int64_t NowNs() { return SystemClock::Get()->NowNs(); }

// Ends the program if a call of librados has failed.
void Check(int error, const char* what) {
  if (error >= 0) return;
  fmt::print(stderr, "rados_bench: {}: {}\n", what, std::strerror(-error));
  std::_Exit(2);
}

// Appends to one log.
class Appender {
 public:
  struct Period {
    int64_t begin_ns, end_ns;
  };

  Appender(rados_ioctx_t io, const Flags& flags, uint64_t log, const Period& measured)
      : io_(io), guarded_(!flags.unguarded), log_(log), measured_(measured), bytes_(flags.bytes, 'r') {}
  ~Appender() {
    for (uint64_t i = 0; i < objects_; ++i) Check(rados_remove(io_, Name(i).c_str()), "remove");
  }

  // Appends until the period ends, and waits for each append.
  void RunBlocking() {
    do {
      rados_write_op_t op = NextOp();
      Check(rados_write_op_operate2(op, io_, Name(objects_ - 1).c_str(), nullptr, 0), "append");
      rados_release_write_op(op);
    } while (Completed());
  }
  // Begins each append where librados completes the one before. Releases `ended` after the last one.
  void Begin(std::counting_semaphore<>* ended) {
    ended_ = ended;
    BeginNext();
  }
  const std::vector<int64_t>& took_ns() const { return took_ns_; }

 private:
  std::string Name(uint64_t object) const { return fmt::format("raw/{}.{}", log_, object); }

  // Appends to the log's last object, or makes a new one with these bytes if it is full.
  rados_write_op_t NextOp() {
    begun_ns_ = NowNs();
    rados_write_op_t op = rados_create_write_op();
    if (objects_ == 0 || object_bytes_ + bytes_.size() > kObjectBytes) {
      ++objects_;
      object_bytes_ = 0;
      rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, nullptr);
      rados_write_op_setxattr(op, kEpochName, kEpoch, kEpochBytes);
    } else {
      rados_write_op_assert_exists(op);
      if (guarded_) rados_write_op_cmpxattr(op, kEpochName, LIBRADOS_CMPXATTR_OP_GTE, kEpoch, kEpochBytes);
    }
    rados_write_op_append(op, bytes_.data(), bytes_.size());
    object_bytes_ += bytes_.size();
    return op;
  }
  // Notes how long an append took. Returns whether another one shall follow.
  bool Completed() {
    const int64_t now_ns = NowNs();
    if (begun_ns_ >= measured_.begin_ns && now_ns <= measured_.end_ns) took_ns_.push_back(now_ns - begun_ns_);
    return now_ns < measured_.end_ns;
  }
  void BeginNext() {
    rados_completion_t completion = nullptr;
    Check(rados_aio_create_completion2(this, &Appender::OnComplete, &completion), "completion");
    rados_write_op_t op = NextOp();
    Check(rados_aio_write_op_operate(op, io_, completion, Name(objects_ - 1).c_str(), nullptr, 0), "append");
    rados_release_write_op(op);
  }
  static void OnComplete(rados_completion_t completion, void* argument) {
    auto* const self = static_cast<Appender*>(argument);
    Check(rados_aio_get_return_value(completion), "append");
    rados_aio_release(completion);
    if (self->Completed()) {
      self->BeginNext();
    } else {
      self->ended_->release();
    }
  }

  const rados_ioctx_t io_;
  const bool guarded_;
  const uint64_t log_;
  const Period measured_;
  const std::string bytes_;
  uint64_t objects_ = 0, object_bytes_ = 0;  // The bytes of the last one.
  int64_t begun_ns_ = 0;
  std::counting_semaphore<>* ended_ = nullptr;
  std::vector<int64_t> took_ns_;
};

void Run(rados_ioctx_t io, const Flags& flags) {
  const int64_t begin_ns = NowNs() + kWarmUpNs;
  const Appender::Period measured{begin_ns, begin_ns + static_cast<int64_t>(flags.seconds * 1e9)};
  std::vector<std::unique_ptr<Appender>> appenders;
  for (uint64_t i = 0; i < flags.logs; ++i) {
    appenders.push_back(std::make_unique<Appender>(io, flags, i, measured));
  }
  std::counting_semaphore<> ended(0);
  std::vector<std::thread> threads;
  for (const auto& appender : appenders) {
    if (flags.blocking) {
      threads.emplace_back([&appender] { appender->RunBlocking(); });
    } else {
      appender->Begin(&ended);
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = threads.size(); i < appenders.size(); ++i) ended.acquire();

  std::vector<int64_t> took_ns;
  for (const auto& appender : appenders) {
    took_ns.insert(took_ns.end(), appender->took_ns().begin(), appender->took_ns().end());
  }
  std::sort(took_ns.begin(), took_ns.end());
  const auto percentile_us = [&](size_t percent) {
    return took_ns.empty() ? 0 : static_cast<double>(took_ns[(took_ns.size() - 1) * percent / 100]) / 1e3;
  };
  fmt::print("{{\"appends_per_second\": {:.1f}, \"p50_us\": {:.1f}, \"p99_us\": {:.1f}}}\n",
             static_cast<double>(took_ns.size()) / flags.seconds, percentile_us(50), percentile_us(99));
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Appends to objects of a pool of Ceph RADOS, and prints how many appends a second the pool does.");
  app.add_option("--conf", flags.conf, "Path of the ceph.conf")->required();
  app.add_option("--pool", flags.pool, "Name of the pool, which has no objects raw/...")->required();
  app.add_option("--logs", flags.logs, "Number of logs, each with one append in flight")->check(WholeNumber(1, 1024));
  app.add_option("--bytes", flags.bytes, "Bytes of an append")->check(WholeNumber(1, 8 << 20));
  app.add_option("--seconds", flags.seconds, "Seconds that are measured, after 0.3 s to warm up")
      ->check(Between(0.1, 1e4));
  app.add_flag("--unguarded", flags.unguarded, "Append without a condition on the object's epoch");
  app.add_flag("--blocking", flags.blocking, "A thread for each log, which waits for each append");
  CLI11_PARSE(app, argc, argv);

  rados_t cluster = nullptr;
  rados_ioctx_t io = nullptr;
  Check(rados_create(&cluster, nullptr), "librados");
  Check(rados_conf_read_file(cluster, flags.conf.c_str()), flags.conf.c_str());
  Check(rados_connect(cluster), "the monitors");
  Check(rados_ioctx_create(cluster, flags.pool.c_str(), &io), flags.pool.c_str());
  Run(io, flags);
  rados_ioctx_destroy(io);
  rados_shutdown(cluster);
  return 0;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

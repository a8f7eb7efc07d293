// Servers, and what drives them, for tests of fabrics.
#pragma once

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cell/io/fabric/fabric.h"

namespace cell {

// How a fabric's endpoints come to be and how its servers are driven.
class FabricHarness {
 public:
  virtual ~FabricHarness() = default;
  // What this machine lacks for it; empty: nothing.
  virtual std::string Missing() { return {}; }
  virtual std::unique_ptr<Fabric> NewEndpoint() = 0;
  virtual std::string Address(int n) = 0;
  // Whether what it holds is held in this process's memory and descriptors.
  virtual bool Real() { return true; }
  // From now on `server` polls by itself, until Stop. The test does not touch it meanwhile.
  virtual void Run(Fabric* server) = 0;
  virtual void Stop(Fabric* server) = 0;
  // Stops `server`, as a process is stopped that no clock can reach. False: what answers its reads goes on.
  virtual bool Silence(Fabric* server) {
    Stop(server);
    return true;
  }
  // How many are connected to `server`, which runs: a fabric belongs to one thread, so it stops while they are counted.
  size_t PeersOf(Fabric* server) {
    Stop(server);
    const size_t peers = server->peers();
    Run(server);
    return peers;
  }
};

// Drives each server by a thread of its own.
class ThreadsHarness : public FabricHarness {
 public:
  ~ThreadsHarness() override {
    while (!threads_.empty()) Stop(threads_.begin()->first);
  }
  void Run(Fabric* server) override {
    stop_ = false;
    threads_[server] = std::thread([this, server] {
      while (!stop_) {
        if (server->Poll() == 0) server->Wait(server->NowNs() + 1'000'000);
      }
    });
  }
  void Stop(Fabric* server) override {
    stop_ = true;
    threads_.at(server).join();
    threads_.erase(server);
  }

 private:
  std::atomic<bool> stop_ = false;
  std::map<Fabric*, std::thread> threads_;
};

// Answers with the request, in capitals, cut to the room there is.
class EchoService : public Service {
 public:
  explicit EchoService(Fabric* fabric) : fabric_(fabric) {}
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      const MutableBytes to = fabric_->BeginReply(call);
      const size_t bytes = std::min(to.size(), call.request.size());
      for (size_t i = 0; i < bytes; ++i)
        to[i] = static_cast<std::byte>(std::toupper(static_cast<int>(call.request[i])));
      const ServiceTimes times = fabric_->TimesOf(call, 1024);
      call_ns = times.call_ns;
      read_ns = times.read_ns;
      fabric_->EndReply(call, bytes);
    }
  }
  void Disconnected(ConnectionId) override { ++disconnected; }

  std::atomic<int> disconnected{0};
  std::atomic<uint32_t> call_ns{0}, read_ns{0};  // Of the last call: Fabric::TimesOf.

 private:
  Fabric* fabric_;
};

// A service may keep calls and answer them later, in any order.
class PatientService : public Service {
 public:
  void Serve(absl::Span<const IncomingCall> calls) override {
    for (const IncomingCall& call : calls) {
      kept.push_back(call);
      kept.back().request = {};
    }
  }
  void Disconnected(ConnectionId) override { kept.clear(); }
  std::vector<IncomingCall> kept;
};

using MakeHarness = std::function<std::unique_ptr<FabricHarness>()>;

}  // namespace cell

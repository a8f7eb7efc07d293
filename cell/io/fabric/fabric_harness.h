// Provides servers, and drives them, for tests of fabrics.
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

// Makes a fabric's endpoints and drives its servers.
class FabricHarness {
 public:
  virtual ~FabricHarness() = default;
  // Returns what this machine lacks to run it, or "" if nothing.
  virtual std::string Missing() { return {}; }
  virtual std::unique_ptr<Fabric> NewEndpoint() = 0;
  virtual std::string Address(int n) = 0;
  // Returns whether the server takes its endpoints for the clients that they say they are.
  virtual bool ClientsAreClients() { return true; }
  // Returns whether the fabric uses memory and descriptors of this process.
  virtual bool Real() { return true; }
  // Makes `server` poll by itself until Stop. The test must not use it meanwhile.
  virtual void Run(Fabric* server) = 0;
  virtual void Stop(Fabric* server) = 0;
  // Stops `server` like a stopped process. Returns false if its reads are still answered.
  virtual bool Silence(Fabric* server) {
    Stop(server);
    return true;
  }
  // Returns the number of peers of `server`, which is running. The server stops while they are counted, because a
  // fabric belongs to one thread.
  size_t PeersOf(Fabric* server) {
    Stop(server);
    const size_t peers = server->peers();
    Run(server);
    return peers;
  }
};

// Drives each server in a thread of its own.
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

// Answers with the request in capitals, cut to the room for the reply.
class EchoService final : public Service {
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
  std::atomic<uint32_t> call_ns{0}, read_ns{0};  // Fabric::TimesOf of the last call.

 private:
  Fabric* fabric_;
};

// Keeps calls, so that a test can answer them later, in any order.
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

// Worker: one thread's part of a server. One fabric endpoint, the regions that it holds, the service that answers
// requests on them, and the steward that looks after them.
#pragma once

#include <memory>
#include <utility>

#include "cell/server/steward.h"

namespace cell {

class Worker {
 public:
  struct Options {
    RequestService::Options service;
    StewardOptions steward;
    size_t regions_max = 16;
  };

  Worker(std::unique_ptr<Fabric> fabric, std::unique_ptr<Membership> membership, const Options& options)
      : fabric_(std::move(fabric)),
        membership_(std::move(membership)),
        regions_(fabric_.get(), membership_->state().shape, options.regions_max),
        service_(fabric_.get(), &regions_, options.service),
        steward_(fabric_.get(), membership_.get(), &regions_, &service_, options.steward) {}

  // Serves at `address` from now on, whenever Poll is called.
  absl::Status Start(const std::string& address) {
    RETURN_IF_ERROR(steward_.Start());
    return fabric_->Listen(address, &service_);
  }
  size_t Poll() { return fabric_->Poll() + steward_.Step(); }
  void Wait(int64_t until_ns) { fabric_->Wait(std::min(until_ns, steward_.NextNs())); }
  void Stop() { steward_.Stop(); }

  Fabric* fabric() { return fabric_.get(); }
  Regions* regions() { return &regions_; }
  RequestService* service() { return &service_; }
  Steward* steward() { return &steward_; }

 private:
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Membership> membership_;
  Regions regions_;
  RequestService service_;
  Steward steward_;
};

}  // namespace cell

// SimObjects and SimObjectStore are a store of objects in memory that several hosts share, for simulations and tests.
//
// An update is atomic for one object, and nothing is for two: while work runs in steps (SimFiber), each update is sent,
// made and answered at three moments, between which other hosts go on. A host may lose the answers of updates
// (Unavailable): such an update was made, or is made at any later moment, or never. So is one that a host had sent when
// it died. An update that was sent is made whether or not its host goes on, for example while the host is paused, but
// not while the store is silent for the host. RADOS keeps the order of one client's updates of one object; this store
// does not. Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cell/base/random.h"
#include "cell/io/object/object_store.h"

namespace cell {

class SimObjectStore;

class SimObjects {
 public:
  explicit SimObjects(uint64_t seed) : random_(seed) {}
  // Makes a host's view. This must outlive it.
  std::unique_ptr<SimObjectStore> NewHost();

  // Makes some of the updates that are under way. Of those whose answers nobody waits for any more, some are never
  // made.
  void MakeSomeLate();
  // Calls MakeSomeLate until all updates that are under way have a caller that waits for the answer.
  void MakeAllLate();
  // Fills the pool: updates that add anything fail with ResourceExhausted.
  void set_full(bool full) { full_ = full; }
  bool full() const { return full_; }
  // Makes the store silent for all hosts (SimObjectStore::set_silent).
  void set_silent(bool silent) { silent_ = silent; }
  bool silent() const { return silent_; }
  std::vector<std::string> names() const;
  // For tests that damage objects.
  std::string* bytes(const std::string& name) { return &objects_.at(name).bytes; }
  uint32_t* epoch(const std::string& name) { return &objects_.at(name).epoch; }
  ObjectEntries* entries(const std::string& name) { return &objects_.at(name).entries; }
  void Erase(const std::string& name) { objects_.erase(name); }

 private:
  friend class SimObjectStore;

  struct Object {
    uint32_t epoch = 0;
    std::string bytes;
    ObjectEntries entries;
  };
  // An update that was sent.
  struct Sent {
    uint64_t host = 0;
    std::string name;
    ObjectUpdate update;
    std::string append;  // What update.append points to.
    bool awaited = true;
    bool made = false;
    absl::Status result;
  };
  using Ticket = std::list<Sent>::iterator;

  bool SilentFor(uint64_t host) const { return silent_ || silent_hosts_.contains(host); }
  bool AnyoneGone() const;
  void Make(Ticket ticket);
  absl::Status MakeNow(const std::string& name, const ObjectUpdate& update);

  Random random_;
  uint64_t hosts_ = 0;
  std::map<std::string, Object> objects_;
  std::list<Sent> sent_;  // In the order in which they were sent.
  bool full_ = false;
  bool silent_ = false;
  std::set<uint64_t> silent_hosts_;
};

class SimObjectStore : public ObjectStore {
 public:
  ~SimObjectStore() override { Crash(); }

  absl::Status Update(const std::string& name, const ObjectUpdate& update) override;
  absl::StatusOr<Head> ReadHead(const std::string& name) override;
  absl::StatusOr<size_t> Read(const std::string& name, uint64_t offset, MutableBytes to) override;
  absl::StatusOr<uint64_t> Size(const std::string& name) override;
  absl::StatusOr<std::vector<std::string>> List() override;

  // Simulates the host's death: nobody waits for its updates any more.
  void Crash();
  // Makes the n-th call from now on (0: the next) fail with Unavailable. If it is an update, its answer is lost.
  void LoseAt(uint64_t n) { lose_in_ = static_cast<int64_t>(n); }
  // Makes each call fail with Unavailable with this probability, in percent.
  void set_loss(int percent) { loss_percent_ = percent; }
  // Makes the store silent for this host: no call reaches it, none is answered, and each ends with Unavailable after a
  // while. What was sent may arrive when this is over.
  void set_silent(bool silent);
  // Ends all of these.
  void EndFaults();
  uint64_t calls() const { return calls_; }

 private:
  friend class SimObjects;

  SimObjectStore(SimObjects* objects, uint64_t host) : objects_(objects), host_(host) {}
  bool silent() const { return objects_->SilentFor(host_); }
  // Waits, if this is in steps, and returns whether the answer is lost.
  bool Call();
  absl::StatusOr<SimObjects::Object*> Find(const std::string& name);

  SimObjects* const objects_;
  const uint64_t host_;  // Its number.
  int64_t lose_in_ = -1;
  int loss_percent_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace cell

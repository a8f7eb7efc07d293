#include "cell/io/sim/sim_object_store.h"

#include <algorithm>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/sim/sim_fiber.h"
#include "fmt/format.h"

namespace cell {
namespace {

// How many times longer than an answer a host waits for one that does not come.
constexpr int kPatience = 5;

void Pause(int slowness = 1) {
  if (SimFiber* const fiber = SimFiber::current(); fiber != nullptr) fiber->Pause(slowness);
}

absl::Status NoSuch(const std::string& name) {
  return absl::NotFoundError(fmt::format("the object {} does not exist", name));
}

absl::Status Lost() {
  Pause(kPatience);
  return absl::UnavailableError("the object store did not answer in time");
}

}  // namespace

std::unique_ptr<SimObjectStore> SimObjects::NewHost() {
  return std::unique_ptr<SimObjectStore>(new SimObjectStore(this, ++hosts_));
}

std::vector<std::string> SimObjects::names() const {
  std::vector<std::string> names;
  for (const auto& [name, object] : objects_) names.push_back(name);
  return names;
}

void SimObjects::MakeSomeLate() {
  for (auto it = sent_.begin(); it != sent_.end();) {
    const auto ticket = it++;
    if (SilentFor(ticket->host) || random_.Below(4) != 0) continue;
    if (ticket->awaited) {
      Make(ticket);
      continue;
    }
    if (random_.Below(3) != 0) Make(ticket);  // Otherwise it never comes.
    sent_.erase(ticket);
  }
}

bool SimObjects::AnyoneGone() const {
  return std::any_of(sent_.begin(), sent_.end(),
                     [this](const Sent& sent) { return !sent.awaited && !SilentFor(sent.host); });
}

void SimObjects::MakeAllLate() {
  while (AnyoneGone()) MakeSomeLate();
}

void SimObjects::Make(Ticket ticket) {
  if (ticket->made) return;
  ticket->result = MakeNow(ticket->name, ticket->update);
  ticket->made = true;
}

absl::Status SimObjects::MakeNow(const std::string& name, const ObjectUpdate& update) {
  const auto it = objects_.find(name);
  const bool adds = update.create || !update.append.empty() || !update.set.empty();
  if (full_ && adds) return absl::ResourceExhaustedError("the pool is full");
  if (update.create) {
    if (it != objects_.end()) return absl::AlreadyExistsError(fmt::format("the object {} exists", name));
    CELL_CHECK(!update.epoch_max.has_value() && update.expected.empty() && update.absent.empty());
    objects_[name] = {update.epoch.value_or(0), std::string(update.append), update.set};
    return absl::OkStatus();
  }
  if (it == objects_.end()) return NoSuch(name);
  Object& object = it->second;
  if (update.epoch_max.has_value() && object.epoch > *update.epoch_max) {
    return absl::AbortedError(fmt::format("the object {} has epoch {}", name, object.epoch));
  }
  for (const auto& [key, value] : update.expected) {
    const auto entry = object.entries.find(key);
    if (entry == object.entries.end() || entry->second != value) {
      return absl::AbortedError(fmt::format("the entry {} of the object {} is another one", key, name));
    }
  }
  for (const std::string& key : update.absent) {
    const auto entry = object.entries.find(key);
    if (entry != object.entries.end() && !entry->second.empty()) {
      return absl::AbortedError(fmt::format("the object {} has an entry {}", name, key));
    }
  }
  if (update.remove_object) {
    objects_.erase(it);
    return absl::OkStatus();
  }
  object.epoch = update.epoch.value_or(object.epoch);
  object.bytes.append(update.append);
  for (const auto& [key, value] : update.set) object.entries[key] = value;
  for (const std::string& key : update.remove) object.entries.erase(key);
  return absl::OkStatus();
}

bool SimObjectStore::Call() {
  ++calls_;
  Pause();
  objects_->MakeSomeLate();
  if (silent()) return true;
  if (lose_in_ >= 0 && lose_in_-- == 0) return true;
  return loss_percent_ > 0 && objects_->random_.Below(100) < static_cast<uint64_t>(loss_percent_);
}

absl::Status SimObjectStore::Update(const std::string& name, const ObjectUpdate& update) {
  CELL_CHECK_LE(update.append.size(), kObjectAppendMax);
  objects_->sent_.push_back({host_, name, update, std::string(update.append), true, false, absl::OkStatus()});
  const auto ticket = std::prev(objects_->sent_.end());
  ticket->update.append = ticket->append;
  if (Call()) {
    if (!silent() && objects_->random_.Below(2) == 0) objects_->Make(ticket);
    ticket->awaited = false;
    return Lost();
  }
  objects_->Make(ticket);
  Pause();  // Until the answer comes.
  if (silent()) {
    ticket->awaited = false;
    return Lost();
  }
  absl::Status result = ticket->result;
  objects_->sent_.erase(ticket);
  return result;
}

absl::StatusOr<SimObjects::Object*> SimObjectStore::Find(const std::string& name) {
  if (Call()) return Lost();
  const auto it = objects_->objects_.find(name);
  if (it == objects_->objects_.end()) return NoSuch(name);
  return &it->second;
}

absl::StatusOr<ObjectStore::Head> SimObjectStore::ReadHead(const std::string& name) {
  ASSIGN_OR_RETURN(const SimObjects::Object* object, Find(name));
  if (object->entries.size() > kObjectEntriesMax) {
    return absl::DataLossError(fmt::format("the object {} has too many entries", name));
  }
  Head head{object->epoch, object->entries};
  Pause();
  return head;
}

absl::StatusOr<size_t> SimObjectStore::Read(const std::string& name, uint64_t offset, MutableBytes to) {
  CELL_CHECK_LE(to.size(), kObjectReadMax);
  ASSIGN_OR_RETURN(const SimObjects::Object* object, Find(name));
  const std::string& bytes = object->bytes;
  return bytes.copy(reinterpret_cast<char*>(to.data()), to.size(), std::min<uint64_t>(offset, bytes.size()));
}

absl::StatusOr<uint64_t> SimObjectStore::Size(const std::string& name) {
  ASSIGN_OR_RETURN(const SimObjects::Object* object, Find(name));
  return object->bytes.size();
}

absl::StatusOr<std::vector<std::string>> SimObjectStore::List() {
  if (Call()) return Lost();
  return objects_->names();
}

void SimObjectStore::set_silent(bool silent) {
  if (silent) {
    objects_->silent_hosts_.insert(host_);
  } else {
    objects_->silent_hosts_.erase(host_);
  }
}

void SimObjectStore::EndFaults() {
  lose_in_ = -1;
  loss_percent_ = 0;
  set_silent(false);
}

void SimObjectStore::Crash() {
  set_silent(false);  // What it had sent is on its way.
  for (SimObjects::Sent& sent : objects_->sent_) {
    if (sent.host == host_) sent.awaited = false;
  }
}

}  // namespace cell

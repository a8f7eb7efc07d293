// ObjectStore is the interface to a store of named objects, such as a pool of Ceph RADOS (rados_object_store.h).
//
// An object has an epoch, bytes, and entries: small values by key. One update of one object is atomic. There is no such
// thing for two objects: their updates may become visible in any order.
//
// An update that has returned OK survives what the store survives. One that has returned Unavailable may have been
// made, or may still be made much later, for example when a partition ends; so every update that must not come too late
// has a condition that is false by then. Any other error means that it was not made and never will be.
//
// Every call may block, so none may be made on a worker's thread (thread_pool.h). Thread-safe.
//
// Errors: NotFound and AlreadyExists for the object. Aborted if a condition does not hold. ResourceExhausted if the
// pool is full. PermissionDenied if the store allows it to nobody, or not to this client. DataLoss from ReadHead if
// the object's epoch cannot be read, or if it has more than kObjectEntriesMax entries. Unavailable for anything else,
// with its text; every call ends within a time that the store's options limit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"

namespace cell {

using ObjectEntries = std::map<std::string, std::string>;

// What an update does to one object. First its conditions are checked, and then all of it is done, or nothing.
struct ObjectUpdate {
  // The object must not exist, and is made. Otherwise it must exist.
  bool create = false;
  // The object's epoch must not be higher. Not with `create`.
  std::optional<uint32_t> epoch_max = {};
  // The object must have these entries, and none with these keys, except with an empty value. Not with `create`.
  ObjectEntries expected = {};
  std::vector<std::string> absent = {};

  std::optional<uint32_t> epoch = {};  // The new epoch. A new object has epoch 0 without it.
  std::string_view append = {};        // At most kObjectAppendMax.
  ObjectEntries set = {};
  std::vector<std::string> remove = {};  // Keys of entries, which need not exist.
  bool remove_object = false;
};

inline constexpr size_t kObjectAppendMax = size_t{8} << 20;  // RADOS: osd_max_write_size is 90 MB.
inline constexpr size_t kObjectEntriesMax = 65'536;          // Of one object.
inline constexpr size_t kObjectReadMax = size_t{8} << 20;

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  virtual absl::Status Update(const std::string& name, const ObjectUpdate& update) = 0;

  struct Head {
    uint32_t epoch = 0;
    ObjectEntries entries;
  };
  // Returns epoch and entries as they are at one moment.
  virtual absl::StatusOr<Head> ReadHead(const std::string& name) = 0;
  // Reads [offset, offset + to.size()) as far as the object goes, and returns the number of bytes. At most
  // kObjectReadMax.
  virtual absl::StatusOr<size_t> Read(const std::string& name, uint64_t offset, MutableBytes to) = 0;
  virtual absl::StatusOr<uint64_t> Size(const std::string& name) = 0;
  // Returns the names of all objects, in any order. Objects that are made or removed meanwhile may be missing.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
};

}  // namespace cell

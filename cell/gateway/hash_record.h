// HashRecord is a hash of Redis as one value of the tree:
//
//   magic (8 bytes), and for each field: u32 field_bytes, u32 value_bytes, the field, the value
//
// Numbers are little-endian. The fields are in the order in which they were added, each once. So a hash is read by one
// get, has an expiry like any pair, and is seen by scans. It has at most the 1 MB of a value.
//
// Not thread-safe. Fields and values are views of what was parsed and set, which must outlive the record.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cell::gateway {

// Begins the values that are hashes. The gateway does not store strings that begin so.
inline constexpr std::string_view kHashMagic("\0cell:h\1", 8);

inline bool IsHash(std::string_view value) { return value.starts_with(kHashMagic); }

class HashRecord {
 public:
  struct Field {
    std::string_view name, value;
    bool removed = false;
  };

  HashRecord() = default;
  // Returns nullopt if the value is not a well-formed hash.
  static std::optional<HashRecord> Parse(std::string_view value);

  // Returns nullopt if there is no such field.
  std::optional<std::string_view> Find(std::string_view name);
  // Adds or replaces a field. Returns whether it is new.
  bool Set(std::string_view name, std::string_view value);
  // Returns whether the field was there.
  bool Remove(std::string_view name);
  size_t size() const { return size_; }
  std::string Encode() const;

  // Calls `see(name, value)` for each field, in order.
  template <typename See>
  void ForEach(const See& see) const {
    for (const Field& field : fields_) {
      if (!field.removed) see(field.name, field.value);
    }
  }

 private:
  Field* Lookup(std::string_view name);

  std::vector<Field> fields_;
  std::unordered_map<std::string_view, size_t> index_;  // Positions in fields_. Filled when a field is looked up.
  bool indexed_ = false;
  size_t size_ = 0;  // Fields that are not removed.
};

}  // namespace cell::gateway

#include "cell/gateway/hash_record.h"

#include <cstdint>
#include <cstring>

namespace cell::gateway {
namespace {

constexpr size_t kLengthsBytes = 2 * sizeof(uint32_t);

void AppendNumber(size_t number, std::string* to) {
  const auto little = static_cast<uint32_t>(number);
  to->append(reinterpret_cast<const char*>(&little), sizeof(little));
}

}  // namespace

std::optional<HashRecord> HashRecord::Parse(std::string_view value) {
  if (!IsHash(value)) return std::nullopt;
  HashRecord record;
  std::string_view rest = value.substr(kHashMagic.size());
  while (!rest.empty()) {
    uint32_t lengths[2];
    if (rest.size() < kLengthsBytes) return std::nullopt;
    std::memcpy(lengths, rest.data(), kLengthsBytes);
    rest.remove_prefix(kLengthsBytes);
    if (uint64_t{lengths[0]} + lengths[1] > rest.size()) return std::nullopt;
    record.fields_.push_back({rest.substr(0, lengths[0]), rest.substr(lengths[0], lengths[1])});
    rest.remove_prefix(size_t{lengths[0]} + lengths[1]);
  }
  record.size_ = record.fields_.size();
  return record;
}

HashRecord::Field* HashRecord::Lookup(std::string_view name) {
  if (!indexed_) {
    index_.reserve(fields_.size());
    for (size_t i = 0; i < fields_.size(); ++i) index_.emplace(fields_[i].name, i);
    indexed_ = true;
  }
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &fields_[found->second];
}

std::optional<std::string_view> HashRecord::Find(std::string_view name) {
  const Field* const field = Lookup(name);
  return field == nullptr ? std::nullopt : std::optional(field->value);
}

bool HashRecord::Set(std::string_view name, std::string_view value) {
  if (Field* const field = Lookup(name); field != nullptr) {
    field->value = value;
    return false;
  }
  index_.emplace(name, fields_.size());
  fields_.push_back({name, value});
  ++size_;
  return true;
}

bool HashRecord::Remove(std::string_view name) {
  Field* const field = Lookup(name);
  if (field == nullptr) return false;
  field->removed = true;
  index_.erase(name);
  --size_;
  return true;
}

std::string HashRecord::Encode() const {
  std::string value(kHashMagic);
  ForEach([&](std::string_view name, std::string_view field_value) {
    AppendNumber(name.size(), &value);
    AppendNumber(field_value.size(), &value);
    value.append(name).append(field_value);
  });
  return value;
}

}  // namespace cell::gateway

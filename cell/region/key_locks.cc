#include "cell/region/key_locks.h"

namespace cell {

bool KeyLocks::MayReadRange(std::string_view from, std::string_view to, const Owner& owner) const {
  for (auto it = writers_.lower_bound(from); it != writers_.end() && (to.empty() || it->first < to); ++it) {
    if (it->second != owner) return false;
  }
  return true;
}

bool KeyLocks::MayWriteAll(absl::Span<const std::string_view> keys, const Owner& owner) const {
  for (const std::string_view key : keys) {
    if (!MayRead(key, owner)) return false;
    const auto [begin, end] = readers_.equal_range(key);
    if (std::any_of(begin, end, [&](const auto& reader) { return reader.second != owner; })) return false;
  }
  return std::none_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    if (range.owner == owner) return false;
    const auto first = std::lower_bound(keys.begin(), keys.end(), std::string_view(range.from));
    return first != keys.end() && (range.to.empty() || *first < range.to);
  });
}

bool KeyLocks::MayWriteRange(std::string_view from, std::string_view to) const {
  if (!MayReadRange(from, to)) return false;
  const auto reader = readers_.lower_bound(from);
  if (reader != readers_.end() && (to.empty() || reader->first < to)) return false;
  return std::none_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    return (to.empty() || range.from < to) && (range.to.empty() || from < range.to);
  });
}

void KeyLocks::ReleaseRead(std::string_view key, const Owner& owner) {
  const auto [begin, end] = readers_.equal_range(key);
  const auto its = std::find_if(begin, end, [&](const auto& reader) { return reader.second == owner; });
  if (its != end) readers_.erase(its);
}

void KeyLocks::ReleaseWrite(std::string_view key, const Owner& owner) {
  const auto it = writers_.find(key);
  if (it != writers_.end() && it->second == owner) writers_.erase(it);
}

}  // namespace cell

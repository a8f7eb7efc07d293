#include "cell/tree/scan_position.h"

namespace cell {

std::string GreatestBelow(std::string_view key, size_t bytes_max) {
  std::string below(key.substr(0, key.size() - std::min<size_t>(1, key.size())));
  if (key.empty() || key.back() == '\0') return below;
  below.push_back(static_cast<char>(key.back() - 1));
  below.resize(bytes_max, '\xff');
  return below;
}

ScanPosition ScanPosition::Of(std::string from, std::optional<std::string> to, bool down, size_t key_bytes_max) {
  if (!down) return ScanPosition(false, std::move(from), std::move(to), key_bytes_max);
  std::string at = to.has_value() ? GreatestBelow(*to, key_bytes_max) : std::string(key_bytes_max, '\xff');
  std::optional<std::string> end;
  if (!from.empty()) end = std::move(from);
  return ScanPosition(true, std::move(at), std::move(end), key_bytes_max);
}

int ScanPosition::First(const NodeView& leaf) const {
  const int slot = leaf.LowerBound(at_);
  return down_ && leaf.Find(at_) != slot ? slot - 1 : slot;
}

bool ScanPosition::EndsWith(const NodeView& leaf) const {
  if (down_) return leaf.low_key().empty() || (end_.has_value() && leaf.low_key() <= *end_);
  return !leaf.has_high() || (end_.has_value() && leaf.high_key() >= *end_);
}

bool ScanPosition::PastChild(const NodeView& parent, int slot) const {
  if (!end_.has_value()) return false;
  if (!down_) return parent.key(slot) >= *end_;
  return slot + 1 < parent.count() && parent.key(slot + 1) <= *end_;
}

}  // namespace cell

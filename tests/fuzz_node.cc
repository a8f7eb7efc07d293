// libFuzzer: parses any bytes as a node. The parser refuses, or every accessor stays inside the image (checked by the
// address sanitizer).
#include <cstring>
#include <memory>

#include "cell/tree/node_view.h"
#include "cell/tree/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cell;
  if (size < 8) return 0;
  // Exactly as long as a node, so that overruns are detected; versions and CRC are corrected, so that other fields are
  // tested.
  constexpr uint32_t kBytes = 512;
  const std::unique_ptr<std::byte[]> node(new std::byte[kBytes]());
  std::memcpy(node.get() + kNodeBodyOffset, data, std::min<size_t>(size, kBytes - kNodeBodyOffset - kTailVersionBytes));
  const Pointer self = Load<Pointer>(node.get() + kNodeBodyOffset);
  Store(node.get() + 8, NodeCrc(node.get(), kBytes));
  NodeView view;
  if (NodeView::Parse(ConstBytes(node.get(), kBytes), self, &view) != NodeFault::kNone) return 0;
  const std::string_view probe(reinterpret_cast<const char*>(data), std::min<size_t>(size, 40));
  size_t sum = view.high_key().size() + view.low_key().size() + view.prefix().size();
  for (int i = 0; i < view.count(); ++i) {
    const std::string key = view.key(i);
    sum += key.size();
    if (view.holds_pairs()) {
      const LeafPair pair = view.pair(i);
      sum += pair.pair_bytes() + pair.stamp + pair.outside.extent.region();
      for (const char c : pair.value) sum += static_cast<unsigned char>(c);
    } else {
      sum += view.inner_slot(i).child().region();
    }
    if (view.Covers(key)) sum += static_cast<size_t>(view.LowerBound(key));
  }
  sum += static_cast<size_t>(view.LowerBound(probe) + view.ChildSlot(probe)) + view.Find(probe).has_value();
  Walk walk(probe, self);
  sum += static_cast<size_t>(walk.Visit(view));
  static volatile size_t sink;  // Keeps the compiler from removing the reads.
  sink = sum;
  return 0;
}

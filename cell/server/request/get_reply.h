// EndGetReply completes the reply to a get.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "cell/base/bytes.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/request/value_copies.h"

namespace cell {

// A key's pair, as a get has found it.
struct FoundPair {
  std::string_view value = {};
  Expiry expiry = kNeverExpires;
  std::optional<NodeState> leaf = {};
};

// Writes the reply to `to`, with what fits of the pair. If the value does not, keeps a copy of it for the peer under
// the number `copy`, unless that is 0. Returns the reply's size. `reply` is that of ReplyOf, and says what was found
// and where.
inline size_t EndGetReply(GetReply reply, const FoundPair& pair, ConnectionId peer, uint16_t copy, ValueCopies* copies,
                          MutableBytes to) {
  const auto add = [&](uint8_t follows, const void* bytes, size_t size) {
    reply.follows |= follows;
    if (size > 0) std::memcpy(to.data() + reply.header.bytes, bytes, size);
    reply.header.bytes += static_cast<uint32_t>(size);
  };
  const std::string_view value = pair.value;
  if (value.size() <= kInlineValueBytesMax &&
      reply.header.bytes + value.size() + ExpiryBytes(pair.expiry) <= to.size()) {
    if (reply.found != 0) add(kFollowsValue, value.data(), value.size());
  } else if (copy != 0) {
    reply.copied = copy;
    reply.extent = {};
    copies->Keep(peer, copy, value);
  }
  if (pair.expiry != kNeverExpires && reply.header.bytes + sizeof(Expiry) <= to.size()) {
    add(kFollowsExpiry, &pair.expiry, sizeof(Expiry));
  }
  if (pair.leaf.has_value() && reply.header.bytes + sizeof(NodeState) <= to.size()) {
    add(kFollowsLeaf, &*pair.leaf, sizeof(NodeState));
  }
  Store(to.data(), reply);
  return reply.header.bytes;
}

}  // namespace cell

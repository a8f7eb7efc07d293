// EndGetReply completes the reply to a get. Pure.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "cell/base/bytes.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"
#include "cell/server/request/value_copies.h"

namespace cell {

// Writes the reply to `to`, with the value if it fits. If it does not, keeps a copy of it for the peer under the number
// `copy`, unless that is 0. Returns the reply's size. `reply` is that of ReplyOf, and says what was found and where.
inline size_t EndGetReply(GetReply reply, std::string_view value, Expiry expiry, ConnectionId peer, uint16_t copy,
                          ValueCopies* copies, MutableBytes to) {
  const size_t expiry_bytes = ExpiryBytes(expiry);
  if (value.size() <= kInlineValueBytesMax && sizeof(GetReply) + value.size() + expiry_bytes <= to.size()) {
    reply.inlined = reply.found;
    reply.header.bytes += static_cast<uint32_t>(value.size());
    if (!value.empty()) std::memcpy(to.data() + sizeof(GetReply), value.data(), value.size());
  } else if (copy != 0) {
    reply.copied = copy;
    reply.extent = {};
    copies->Keep(peer, copy, value);
  }
  if (expiry_bytes > 0 && reply.header.bytes + expiry_bytes <= to.size()) {
    Store(to.data() + reply.header.bytes, expiry);
    reply.header.bytes += static_cast<uint32_t>(expiry_bytes);
  }
  Store(to.data(), reply);
  return reply.header.bytes;
}

}  // namespace cell

// Answers a client's questions about the region table and the servers as a worker does, for tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/cluster/cluster_text.h"
#include "cell/cluster/membership.h"
#include "cell/cluster/table_shards.h"
#include "cell/io/fabric/fabric.h"
#include "cell/layout/wire.h"

namespace cell {

struct ServedTable {
  ClusterState state;  // What the worker knows.
  uint64_t age_ns = 0;
  std::map<std::tuple<TablePartKind, uint32_t, uint64_t>, std::string> parts;
  size_t piece_bytes = 60'000;
  size_t more = 0;  // A lie about the size of each part.
  int questions = 0;
  int asked = 0;  // For pieces.

  // Changes the table, stores it, and lets the worker know it.
  void ChangeTable(const std::function<void(RegionTable*)>& change) {
    change(&state.table);
    state.table.regions.Stored(++state.table.version);
    Serve();
  }
  // Lets the worker send the parts of `state`.
  void Serve() {
    parts.clear();
    parts[{TablePartKind::kServers, 0, state.servers_version}] = ServersText(state.servers);
    parts[{TablePartKind::kRoot, 0, state.table.version}] = StoredRoot(state.table);
    for (const RegionMap::Shard& shard : state.table.regions.shards()) {
      parts[{TablePartKind::kShard, shard.first, shard.version}] = StoredShard(shard);
    }
  }
  size_t Answer(const IncomingCall& call, MutableBytes to) {
    if (ParseHeader(call.request)->kind == MessageKind::kTablePart) return AnswerPart(call, to);
    ++questions;
    CELL_CHECK(ParseTableVersionRequest(call.request).ok());
    auto reply = ReplyOf<TableVersionReply>(MessageKind::kTableVersion);
    reply.cluster = Crc64(state.uuid);
    reply.version = state.table.version;
    reply.servers_version = state.servers_version;
    reply.age_ns = age_ns;
    Store(to.data(), reply);
    return sizeof(reply);
  }
  size_t AnswerPart(const IncomingCall& call, MutableBytes to) {
    ++asked;
    const auto request = ParseTablePartRequest(call.request);
    CELL_CHECK(request.ok());
    const auto it = parts.find({request->part.kind, request->part.first, request->part.version});
    if (it == parts.end()) return WriteErrorReply(to, MessageKind::kTablePart, absl::AbortedError("another version"));
    const std::string_view text(it->second);
    const std::string_view piece = text.substr(std::min(request->offset, text.size()), piece_bytes);
    auto reply = ReplyOf<TablePartReply>(MessageKind::kTablePart);
    reply.header.bytes = static_cast<uint32_t>(sizeof(reply) + piece.size());
    reply.bytes = text.size() + more;
    Store(to.data(), reply);
    std::memcpy(to.data() + sizeof(reply), piece.data(), piece.size());
    return sizeof(reply) + piece.size();
  }
};

}  // namespace cell

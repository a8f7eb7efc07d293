// Commands on hashes, each of which is one value of the tree (hash_record.h).
#pragma once

#include "cell/gateway/command.h"

namespace cell::gateway {

Task<bool> HashReadAlone(Client* client, Words words, ReplyWriter* reply);

// HGET, HMGET, HGETALL, HKEYS, HVALS, HLEN, HEXISTS, HSTRLEN, HSCAN.
Task<absl::Status> HashReadWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> HsetWithin(Space* space, Words words, ReplyWriter* reply);  // HMSET, HSETNX as well.
Task<absl::Status> HdelWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> HincrbyWithin(Space* space, Words words, ReplyWriter* reply);

}  // namespace cell::gateway

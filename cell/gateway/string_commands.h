// Commands on strings, and on pairs of any type. ...Alone runs a command without a transaction, where that is faster.
// ...Within runs it as a part of one.
#pragma once

#include "cell/gateway/command.h"

namespace cell::gateway {

Task<bool> GetAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> StrlenAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> TypeAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> SetAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> DelAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> ExistsAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> MgetAlone(Client* client, Words words, ReplyWriter* reply);
Task<bool> AddAlone(Client* client, Words words, ReplyWriter* reply);  // INCR, DECR, INCRBY, DECRBY.
Task<bool> TtlAlone(Client* client, Words words, ReplyWriter* reply);  // TTL, PTTL.

Task<absl::Status> GetWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> SetWithin(Space* space, Words words, ReplyWriter* reply);  // SETNX, SETEX, PSETEX, GETSET as well.
Task<absl::Status> DelWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> ExistsWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> MgetWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> MsetWithin(Space* space, Words words, ReplyWriter* reply);  // MSETNX as well.
Task<absl::Status> AddWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> AppendWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> StrlenWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> GetdelWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> ExpireWithin(Space* space, Words words,
                                ReplyWriter* reply);  // PEXPIRE, EXPIREAT, PEXPIREAT as well.
Task<absl::Status> PersistWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> TtlWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> TypeWithin(Space* space, Words words, ReplyWriter* reply);

}  // namespace cell::gateway

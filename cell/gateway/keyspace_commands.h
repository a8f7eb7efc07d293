// Commands about all keys of the store.
#pragma once

#include "cell/gateway/command.h"

namespace cell::gateway {

Task<bool> Dbsize(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Keys(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> ScanCommand(Connection* connection, Words words, ReplyWriter* reply);
// ZRANGE ... BYLEX, ZRANGEBYLEX, ZREVRANGEBYLEX, ZLEXCOUNT.
Task<bool> RangeCommand(Connection* connection, Words words, ReplyWriter* reply);

}  // namespace cell::gateway

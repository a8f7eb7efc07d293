// Commands about the connection and the server.
#pragma once

#include "cell/gateway/command.h"

namespace cell::gateway {

Task<bool> Ping(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Auth(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Echo(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Hello(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Quit(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Reset(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Select(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> ClientCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> ConfigCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> CommandCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> Info(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> ExecCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> DiscardCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> WatchCommand(Connection* connection, Words words, ReplyWriter* reply);
Task<bool> UnwatchCommand(Connection* connection, Words words, ReplyWriter* reply);

// Run between MULTI and EXEC.
Task<absl::Status> PingWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> EchoWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> SelectWithin(Space* space, Words words, ReplyWriter* reply);
Task<absl::Status> UnwatchWithin(Space* space, Words words, ReplyWriter* reply);

}  // namespace cell::gateway

// MigrationHandler serves other servers' requests while a region migrates between them and this one.
#pragma once

#include "cell/base/bytes.h"
#include "cell/io/fabric/fabric.h"

namespace cell {

class MigrationHandler {
 public:
  // Writes the reply to a kMigration call to `to` and returns its size.
  virtual size_t ServeMigration(const IncomingCall& call, MutableBytes to) = 0;
  // Ends everything that depends on a peer whose connection has ended.
  virtual void Disconnected(ConnectionId peer) = 0;

 protected:
  ~MigrationHandler() = default;
};

}  // namespace cell

// KeyRouter finds the region that holds an operation's key.
//
// For a Pilaf table the region table names it, by the key's hash. In the tree (thesis, 4.2) the router begins at a
// cached route or at the root and goes from meganode to meganode. Each is searched by its worker or read by this
// client, and either covers the key or leads on. A cached route that was wrong is dropped. If the search fails (a
// meganode has moved, or a split happened meanwhile), the router reads the region table again and starts over from the
// root, without caches, until the deadline.
#pragma once

#include "cell/client/session/session.h"
#include "pilaf/key_hash.h"

namespace cell {

class KeyRouter {
 public:
  // `key` and `table` must outlive it. `table` is null for the tree.
  KeyRouter(Session* session, std::string_view key, const CallContext& context, const std::string* table)
      : session_(session), key_(key), table_(table), context_(context) {
    Begin();
  }

  // Returns the root of the meganode to search next.
  Pointer root() const { return root_; }
  // Returns the connection to its worker, or null if FindConnection must be called first.
  WorkerConnection* worker() const { return holder_.worker; }
  // Returns the same with the version of the table, which decides whether reads there can be trusted.
  const Holder& holder() const { return holder_; }
  bool in_table() const { return table_ != nullptr; }
  // Returns the selector that chooses how this worker is used.
  Selector* selector() const { return worker()->selector(context_.kind); }
  // Returns the table in the last known region table, or null if there is none.
  const HashParts* parts() const;
  // Finds a connection to the worker: connects, reads the region table again, and waits. Returns Unavailable if that
  // does not help, and PermissionDenied if this user may not connect; the message names region and server.
  Task<absl::Status> FindConnection();
  // Reads the region table again to find the holder of the region, after the worker refused a write for a temporary
  // reason. worker() is null if nobody holds it.
  Task<bool> FindHolderAgain(absl::Status refused);
  // Returns why the last worker refused, or OK.
  const absl::Status& refused() const { return refused_; }
  // Returns false once the search has restarted. Nodes must then be read.
  bool may_use_cache() const { return restarts_ == 0; }

  // Follows a worker's answer that leads on. Returns an error only if this never ends.
  absl::Status Follow(const RouteView& route);
  // Returns how long to wait before the meganode is asked again, because a transaction holds what was asked for; 0 if
  // it is not so.
  int64_t TakePauseNs() { return std::exchange(pause_ns_, 0); }
  // Returns whether the last answer was that.
  bool locked() const { return locked_ > 0; }

  // Follows this client's own search of the meganode, which led on: `walk` ended with kElsewhere or kRestart. `cached`
  // says whether the last node came from the cache.
  absl::Status Follow(const Walk& walk, Walk::Step step, bool cached);
  // Reports that the meganode is not as expected.
  absl::Status Restart();
  // Goes to a neighbour that the meganode named.
  absl::Status GoTo(Pointer root);

 private:
  static constexpr int kHopsMax = 1000;
  static constexpr int kMisledMax = 8;
  void Begin();
  absl::Status GoRight(Pointer next);

  Session* session_;
  std::string_view key_;
  const std::string* table_;
  CallContext context_;
  Pointer root_;
  Holder holder_;                                // Holder of the region of root_.
  std::pair<uint32_t, uint64_t> unreachable_{};  // A region and its epoch whose worker did not answer.
  bool from_route_ = false;                      // root_ came from the route cache.
  Pointer cached_node_;                          // root_ came from this cached node; null: it did not come from one.
  int downs_ = 0;                                // How often a route led on since the search began.
  int misled_ = 0;                               // How often the search started over because of cached data.
  int hops_ = 0;
  int restarts_ = 0;           // How often the search started over from a newer region table.
  bool must_refresh_ = false;  // FindConnection must read the region table first.
  absl::Status refused_;
  int locked_ = 0;        // How often in a row the answer was that a transaction holds the key.
  int64_t pause_ns_ = 0;  // For TakePauseNs.
};

}  // namespace cell

// KeyRouter: how an operation gets to the region that holds its key.
//
// In a Pilaf table the region table names it, by the key's hash. In the tree (the thesis, 4.2) it begins at a cached
// route or at the root of the tree and goes from meganode to meganode: each is asked by its server or read by this
// client, and either has the key's place or leads on. A cached route that led astray is dropped. When the search fails
// (a meganode has moved, or a split was overtaken), the router reads the region table again and starts over from the
// root, without caches, until the deadline.
#pragma once

#include "cell/client/session/session.h"
#include "pilaf/key_hash.h"

namespace cell {

class KeyRouter {
 public:
  // `key` and `table` must outlive it. `table`: null for the tree.
  KeyRouter(Session* session, std::string_view key, const CallContext& context, const std::string* table)
      : session_(session), key_(key), table_(table), context_(context) {
    Begin();
  }

  // The root of the meganode to ask next.
  Pointer root() const { return root_; }
  // The connection to its worker; null: Find it first.
  ServerConnection* server() const { return holder_.server; }
  // The same, and by which table: what it takes to trust what is read there.
  const Holder& holder() const { return holder_; }
  // What decides how this worker is asked.
  Selector* selector() const { return table_ == nullptr ? &server()->searches : &server()->lookups; }
  // The table, as the region table had it last; null: there is none.
  const RegionTable::HashParts* parts() const;
  // Connects, asks the region table again, waits. Unavailable: it does not help; the message names region and server.
  Task<absl::Status> Find();
  // The server refused a write, because of something that passes: asks the region table again who holds the region,
  // which may be another by now. server(): null if nobody does.
  Task<bool> FindHolderAgain(absl::Status refused);
  // Why the last server refused; Ok: none did.
  const absl::Status& refused() const { return refused_; }
  // After the search was lost once, nodes must come from servers.
  bool may_use_cache() const { return losses_ == 0; }

  // A server's answer that leads on. An error only when that never ends.
  absl::Status Follow(const RouteView& route);
  // This client's own search of the meganode led on: `walk` ended with kElsewhere or kLost. `cached`: the node that it
  // ended with came from the cache.
  absl::Status Follow(const Walk& walk, Walk::Step step, bool cached);
  // The meganode is not what it was.
  absl::Status Lose();
  // To a neighbour that the meganode named.
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
  Holder holder_;                                // Of the region of root_.
  std::pair<uint32_t, uint64_t> unreachable_{};  // A region, and its epoch, whose server did not answer.
  bool from_route_ = false;                      // root_ is what the route cache said.
  Pointer cached_node_;                          // root_ is what this node in the cache said; null: none did.
  int misled_ = 0;                               // How often the search began again because of what was cached.
  int hops_ = 0;
  int losses_ = 0;
  bool lost_ = false;  // Find must refresh.
  absl::Status refused_;
};

}  // namespace cell

// Connection is one client of the gateway: it takes the bytes that have come, runs the commands, and has the bytes to
// send. It does no I/O with its client itself. Not thread-safe: it belongs to the thread of its gateway.
//
// Pipelining. Commands of one connection run at the same time as far as nobody can tell: a command waits for those
// before it that have one of its keys, unless both only read it; commands about the connection or the whole store wait
// for all. So two commands of a pipeline on different keys may take effect in either order. Replies are in the order of
// the requests.
//
// Transactions. MULTI notes commands, and EXEC runs them in one transaction of Cell, which begins again if it is
// aborted. WATCH notes the stamps of keys. EXEC compares them after it has read the keys in its transaction. If a stamp
// differs, or that transaction is aborted, its reply is null.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cell/base/random.h"
#include "cell/client/client.h"
#include "cell/client/transaction.h"
#include "cell/gateway/command.h"
#include "cell/gateway/cursors.h"
#include "cell/gateway/key_turns.h"
#include "cell/gateway/resp.h"
#include "cell/gateway/space.h"
#include "cell/gateway/users.h"

namespace cell::gateway {

// Counts for all threads of a gateway. Thread-safe.
struct Totals {
  Totals(size_t clients, int64_t idle_seconds, size_t buffer_bytes)
      : connections_max(clients), idle_s(idle_seconds), buffer_bytes_max(buffer_bytes), begun_ns(UnixNs()) {}
  const size_t connections_max;
  const int64_t idle_s;                      // After which connections are closed; 0: never.
  const size_t buffer_bytes_max;             // The limit of buffered_bytes.
  const int64_t begun_ns;                    // When the gateway began, by UnixNs.
  std::atomic<uint64_t> connections = 0;     // The open ones.
  std::atomic<uint64_t> connected = 0;       // All connections so far.
  std::atomic<uint64_t> commands = 0;        // All commands that have begun.
  std::atomic<uint64_t> buffered_bytes = 0;  // The sum of Connection::bytes().
  std::atomic<uint64_t> next_id = 1;         // For the next connection.
  Cursors cursors;
};

class Connection;

// Belongs to one thread, whose connections share it.
struct Shared {
  Totals* totals;
  Client* anybody;          // Serves clients that have not authenticated. Null: they must.
  std::vector<User> users;  // Empty: there is no AUTH.
  // Connections of which a command has ended since their last Advance, each once.
  std::vector<Connection*> ready = {};
  // Connections that wait until fewer commands of all connections run, each once.
  std::deque<Connection*> blocked = {};
  size_t weight = 0;  // The weight of the commands that run.
  KeyTurns turns = {};
};

// Holds the commands between MULTI and EXEC.
struct Multi {
  std::vector<std::vector<std::string>> requests = {};
  size_t bytes = 0;
  bool wrong = false;  // A command was refused: EXEC runs nothing.
};

class Connection {
 public:
  Connection(Shared* shared, uint64_t id, std::string peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // REQUIRES: !busy() && !ready().
  ~Connection();

  // Takes bytes that have come. Advance runs what they ask for.
  void Receive(std::string_view bytes) { parser_.Feed(bytes); }
  // Appends the replies that are there to out(), and begins the commands that can begin.
  void Advance();
  // Returns the bytes to send. The caller removes those that it has sent.
  std::string* out() { return &out_; }
  // Returns whether more bytes should be read now: not while many commands wait, or replies are not taken.
  bool takes_input() const;
  // Returns whether Advance would do something once out() is empty.
  bool has_more() const { return stalled_; }
  // Returns whether a command is in flight. The connection must not be destroyed then.
  bool busy() const { return in_flight_ > 0; }
  // Returns whether it is in Shared::ready.
  bool ready() const { return ready_; }
  // Returns whether it should be closed once out() is empty.
  bool should_close() const { return closes_ && waiting_.empty(); }
  // Returns how many bytes of requests and replies it holds.
  size_t bytes() const { return parser_.buffered() + held_bytes_ + noted_bytes_ + out_.size(); }

  // Answers with this error and ends. Commands that have not begun are dropped.
  void Refuse(std::string_view error);
  // Forgets the bytes of requests that are not whole.
  void DropInput() { parser_ = RequestParser(); }
  // Drops the commands that have not begun, and takes no more.
  void Abandon();

  // For commands about the connection.
  Shared* shared() { return shared_; }
  Client* client() const { return client_; }  // Null: it has not authenticated.
  uint64_t id() const { return id_; }
  const std::string& peer() const { return peer_; }
  std::string* name() { return &name_; }
  int version() const { return version_; }
  void set_version(int version) { version_ = version; }
  // Returns when it was accepted, or has lost its user, by Client::NowNs.
  int64_t unknown_since_ns() const { return unknown_since_ns_; }
  void set_unknown_since_ns(int64_t now_ns) { unknown_since_ns_ = now_ns; }
  void BecomeUser(const User& user);
  void Reset();
  void Quit();
  // MULTI and the commands up to EXEC are noted as soon as they are parsed. EXEC runs them when its turn comes.
  Task<bool> Exec(ReplyWriter* reply);
  Task<bool> Watch(Words keys, ReplyWriter* reply);
  void Unwatch();

 private:
  // A request, from when it is parsed until its reply is in out_.
  struct Request {
    const Command* command = nullptr;  // Null: its reply was there from the beginning.
    std::vector<std::string> words = {};
    size_t word_bytes = 0;
    std::string reply = {};
    bool begun = false, done = false;
    std::optional<ReplyWriter> writer = {};
    std::optional<Task<bool>> task = {};
  };
  // How many commands in flight read and write keys of a slot.
  struct KeyUse {
    uint16_t readers = 0, writers = 0;
  };
  static constexpr size_t kSlots = 1024;
  static constexpr size_t kThreadWeightLow = 448;  // Below it, connections that were blocked go on.

  void TakeReplies();
  void ParseAll();
  std::unique_ptr<Request> NewRequest();
  void DropNotBegun();
  // Finds the command, and checks what can be checked before it runs. Replies if it is wrong, or was noted for EXEC.
  void Classify(Request* request);
  void NoteForExec(Request* request);
  void BeginAll();
  bool MayBegin(const Request& request);
  // Returns how many values of up to 1 MB a command may hold while it runs.
  static size_t WeightOf(const Request& request);
  static bool RunsAlone(const Request& request);
  static size_t SlotOf(const std::string& key) { return std::hash<std::string>()(key) % kSlots; }
  void UseKeys(const Request& request, bool begins);
  Task<bool> Run(Request* request);
  Task<bool> RunOnPair(Words words, ReplyWriter* reply);
  // Runs commands in transactions until one commits, or cannot. With `watched` it tries only once, and its reply is
  // null if one of those keys has changed. The replies of all commands go to `reply` once they count.
  Task<bool> Transact(std::vector<Words> commands, std::map<std::string, uint64_t> watched, bool as_array,
                      ReplyWriter* reply);
  // Returns Aborted if a watched key has changed before the transaction reads it.
  Task<absl::Status> CheckWatched(const std::map<std::string, uint64_t>* watched, Transaction* transaction);
  Multi TakeNoted();  // For an EXEC whose turn has come.
  // Waits before something is tried again, a little longer each time. Returns false if it is too late for that.
  Task<bool> Pause(int tries, int64_t until_ns);

  Shared* const shared_;
  const uint64_t id_;
  const std::string peer_;
  Client* client_;
  int64_t unknown_since_ns_ = 0;
  std::string name_;
  int version_ = 2;  // The version of the protocol.
  Random random_;
  RequestParser parser_;
  std::deque<std::unique_ptr<Request>> waiting_;  // In the order of the requests; the first ones may be done.
  std::vector<std::unique_ptr<Request>> free_;    // For reuse.
  size_t begun_ = 0;                              // How many of waiting_, from the front, have begun.
  size_t weight_ = 0;                             // The weight of all commands in flight.
  size_t in_flight_ = 0;                          // How many commands have begun and are not done.
  bool exclusive_ = false;                        // The one in flight allows no other.
  // Counts the commands in flight by the hash of their keys, but not one that is exclusive_. Keys that share a slot
  // only make a command wait.
  std::array<KeyUse, kSlots> in_use_ = {};
  size_t held_bytes_ = 0;   // Words and replies of waiting_.
  size_t noted_bytes_ = 0;  // Words in multi_ and to_run_.
  bool advancing_ = false;  // Advance is running.
  bool blocked_ = false;    // It is in Shared::blocked.
  bool ready_ = false;      // It is in Shared::ready.
  bool stalled_ = false;    // Requests wait because out_ is long.
  bool closes_ = false;
  std::string out_;
  std::optional<Multi> multi_;               // Being noted.
  std::deque<Multi> to_run_;                 // For each EXEC that was parsed and has not run, in order.
  std::map<std::string, uint64_t> watched_;  // Stamps of keys; 0: the key was absent.
  bool watch_failed_ = false;                // The next EXEC must not run.

  friend class ReadyList;
};

class ReadyList {
 public:
  static void Add(Connection* connection) {
    if (!std::exchange(connection->ready_, true)) connection->shared()->ready.push_back(connection);
  }
  // Goes on with commands whose turn has come. Then calls `use` for each connection that is ready, and makes it unready
  // before. Returns whether there was anything to do.
  template <typename Use>
  static bool Take(Shared* shared, const Use& use) {
    const bool resumed = shared->turns.Resume();
    for (size_t left = shared->blocked.size(); left > 0 && shared->weight < Connection::kThreadWeightLow; --left) {
      Connection* const connection = shared->blocked.front();
      shared->blocked.pop_front();
      connection->blocked_ = false;
      if (!std::exchange(connection->ready_, true)) shared->ready.push_back(connection);
    }
    if (shared->ready.empty()) return resumed;
    std::vector<Connection*> ready;
    ready.swap(shared->ready);
    for (Connection* connection : ready) {
      connection->ready_ = false;
      use(connection);
    }
    return true;
  }
};

}  // namespace cell::gateway

// TcpListener is the thread of a server process that is not a worker. It accepts connections at one port, greets them,
// and answers one-sided reads. It passes connections for calls to the worker once they are greeted.
//
// After the handshake (handshake.h) a connection for reads carries, pipelined:
//   client  ReadRequest{id, pointer, bytes}                server  ReadAnswer{id, bytes, code}, bytes
// A read is answered from the region pool, with whole 8-byte words, whatever the worker writes meanwhile. A read that
// is not within a region gets kReadOutside and no bytes. Answers come in the order of the requests.
//
// The cost of strangers is bounded. Each takes a socket and about half a KB until it has sent something, and with TLS
// then some tens of KB. There are at most GreetingMax() at once (descriptors.h), fewer if descriptors run out; of
// the host that has most the oldest is disconnected first, and each after the handshake's time. Of the TLS handshakes,
// which take CPU time, only kHandshakesAtOnce go a step further before reads are answered again. For a connection that
// has greeted to read, at most kOutBytesMax of answers are kept; until it takes them its requests are not read.
//
// Thread-safety: only one other thread, the worker, may call the public functions.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/base/clock.h"
#include "cell/io/fabric/user_connections.h"
#include "cell/io/memory/region_pool.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/byte_stream.h"
#include "cell/io/net/credentials.h"
#include "cell/io/net/fd.h"
#include "cell/io/net/greeting_queue.h"
#include "cell/io/net/handshake.h"
#include "cell/io/net/limited_warnings.h"

namespace cell {

struct ReadRequest {
  uint64_t id;
  uint64_t pointer;
  uint32_t bytes;
  uint32_t reserved;
};
struct ReadAnswer {
  uint64_t id;
  uint32_t bytes;  // Bytes that follow.
  uint32_t code;
};
static_assert(sizeof(ReadRequest) == 24 && sizeof(ReadAnswer) == 16);
inline constexpr uint32_t kReadOk = 0;
inline constexpr uint32_t kReadOutside = 1;
inline constexpr uint32_t kReadDenied = 2;

class TcpListener {
 public:
  static constexpr size_t kOutBytesMax = size_t{256} << 10;
  static constexpr int kHandshakesAtOnce = 2;

  struct Options {
    std::shared_ptr<CredentialSource> credentials;
    size_t readers_max;
    int64_t handshake_ns;
  };

  // Starts the thread. Returns AlreadyExists if the port is in use. `clock` measures the time that strangers have to
  // greet; it must outlive the listener.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Start(const std::string& host_port, Options options,
                                                            std::shared_ptr<const RegionPool> pool, const Clock* clock);
  ~TcpListener();

  // Returns HOST:PORT, with the actual port.
  const std::string& address() const { return address_; }
  // Returns a descriptor that is readable when TakeCallers has connections.
  int callers_fd() const { return callers_ready_.get(); }
  struct Caller {
    ByteStream stream;
    Identity identity;
    ByteQueue in;  // What has come of its first requests.
  };
  // Returns greeted connections for calls.
  std::vector<Caller> TakeCallers();

 private:
  struct Guest;

  TcpListener(Fd listener, std::string address, Options options, std::shared_ptr<const RegionPool> pool,
              const Clock* clock);

  void Run();
  void Accept();
  void Serve(size_t index, uint32_t events);
  enum class Step { kClose, kWait, kGoOn };
  Step Begin(Guest* guest);
  Step Secure(size_t index);
  bool Greet(Guest* guest);
  bool AnswerReads(Guest* guest);
  void FillAnswers(Guest* guest);
  bool WatchAgain(size_t index);
  bool WatchFor(size_t index, uint32_t events);
  void CloseSilentGuests();
  bool CloseOneSilent();
  void HasGreeted(const Guest& guest);
  void Close(size_t index);
  void Warn(const std::string& what);
  void Warn(const Guest& guest, const std::string& what);

  const std::string address_;
  const Options options_;
  const std::shared_ptr<const RegionPool> pool_;
  const Clock* const clock_;
  Fd listener_, epoll_, stop_, callers_ready_;

  std::mutex mutex_;
  std::vector<Caller> callers_;

  // Used only by the thread.
  std::vector<std::byte> scratch_;
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<size_t> free_;
  std::vector<size_t> closed_;  // Slots that are free once no event of their former guests can come any more.
  GreetingQueue greeting_;
  std::map<uint64_t, size_t> slots_;  // Of the guests in greeting_, by number.
  size_t readers_ = 0;
  UserConnections reading_{options_.readers_max};
  uint64_t accepted_ = 0;
  int handshakes_left_ = 0;      // In this turn.
  bool met_strangers_ = false;   // In this turn: accepted some, or had to do with some.
  int64_t listen_again_ns_ = 0;  // If not 0, the listener pauses until then.
  LimitedWarnings warnings_;
  std::thread thread_;
};

}  // namespace cell

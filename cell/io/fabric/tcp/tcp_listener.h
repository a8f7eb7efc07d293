// TcpListener: the thread of a server process that is not a worker. It takes connections at one port, greets them, and
// answers one-sided reads; connections for calls it hands to the worker once they are greeted.
//
// After the handshake (handshake.h) a connection for reads carries, pipelined:
//   client  ReadRequest{id, pointer, bytes}                server  ReadAnswer{id, bytes, code}, bytes
// A read is answered from the region pool, 8-byte words whole, whatever the worker writes meanwhile. One that is not
// within a region gets kOutside and no bytes. Answers come in the order of the requests.
//
// What strangers can cost: a socket and about 100 bytes each until they have greeted; at most GreetingMax() at once
// (descriptors.h), fewer when descriptors run out, the oldest leaving first, and each for the handshake's time. Who has greeted to read holds at most kOutBytesMax of
// answers that it does not take, and then is not listened to until it does.
//
// Thread-safety: the public functions are for one other thread, the worker.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/io/memory/region_pool.h"
#include "cell/io/net/byte_queue.h"
#include "cell/io/net/fd.h"
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
  uint32_t bytes;  // That follow.
  uint32_t code;
};
static_assert(sizeof(ReadRequest) == 24 && sizeof(ReadAnswer) == 16);
inline constexpr uint32_t kReadOk = 0;
inline constexpr uint32_t kReadOutside = 1;

class TcpListener {
 public:
  static constexpr size_t kOutBytesMax = size_t{256} << 10;

  struct Options {
    std::string secret;
    size_t readers_max;
    int64_t handshake_ns;
  };

  // AlreadyExists: something listens there already.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Start(const std::string& host_port, Options options,
                                                            std::shared_ptr<const RegionPool> pool);
  ~TcpListener();

  // HOST:PORT, with the port that was got.
  const std::string& address() const { return address_; }
  // Readable when TakeCallers has some.
  int callers_fd() const { return callers_ready_.get(); }
  // Greeted connections for calls.
  std::vector<Fd> TakeCallers();

 private:
  struct Guest;

  TcpListener(Fd listener, std::string address, Options options, std::shared_ptr<const RegionPool> pool);

  void Run();
  void Accept();
  void Serve(size_t index, uint32_t events);
  bool Greet(Guest* guest);
  bool AnswerReads(Guest* guest);
  void FillAnswers(Guest* guest);
  bool WatchAgain(size_t index);
  void CloseSilentGuests();
  bool CloseOldestSilent();
  void Close(size_t index);
  void Warn(const std::string& what);

  const std::string address_;
  const Options options_;
  const std::shared_ptr<const RegionPool> pool_;
  Fd listener_, epoll_, stop_, callers_ready_;

  std::mutex mutex_;
  std::vector<Fd> callers_;

  // The thread's own.
  std::vector<std::byte> scratch_;
  std::vector<std::unique_ptr<Guest>> guests_;
  std::vector<size_t> free_;
  std::vector<size_t> closed_;                        // Free once no event for who was there can come any more.
  std::deque<std::pair<size_t, uint64_t>> greeting_;  // Slot and number of guests, oldest first; some are gone.
  size_t silent_ = 0;                                 // Of them those that are there and have not greeted.
  size_t readers_ = 0;
  uint64_t accepted_ = 0;
  int64_t listen_again_ns_ = 0;  // Not 0: the listener rests until then.
  LimitedWarnings warnings_;
  std::thread thread_;
};

}  // namespace cell

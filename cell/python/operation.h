// How operations of the C API are run for Python: blocking, or for a future of an event loop. Internal to cell/python.
//
// A connection is a cell_client with what Python needs around it. Threads take turns with it: a blocking operation
// keeps the connection to itself, without the interpreter's lock (GIL), until it ends.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cell/c/cell.h"

namespace cell::python {

namespace py = pybind11;

// Releases the interpreter's lock (GIL) during its lifetime. At the end of the process, a thread that wants it back
// sleeps for ever: Python would end it in the middle of C++ code.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked();
  // Runs the handlers of signals that have come, if this is the main thread. Returns true if one has raised: the
  // exception is set.
  bool HandlerRaises();

 private:
  PyThreadState* state_;
};

// How the outcome of an operation is returned to Python.
enum class Result {
  kNone,
  kValue,      // bytes, or None.
  kStamped,    // Stamped (results.py), or None.
  kFound,      // bool.
  kValues,     // A list of bytes and None.
  kPairs,      // A list of (key, value).
  kKeys,       // A list of keys.
  kWritten,    // Written.
  kApplied,    // Applied.
  kBytes,      // bytes.
  kNumber,     // int.
  kTimeLeft,   // Seconds as a float, infinite for a pair that does not expire, or None.
  kTable,      // A Table.
  kSnapshot,   // A Snapshot.
  kCommitted,  // The stamp.
  kOutcome,    // The stamp, or None.
};

class Connection;

// An object that belongs to a connection, and keeps it.
template <typename T>
struct Handle {
  Handle(std::shared_ptr<Connection> its_connection, T* its_object)
      : connection(std::move(its_connection)), object(its_object) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  const std::shared_ptr<Connection> connection;
  T* const object;
};
using Table = Handle<cell_table>;
using Scan = Handle<cell_scan>;
using Snapshot = Handle<cell_snapshot>;
using Transaction = Handle<cell_transaction>;

// An asyncio future that waits for an operation.
struct Awaiting {
  Connection* connection;
  Result result;
  cell_future* operation;
  PyObject* future;  // Owned.
};

inline void FreeObject(cell_future* future) { cell_future_free(future); }
inline void FreeObject(cell_table* table) { cell_table_free(table); }
inline void FreeObject(cell_scan* scan) { cell_scan_free(scan); }
inline void FreeObject(cell_snapshot* snapshot) { cell_snapshot_free(snapshot); }
inline void FreeObject(cell_transaction* transaction) { cell_transaction_free(transaction); }

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Blocks, without the GIL. REQUIRES: the GIL is held. Raises.
  explicit Connection(const py::dict& options);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    try {
      Close();
    } catch (py::error_already_set& error) {  // A signal's handler has raised.
      error.discard_as_unraisable("cell: the end of a client");
    }
    if (client_ == nullptr) FreeNow();
  }

  // Runs an operation. `begin(client)` begins it, without the GIL. If `future` is None, blocks, and returns the result.
  // Otherwise returns None, and the future gets the result from Turn. Raises. REQUIRES: the GIL is held.
  template <typename Begin>
  py::object Run(Result result, const py::object& future, const Begin& begin) {
    if (!future.is_none()) {
      const Lock turn = TakeTurn();
      Await(result, begin(client_), future);
      return py::none();
    }
    cell_future* operation = nullptr;
    {
      Unlocked unlocked;
      Lock turn(MutexOfThisProcess(), std::defer_lock);
      if (WaitForTurn(&turn, &unlocked)) {
        operation = begin(client_);
        if (!WaitFor(operation, &unlocked)) operation = nullptr;
      }
    }
    if (operation == nullptr) throw py::error_already_set();
    return TakeResult(result, operation);
  }
  // Calls `call(client)`, which does not block, in this thread's turn, for which this may wait. REQUIRES: the GIL is
  // held.
  template <typename Call>
  auto Now(const Call& call) {
    Lock turn(MutexOfThisProcess(), std::defer_lock);
    TakeTurnNow(&turn);
    return call(client_);
  }

  // For event loops (cell_wait_fd): does what can be done. Returns the seconds until the next turn is due, 0 if that is
  // at once; what has ended for futures, as a list of future, result, future, result and so on; and a list of what
  // needs more: (future, error's name or None, result or message, class or None). It runs no code of Python, which
  // could let a thread end in the middle of it.
  py::tuple Turn();
  // Ends all operations, with Cancelled, or MaybeApplied for writes that were sent. Returns those for futures, as Turn
  // does. REQUIRES: the GIL is held.
  py::tuple Close();
  // Raises Cancelled if the client is closed, or belongs to the parent process.
  void CheckUsable() const;
  bool closed() const { return client_ == nullptr; }
  // Frees an object by `free(object)` in the next turn of any thread: its handle may end at any time, where nobody can
  // wait for a turn. Thread-safe.
  template <typename T>
  void FreeLater(T* object) {
    FreeLater([](void* freed) { FreeObject(static_cast<T*>(freed)); }, object);
  }

 private:
  // A signal's handler may use the connection while its thread is in an operation.
  using Lock = std::unique_lock<std::recursive_timed_mutex>;
  struct ToFree {
    void (*free)(void* object);
    void* object;
  };

  // Returns this thread's turn, or raises if another thread has it. It cannot wait for that one, which may wait for the
  // GIL.
  Lock TakeTurn();
  // Returns the mutex, or another one in a child process, where threads that are not there may have locked it.
  std::recursive_timed_mutex& MutexOfThisProcess() { return inherited() ? child_mutex_ : mutex_; }
  bool inherited() const;
  void FreeLater(void (*free)(void* object), void* object);
  void FreeNow();
  // Locks `turn`. Returns false if a signal's handler has raised meanwhile, or at the end of the process.
  bool WaitForTurn(Lock* turn, Unlocked* unlocked);
  // The same with the GIL. Raises.
  void TakeTurnNow(Lock* turn);
  // Waits until the operation is done. Returns false, and frees it, if a signal's handler has raised meanwhile.
  bool WaitFor(cell_future* operation, Unlocked* unlocked);
  void Await(Result result, cell_future* operation, const py::object& future);
  // Notes an operation that has ended, for which a future waits. Runs nothing of Python.
  static void Note(cell_future* operation, void* awaiting);
  // Returns `first`, and what has ended for futures, and frees that.
  py::tuple TakeEnded(const py::object& first);
  // Returns the outcome, and frees the operation. Raises its error.
  py::object TakeResult(Result result, cell_future* operation);
  // Sets `*made` to the class of results.py whose arguments are returned, or leaves it.
  py::object ToPython(Result result, cell_future* operation, py::object* made);

  const int forks_;  // When it was opened.
  cell_client* client_ = nullptr;
  std::recursive_timed_mutex mutex_, child_mutex_;
  std::deque<std::unique_ptr<Awaiting>> ended_;  // Whose futures are to be told.
  std::mutex to_free_mutex_;
  std::vector<ToFree> to_free_;
};

template <typename T>
Handle<T>::~Handle() {
  connection->FreeLater(object);
}

// The bytes of a key or a value: of bytes, of any object with a buffer, or of a str in UTF-8. The object must outlive
// it. Destroyed with the GIL held.
class Bytes {
 public:
  // Raises TypeError.
  explicit Bytes(const py::handle& object);
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  Bytes(Bytes&& other) noexcept : bytes_(other.bytes_), buffer_(other.buffer_) { other.buffer_.obj = nullptr; }
  ~Bytes() { PyBuffer_Release(&buffer_); }
  operator cell_bytes() const { return bytes_; }

 private:
  cell_bytes bytes_{};
  Py_buffer buffer_{};
};

// Returns None as bytes at NULL, which mean the end of all keys.
inline std::optional<Bytes> OptionalBytes(const py::object& object) {
  return object.is_none() ? std::nullopt : std::optional<Bytes>(std::in_place, object);
}
inline cell_bytes OrEnd(const std::optional<Bytes>& bytes) {
  return bytes.has_value() ? cell_bytes(*bytes) : cell_make_bytes(nullptr, 0);
}

// Returns seconds as microseconds, at least 1 and at most INT64_MAX. Raises ValueError if they are not above 0, and
// TypeError if they are no number.
int64_t MicrosOf(const py::handle& seconds, const char* what);
// Raises ValueError if it is not from 0 to 2^64 - 1, and TypeError if it is no integer.
uint64_t UnsignedOf(const py::handle& number, const char* what);
// Options of a call: a timeout in seconds or None, and the name of a path or None. Raises.
cell_call CallOf(const py::object& timeout, const py::object& path);

// Imports what this module uses of the package. Called once, before anything else.
void Import();

// Raises the exception of a code (errors.py).
[[noreturn]] void Raise(cell_code code, const char* message);

}  // namespace cell::python

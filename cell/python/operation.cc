#include "cell/python/operation.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>

#include "cell/base/forks.h"
#include "fmt/format.h"

namespace cell::python {
namespace {

// For this long a blocked thread does not look for signals.
constexpr std::chrono::milliseconds kSignals{20};
// Turn polls so often before it leaves its thread to others.
constexpr int kPollsATurn = 64;

py::bytes ToBytes(cell_bytes bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }

// Classes of results.py, and a function of errors.py. They live as long as the process.
struct Imported {
  py::object stamped, written, applied, make_error;
};
Imported* imported = nullptr;

// The end of the process: threads that take the GIL now, and whether others may still do so.
std::atomic<int> taking = 0;
std::atomic<bool> exiting = false;
std::thread::id exiting_thread;
unsigned long main_thread = 0;

void TakeGil(PyThreadState* state) {
  ++taking;
  if (exiting && std::this_thread::get_id() != exiting_thread) {
    --taking;
    while (true) ::pause();
  }
  PyEval_RestoreThread(state);
  --taking;
}

// Runs by atexit, before the interpreter ends.
void BeginExit() {
  exiting_thread = std::this_thread::get_id();
  exiting = true;
  const py::gil_scoped_release unlocked;
  while (taking > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Returns the exception of a code: an instance of a class of errors.py.
py::object ExceptionOf(cell_code code, const char* message) {
  return imported->make_error(cell_code_name(code), message);
}

py::object ListOf(cell_future* operation, Result result) {
  const size_t count = cell_pairs(operation);
  py::list list(count);
  for (size_t i = 0; i < count; ++i) {
    const cell_pair pair = cell_pair_at(operation, i);
    if (result == Result::kPairs) {
      list[i] = py::make_tuple(ToBytes(pair.key), ToBytes(pair.value));
    } else if (result == Result::kKeys) {
      list[i] = ToBytes(pair.key);
    } else if (pair.found != 0) {
      list[i] = ToBytes(pair.value);
    } else {
      list[i] = py::none();
    }
  }
  return list;
}

}  // namespace

py::object Connection::ToPython(Result result, cell_future* operation, py::object* made) {
  const bool found = cell_found(operation) != 0, applied = cell_applied(operation) != 0;
  const std::shared_ptr<Connection> self = weak_from_this().lock();
  switch (result) {
    case Result::kNone:
      break;
    case Result::kValue:
      if (found) return ToBytes(cell_value(operation));
      break;
    case Result::kStamped:
      if (!found) break;
      *made = imported->stamped;
      return py::make_tuple(ToBytes(cell_value(operation)), cell_stamp(operation));
    case Result::kFound:
      return py::bool_(found);
    case Result::kValues:
    case Result::kPairs:
    case Result::kKeys:
      return ListOf(operation, result);
    case Result::kWritten:
      *made = imported->written;
      return py::make_tuple(applied, found, cell_stamp(operation));
    case Result::kApplied:
      *made = imported->applied;
      return py::make_tuple(ToBytes(cell_value(operation)), applied, found, cell_stamp(operation));
    case Result::kBytes:
      return ToBytes(cell_value(operation));
    case Result::kNumber:
      return py::int_(cell_number(operation));
    case Result::kTimeLeft: {
      if (!found) break;
      const uint64_t left_ns = cell_number(operation);
      const bool never = left_ns == static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return py::float_(never ? std::numeric_limits<double>::infinity() : static_cast<double>(left_ns) / 1e9);
    }
    case Result::kTable:
      if (self == nullptr) break;  // Nobody has the client any more.
      return py::cast(std::make_unique<Table>(self, cell_future_table(operation)));
    case Result::kSnapshot:
      if (self == nullptr) break;
      return py::cast(std::make_unique<Snapshot>(self, cell_future_snapshot(operation)));
    case Result::kCommitted:
      return py::int_(cell_stamp(operation));
    case Result::kOutcome:
      if (found) return py::int_(cell_stamp(operation));
      break;
  }
  return py::none();
}

Unlocked::~Unlocked() { TakeGil(state_); }

bool Unlocked::HandlerRaises() {
  if (PyThread_get_thread_ident() != main_thread) return false;  // Others run no handlers.
  TakeGil(state_);
  const bool raised = PyErr_CheckSignals() != 0;
  state_ = PyEval_SaveThread();
  return raised;
}

void Import() {
  cell_log_to_standard_error();  // Standard output is the program's.
  main_thread = py::cast<unsigned long>(py::module_::import("threading").attr("main_thread")().attr("ident"));
  py::module_::import("atexit").attr("register")(py::cpp_function(&BeginExit));
  ::pthread_atfork(nullptr, nullptr, [] { main_thread = PyThread_get_thread_ident(); });
  const py::module_ results = py::module_::import("cell.results"), errors = py::module_::import("cell.errors");
  imported =
      new Imported{results.attr("Stamped"), results.attr("Written"), results.attr("Applied"), errors.attr("make")};
}

void Raise(cell_code code, const char* message) {
  const py::object exception = ExceptionOf(code, message);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

Bytes::Bytes(const py::handle& object) {
  if (PyBytes_Check(object.ptr())) {
    bytes_ = cell_make_bytes(PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr())));
    return;
  }
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
    if (text == nullptr) throw py::error_already_set();
    bytes_ = cell_make_bytes(text, static_cast<size_t>(size));
    return;
  }
  if (!PyObject_CheckBuffer(object.ptr())) {
    throw py::type_error("keys and values are bytes, or str for its UTF-8, not " +
                         std::string(Py_TYPE(object.ptr())->tp_name));
  }
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) {
    PyErr_Clear();
    throw py::type_error("the bytes of a key or a value lie one behind the other, not with gaps");
  }
  bytes_ = cell_make_bytes(buffer_.len == 0 ? "" : buffer_.buf, static_cast<size_t>(buffer_.len));
}

uint64_t UnsignedOf(const py::handle& number, const char* what) {
  const py::object integer = py::reinterpret_steal<py::object>(PyNumber_Index(number.ptr()));
  if (!integer) throw py::error_already_set();
  const uint64_t value = PyLong_AsUnsignedLongLong(integer.ptr());
  if (PyErr_Occurred() == nullptr) return value;
  PyErr_Clear();
  throw py::value_error(std::string(what) + " is not from 0 to 2^64 - 1");
}

int64_t MicrosOf(const py::handle& given, const char* what) {
  const double seconds = PyFloat_AsDouble(given.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (!(seconds > 0)) throw py::value_error(std::string(what) + " is not above 0");
  const double micros = std::ceil(seconds * 1e6);
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  return micros >= static_cast<double>(kMost) ? kMost : static_cast<int64_t>(micros);
}

cell_call CallOf(const py::object& timeout, const py::object& path) {
  cell_call call{};
  call.size = sizeof(call);
  if (!timeout.is_none()) call.timeout_us = MicrosOf(timeout, "timeout");
  if (path.is_none()) return call;
  if (!PyUnicode_Check(path.ptr())) throw py::type_error("a path is server, client or hybrid");
  const auto name = py::cast<std::string>(path);
  if (name == "server") {
    call.path = CELL_PATH_SERVER;
  } else if (name == "client") {
    call.path = CELL_PATH_CLIENT;
  } else if (name == "hybrid") {
    call.path = CELL_PATH_HYBRID;
  } else {
    throw py::value_error("there is no path \"" + name + "\": use server, client or hybrid");
  }
  return call;
}

Connection::Connection(const py::dict& options) : forks_(cell::Forks()) {
  cell_options* const made = cell_options_new();
  const std::unique_ptr<cell_options, decltype(&cell_options_free)> owned(made, &cell_options_free);
  for (const auto& [name, value] : options) {
    const auto text = py::cast<std::string>(name), given = py::cast<std::string>(py::str(value));
    const bool whole = text.find('\0') == std::string::npos && given.find('\0') == std::string::npos;
    const cell_code code = whole ? cell_options_set(made, text.c_str(), given.c_str()) : CELL_INVALID_ARGUMENT;
    if (code == CELL_NOT_FOUND) throw py::type_error(fmt::format("there is no option {}", text));
    if (code != CELL_OK) throw py::value_error(fmt::format("option {} cannot be \"{}\"", text, given));
  }
  {
    const Unlocked unlocked;
    client_ = cell_open(made);
  }
  if (const cell_code code = cell_client_code(client_); code != CELL_OK) {
    const std::string message = cell_client_message(client_);
    cell_close(std::exchange(client_, nullptr));
    Raise(code, message.c_str());
  }
}

bool Connection::inherited() const { return forks_ != cell::Forks(); }

Connection::Lock Connection::TakeTurn() {
  Lock turn(MutexOfThisProcess(), std::try_to_lock);
  if (!turn.owns_lock()) {
    throw std::runtime_error("another thread uses the client: each event loop needs a client of its own");
  }
  FreeNow();
  return turn;
}

void Connection::FreeLater(void (*free)(void* object), void* object) {
  if (inherited() || object == nullptr) return;
  const std::lock_guard lock(to_free_mutex_);
  to_free_.push_back({free, object});
}

void Connection::FreeNow() {
  if (inherited()) return;
  std::vector<ToFree> now;
  {
    const std::lock_guard lock(to_free_mutex_);
    now.swap(to_free_);
  }
  for (const ToFree& one : now) one.free(one.object);
}

bool Connection::WaitForTurn(Lock* turn, Unlocked* unlocked) {
  while (!turn->try_lock_for(kSignals)) {
    // At the end of the process a thread that has the turn may not go on.
    if (unlocked->HandlerRaises() || exiting) return false;
  }
  FreeNow();
  return true;
}

void Connection::TakeTurnNow(Lock* turn) {
  if (turn->try_lock()) return FreeNow();
  bool mine = false;
  {
    Unlocked unlocked;
    mine = WaitForTurn(turn, &unlocked);
  }
  if (mine) return;
  if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, "the process ends");
  throw py::error_already_set();
}

bool Connection::WaitFor(cell_future* operation, Unlocked* unlocked) {
  while (cell_done(operation) == 0) {
    cell_poll(client_, std::chrono::microseconds(kSignals).count());
    if (cell_done(operation) == 0 && unlocked->HandlerRaises()) {
      cell_future_free(operation);
      return false;
    }
  }
  return true;
}

void Connection::Await(Result result, cell_future* operation, const py::object& future) {
  auto* const awaiting = new Awaiting{this, result, operation, py::object(future).release().ptr()};
  if (cell_done(operation) != 0) return Note(operation, awaiting);  // A closed client calls nobody.
  cell_on_done(operation, &Connection::Note, awaiting);
}

void Connection::Note(cell_future*, void* context) {
  std::unique_ptr<Awaiting> awaiting(static_cast<Awaiting*>(context));
  awaiting->connection->ended_.push_back(std::move(awaiting));
}

py::tuple Connection::TakeEnded(const py::object& first) {
  py::list results, others;
  while (!ended_.empty()) {
    const std::unique_ptr<Awaiting> one = std::move(ended_.front());
    ended_.pop_front();
    const auto future = py::reinterpret_steal<py::object>(one->future);
    py::object made = py::none();
    if (const cell_code code = cell_future_code(one->operation); code != CELL_OK) {
      others.append(py::make_tuple(future, cell_code_name(code), cell_message(one->operation), made));
    } else {
      const py::object result = ToPython(one->result, one->operation, &made);
      if (made.is_none()) {
        results.append(future);
        results.append(result);
      } else {
        others.append(py::make_tuple(future, py::none(), result, made));
      }
    }
    FreeLater(one->operation);
  }
  return py::make_tuple(first, results, others);
}

py::object Connection::TakeResult(Result result, cell_future* operation) {
  struct Owned {  // The result may be read without a turn, once it is there; freeing it needs one.
    ~Owned() { connection->FreeLater(operation); }
    Connection* connection;
    cell_future* operation;
  };
  const Owned owned{this, operation};
  if (const cell_code code = cell_future_code(operation); code != CELL_OK) Raise(code, cell_message(operation));
  py::object made = py::none();
  py::object value = ToPython(result, operation, &made);
  return made.is_none() ? value : made(*py::reinterpret_borrow<py::tuple>(value));
}

py::tuple Connection::Turn() {
  double seconds = 0;
  {
    const Lock turn = TakeTurn();
    for (int polls = 0; polls < kPollsATurn && seconds == 0; ++polls) {
      cell_poll(client_, 0);
      seconds = static_cast<double>(cell_begin_wait(client_)) / 1e6;
    }
  }
  return TakeEnded(py::float_(seconds));
}

void Connection::CheckUsable() const {
  if (client_ == nullptr) Raise(CELL_CANCELLED, "the client is closed");
  if (inherited()) Raise(CELL_CANCELLED, "the client belongs to the parent process");
}

py::tuple Connection::Close() {
  if (client_ == nullptr) return TakeEnded(py::none());
  if (inherited()) {
    client_ = nullptr;  // The parent's.
    return TakeEnded(py::none());
  }
  bool raised = false;
  {
    Unlocked unlocked;
    Lock turn(mutex_, std::defer_lock);
    raised = !WaitForTurn(&turn, &unlocked);
    if (!raised) {
      cell_close(std::exchange(client_, nullptr));
      FreeNow();
    }
  }
  if (raised && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return TakeEnded(py::none());
}

}  // namespace cell::python

// The extension module cell._cell: what Python cannot do itself. The classes that users see are in __init__.py
// and asyncio.py. Each operation takes a timeout in seconds or None, a path or None, and a future or None: with
// one, it returns None at once, and the future gets the result from `turn`.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cell/python/operation.h"

namespace cell::python {
namespace {

using Object = const py::object&;

// Returns a name for the C API, where it ends at its first NUL. Raises ValueError if it has one.
const char* NameOf(const std::string& name) {
  if (name.find('\0') != std::string::npos) throw py::value_error("a name has no NUL character");
  return name.c_str();
}

cell_table* TableOf(Object table) {
  if (table.is_none()) return nullptr;
  if (!py::isinstance<Table>(table)) throw py::type_error("this is not a table");
  return py::cast<Table*>(table)->object;
}

// The conditions and the expiry of a write: what Python passes as (condition, value or stamp, ttl, moment).
struct Write {
  Write(int condition, Object expected, Object ttl, Object expires_at) {
    write.size = sizeof(write);
    write.condition = condition;
    if (condition == CELL_IF_VALUE) {
      value.emplace(expected);
      write.expected_value = *value;
    } else if (condition == CELL_IF_STAMP) {
      write.expected_stamp = UnsignedOf(expected, "stamp");
    }
    if (!ttl.is_none()) write.expires_after_us = MicrosOf(ttl, "ttl");
    if (!expires_at.is_none()) {
      // Doubles hold a time of today to a quarter of a microsecond.
      const int64_t us = MicrosOf(expires_at, "expires_at");
      if (us > INT64_MAX / 1000) throw py::value_error("expires_at is after the year 2262");
      write.expires_at_ns = static_cast<uint64_t>(us) * 1000;
    }
  }
  cell_write write{};
  std::optional<Bytes> value;
};

// A range of keys, as Python passes it.
struct Range {
  Range(Object start, Object stop, bool reverse, bool keys_only, Object limit)
      : from(OptionalBytes(start)), to(OptionalBytes(stop)) {
    range.size = sizeof(range);
    if (from.has_value()) range.from = *from;
    range.to = OrEnd(to);
    range.reverse = reverse ? 1 : 0;
    range.keys_only = keys_only ? 1 : 0;
    if (!limit.is_none()) range.limit = UnsignedOf(limit, "limit");
  }
  std::optional<Bytes> from, to;
  cell_range range{};
};

class Client {
 public:
  explicit Client(const py::dict& options) : connection_(std::make_shared<Connection>(options)) {}

  py::object Get(Object key, Object table, Object timeout, Object path, Object future) {
    const Bytes bytes(key);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    return connection_->Run(Result::kValue, future, [&](auto* client) { return cell_get(client, of, bytes, &call); });
  }
  py::object GetWithStamp(Object key, Object timeout, Object path, Object future) {
    const Bytes bytes(key);
    const cell_call call = CallOf(timeout, path);
    return connection_->Run(Result::kStamped, future,
                            [&](auto* client) { return cell_get_with_stamp(client, bytes, &call); });
  }
  py::object MultiGet(const py::iterable& keys, Object timeout, Object path, Object future) {
    std::vector<py::object> kept;
    std::vector<Bytes> owned;
    for (const py::handle key : keys) owned.emplace_back(kept.emplace_back(py::reinterpret_borrow<py::object>(key)));
    const std::vector<cell_bytes> all(owned.begin(), owned.end());
    const cell_call call = CallOf(timeout, path);
    return connection_->Run(Result::kValues, future,
                            [&](auto* client) { return cell_multi_get(client, all.data(), all.size(), &call); });
  }
  py::object Has(Object key, Object table, Object timeout, Object path, Object future) {
    const Bytes bytes(key);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    return connection_->Run(Result::kFound, future, [&](auto* client) { return cell_has(client, of, bytes, &call); });
  }
  py::object TimeLeft(Object key, Object table, Object timeout, Object path, Object future) {
    const Bytes bytes(key);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    return connection_->Run(Result::kTimeLeft, future,
                            [&](auto* client) { return cell_time_left(client, of, bytes, &call); });
  }
  py::object Put(Object key, Object value, Object table, int condition, Object expected, Object ttl, Object expires_at,
                 Object timeout, Object path, Object future) {
    const Bytes bytes(key), its_value(value);
    const Write write(condition, expected, ttl, expires_at);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    const Result result = condition == CELL_ALWAYS ? Result::kFound : Result::kWritten;
    return connection_->Run(result, future,
                            [&](auto* client) { return cell_put(client, of, bytes, its_value, &write.write, &call); });
  }
  py::object Delete(Object key, Object table, int condition, Object expected, Object timeout, Object path,
                    Object future) {
    const Bytes bytes(key);
    const Write write(condition, expected, py::none(), py::none());
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    const Result result = condition == CELL_ALWAYS ? Result::kFound : Result::kWritten;
    return connection_->Run(result, future,
                            [&](auto* client) { return cell_delete(client, of, bytes, &write.write, &call); });
  }
  py::object Apply(Object key, const std::string& function, Object argument, Object table, Object timeout, Object path,
                   Object future) {
    const Bytes bytes(key), its_argument(argument);
    const char* const name = NameOf(function);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    return connection_->Run(Result::kApplied, future,
                            [&](auto* client) { return cell_apply(client, of, bytes, name, its_argument, &call); });
  }
  py::object Evaluate(Object key, const std::string& function, Object argument, Object table, Object timeout,
                      Object path, Object future) {
    const Bytes bytes(key), its_argument(argument);
    const char* const name = NameOf(function);
    const cell_call call = CallOf(timeout, path);
    cell_table* const of = TableOf(table);
    return connection_->Run(Result::kBytes, future,
                            [&](auto* client) { return cell_evaluate(client, of, bytes, name, its_argument, &call); });
  }
  py::object Count(Object start, Object stop, Object timeout, Object future) {
    const Range range(start, stop, false, false, py::none());
    const cell_call call = CallOf(timeout, py::none());
    return connection_->Run(Result::kNumber, future,
                            [&](auto* client) { return cell_count(client, range.range.from, range.range.to, &call); });
  }
  py::object DeleteRange(Object start, Object stop, Object timeout, Object future) {
    const Range range(start, stop, false, false, py::none());
    const cell_call call = CallOf(timeout, py::none());
    return connection_->Run(Result::kNumber, future, [&](auto* client) {
      return cell_delete_range(client, range.range.from, range.range.to, &call);
    });
  }
  std::unique_ptr<Scan> NewScan(Object start, Object stop, bool reverse, bool keys_only, Object limit, Object timeout,
                                Object path) {
    connection_->CheckUsable();
    const Range range(start, stop, reverse, keys_only, limit);
    const cell_call call = CallOf(timeout, path);
    return std::make_unique<Scan>(
        connection_, connection_->Now([&](auto* client) { return cell_scan_new(client, &range.range, &call); }));
  }
  py::object OpenTable(const std::string& name, Object future) {
    const char* const text = NameOf(name);
    return connection_->Run(Result::kTable, future, [&](auto* client) { return cell_open_table(client, text); });
  }
  py::object TakeSnapshot(Object start, Object stop, Object keep, Object timeout, Object future) {
    const Range range(start, stop, false, false, py::none());
    const cell_call call = CallOf(timeout, py::none());
    const int64_t keep_us = keep.is_none() ? 0 : MicrosOf(keep, "keep");
    return connection_->Run(Result::kSnapshot, future, [&](auto* client) {
      return cell_take_snapshot(client, range.range.from, range.range.to, keep_us, &call);
    });
  }
  std::unique_ptr<Transaction> Begin() {
    connection_->CheckUsable();
    return std::make_unique<Transaction>(connection_,
                                         connection_->Now([](auto* client) { return cell_transaction_begin(client); }));
  }
  py::object Outcome(Object id, Object timeout, Object future) {
    const Bytes bytes(id);
    const cell_call call = CallOf(timeout, py::none());
    return connection_->Run(Result::kOutcome, future, [&](auto* client) { return cell_outcome(client, bytes, &call); });
  }
  bool FinishTransactions() {
    connection_->CheckUsable();
    return connection_->Now([](auto* client) {
      const Unlocked unlocked;
      return cell_finish_transactions(client) != 0;
    });
  }
  std::string Metrics() {
    connection_->CheckUsable();
    return connection_->Now([](auto* client) { return std::string(cell_metrics_json(client)); });
  }
  size_t KeyBytesMax() {
    connection_->CheckUsable();
    return connection_->Now([](auto* client) { return cell_key_bytes_max(client); });
  }
  int WaitFd() {
    return connection_->Now([](auto* client) { return cell_wait_fd(client); });
  }
  py::tuple Turn() { return connection_->Turn(); }
  py::tuple Close() { return connection_->Close(); }
  bool closed() const { return connection_->closed(); }

 private:
  const std::shared_ptr<Connection> connection_;
};

py::object NextBatch(const Scan& scan, bool keys_only, Object future) {
  return scan.connection->Run(keys_only ? Result::kKeys : Result::kPairs, future,
                              [&](auto*) { return cell_scan_next(scan.object); });
}

py::object SnapshotGet(const Snapshot& snapshot, Object key, Object timeout, Object path, Object future) {
  const Bytes bytes(key);
  const cell_call call = CallOf(timeout, path);
  return snapshot.connection->Run(Result::kValue, future,
                                  [&](auto*) { return cell_snapshot_get(snapshot.object, bytes, &call); });
}

std::unique_ptr<Scan> SnapshotScan(const Snapshot& snapshot, Object start, Object stop, bool reverse, bool keys_only,
                                   Object limit, Object timeout, Object path) {
  const Range range(start, stop, reverse, keys_only, limit);
  const cell_call call = CallOf(timeout, path);
  return std::make_unique<Scan>(snapshot.connection, snapshot.connection->Now([&](auto*) {
    return cell_snapshot_scan(snapshot.object, &range.range, &call);
  }));
}

py::object Forget(const Snapshot& snapshot, Object future) {
  return snapshot.connection->Run(Result::kFound, future, [&](auto*) { return cell_snapshot_forget(snapshot.object); });
}

py::object TransactionGet(const Transaction& transaction, Object key, Object table, Object timeout, Object path,
                          Object future) {
  const Bytes bytes(key);
  const cell_call call = CallOf(timeout, path);
  cell_table* const of = TableOf(table);
  return transaction.connection->Run(Result::kValue, future,
                                     [&](auto*) { return cell_transaction_get(transaction.object, of, bytes, &call); });
}

py::object TransactionScan(const Transaction& transaction, Object start, Object stop, bool reverse, Object limit,
                           Object timeout, Object path, Object future) {
  const Range range(start, stop, reverse, false, limit);
  const cell_call call = CallOf(timeout, path);
  return transaction.connection->Run(
      Result::kPairs, future, [&](auto*) { return cell_transaction_scan(transaction.object, &range.range, &call); });
}

void Note(const Transaction& transaction, cell_code code) {
  if (code != CELL_OK) Raise(code, cell_transaction_message(transaction.object));
}

void TransactionPut(const Transaction& transaction, Object key, Object value, Object table, Object ttl,
                    Object expires_at) {
  const Bytes bytes(key), its_value(value);
  const Write write(CELL_ALWAYS, py::none(), ttl, expires_at);
  cell_table* const of = TableOf(table);
  Note(transaction, transaction.connection->Now([&](auto*) {
    return cell_transaction_put(transaction.object, of, bytes, its_value, &write.write);
  }));
}

void TransactionDelete(const Transaction& transaction, Object key, Object table) {
  const Bytes bytes(key);
  cell_table* const of = TableOf(table);
  Note(transaction,
       transaction.connection->Now([&](auto*) { return cell_transaction_delete(transaction.object, of, bytes); }));
}

py::object Commit(const Transaction& transaction, Object timeout, Object future) {
  const cell_call call = CallOf(timeout, py::none());
  return transaction.connection->Run(Result::kCommitted, future,
                                     [&](auto*) { return cell_transaction_commit(transaction.object, &call); });
}

py::bytes IdOf(const Transaction& transaction) {
  return transaction.connection->Now([&](auto*) {
    const cell_bytes id = cell_transaction_id(transaction.object);
    return py::bytes(static_cast<const char*>(id.data), id.size);
  });
}

PYBIND11_MODULE(_cell, module) {
  Import();
  module.attr("__doc__") = "The part of cell that is in C++. Use cell and cell.asyncio.";
  const py::class_<Table> table(module, "Table");  // Only passed to operations.
  py::class_<Scan>(module, "Scan").def("next", &NextBatch);
  py::class_<Snapshot>(module, "Snapshot").def("get", &SnapshotGet).def("scan", &SnapshotScan).def("forget", &Forget);
  py::class_<Transaction>(module, "Transaction")
      .def("get", &TransactionGet)
      .def("scan", &TransactionScan)
      .def("put", &TransactionPut)
      .def("delete", &TransactionDelete)
      .def("commit", &Commit)
      .def("id", &IdOf);
  py::class_<Client>(module, "Client")
      .def(py::init<const py::dict&>())
      .def("get", &Client::Get)
      .def("get_with_stamp", &Client::GetWithStamp)
      .def("multi_get", &Client::MultiGet)
      .def("has", &Client::Has)
      .def("time_left", &Client::TimeLeft)
      .def("put", &Client::Put)
      .def("delete", &Client::Delete)
      .def("apply", &Client::Apply)
      .def("evaluate", &Client::Evaluate)
      .def("count", &Client::Count)
      .def("delete_range", &Client::DeleteRange)
      .def("scan", &Client::NewScan)
      .def("open_table", &Client::OpenTable)
      .def("take_snapshot", &Client::TakeSnapshot)
      .def("begin", &Client::Begin)
      .def("outcome", &Client::Outcome)
      .def("finish_transactions", &Client::FinishTransactions)
      .def("metrics", &Client::Metrics)
      .def("key_bytes_max", &Client::KeyBytesMax)
      .def("wait_fd", &Client::WaitFd)
      .def("turn", &Client::Turn)
      .def("close", &Client::Close)
      .def_property_readonly("closed", &Client::closed);
}

}  // namespace
}  // namespace cell::python

// The C API: operations on keys, and on ranges of keys.
#include <memory>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/c/objects.h"
#include "fmt/format.h"

namespace cell::c {
namespace {

using Made = std::unique_ptr<cell_future>;

// Makes the future of an operation on a key, which has the arguments.
absl::StatusOr<Made> MakeFor(cell_client* client, cell_table* table, cell_bytes key) {
  RETURN_IF_ERROR(CheckOpen(client));
  RETURN_IF_ERROR(CheckBytes(key));
  if (table != nullptr) RETURN_IF_ERROR(CheckOpen(static_cast<const CellObject*>(table)));
  if (table != nullptr && table->client != client) {
    return absl::InvalidArgumentError("the table belongs to another client");
  }
  auto future = std::make_unique<cell_future>(client);
  future->key = std::string(View(key));
  if (table != nullptr) future->keeps = table->object;
  return future;
}

absl::Status SetValue(cell_future* future, cell_bytes value) {
  RETURN_IF_ERROR(CheckBytes(value));
  future->value = std::string(View(value));
  return absl::OkStatus();
}

// Returns the condition of a write, or nullopt if it has none. Its value is the future's.
absl::StatusOr<std::optional<Condition>> ConditionOf(const cell_write* write, cell_future* future) {
  RETURN_IF_ERROR(CheckWrite(write));
  if (write == nullptr) return std::nullopt;
  switch (write->condition) {
    case CELL_ALWAYS:
      return std::nullopt;
    case CELL_IF_ABSENT:
      return Condition::Absent();
    case CELL_IF_PRESENT:
      return Condition::Present();
    case CELL_IF_STAMP:
      return Condition::StampIs(write->expected_stamp);
    case CELL_IF_VALUE:
      RETURN_IF_ERROR(CheckBytes(write->expected_value));
      future->expected = std::string(View(write->expected_value));
      return Condition::ValueIs(future->expected);
    default:
      return absl::InvalidArgumentError(fmt::format("there is no condition {}", write->condition));
  }
}

void TakeStamped(cell_future* future, std::optional<StampedValue> found) {
  future->found = found.has_value();
  if (!found.has_value()) return;
  future->result = std::move(found->value);
  future->stamp = found->stamp;
}
void TakeFound(cell_future* future, bool found) { future->found = found; }
void TakeExisted(cell_future* future, bool existed) {
  future->found = existed;
  future->applied = true;
}
void TakeWrite(cell_future* future, const WriteIfResult& result) {
  future->found = result.existed;
  future->applied = result.applied;
  future->stamp = result.stamp;
}
void TakeApply(cell_future* future, ApplyResult result) {
  future->found = result.existed;
  future->applied = result.changed;
  future->stamp = result.stamp;
  future->result = std::move(result.result);
}
void TakeResult(cell_future* future, std::string result) {
  future->found = true;
  future->result = std::move(result);
}
void TakeTimeLeft(cell_future* future, std::optional<int64_t> left_ns) {
  future->found = left_ns.has_value();
  future->number = static_cast<uint64_t>(left_ns.value_or(0));
}
void TakeNumber(cell_future* future, uint64_t number) { future->number = number; }

// Makes the task of an operation on a key: calls `start` with the client or the table, the future and the options.
template <typename Start>
auto OnKey(cell_client* client, cell_table* table, const CallOptions& options, Start start) {
  // Once it runs, the table's handle may be freed. Its object is kept by the future.
  Table* const of = table == nullptr ? nullptr : table->object.get();
  return [client, of, options, start](cell_future* begun) {
    return of == nullptr ? start(client->client.get(), begun, options) : start(of, begun, options);
  };
}

// Each begins its operation, unless an argument is wrong.

template <typename Start, typename Take>
absl::StatusOr<cell_future*> BeginOnKey(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call,
                                        Start start, Take take) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  ASSIGN_OR_RETURN(Made future, MakeFor(client, table, key));
  return BeginOperation(std::move(future), OnKey(client, table, options, start), take);
}

absl::StatusOr<cell_future*> BeginMultiGet(cell_client* client, const cell_bytes* keys, size_t count,
                                           const cell_call* call) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  ASSIGN_OR_RETURN(Made future, MakeFor(client, nullptr, {}));
  if (keys == nullptr && count > 0) return absl::InvalidArgumentError("the keys are NULL");
  for (size_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(CheckBytes(keys[i]));
    future->keys.emplace_back(View(keys[i]));
  }
  future->key_views.assign(future->keys.begin(), future->keys.end());
  return BeginOperation(
      std::move(future),
      [client, options](cell_future* begun) { return client->client->AsyncMultiGet(begun->key_views, options); },
      [](cell_future* begun, const std::vector<std::optional<std::string>>& values) {
        for (size_t i = 0; i < values.size(); ++i) {
          begun->AddPair(begun->keys[i], values[i].value_or(""), values[i].has_value(), 0);
        }
      });
}

absl::StatusOr<cell_future*> BeginPut(cell_client* client, cell_table* table, cell_bytes key, cell_bytes value,
                                      const cell_write* write, const cell_call* call) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  ASSIGN_OR_RETURN(Made future, MakeFor(client, table, key));
  RETURN_IF_ERROR(SetValue(future.get(), value));
  ASSIGN_OR_RETURN(const Expires expires, ExpiresOf(write));
  ASSIGN_OR_RETURN(const std::optional<Condition> condition, ConditionOf(write, future.get()));
  if (condition.has_value()) {
    const auto start = [expires, condition](auto* on, cell_future* begun, const CallOptions& its) {
      return on->AsyncPutIf(begun->key, begun->value, expires, *condition, its);
    };
    return BeginOperation(std::move(future), OnKey(client, table, options, start), TakeWrite);
  }
  const auto start = [expires](auto* on, cell_future* begun, const CallOptions& its) {
    return on->AsyncPut(begun->key, begun->value, expires, its);
  };
  return BeginOperation(std::move(future), OnKey(client, table, options, start), TakeExisted);
}

absl::StatusOr<cell_future*> BeginDelete(cell_client* client, cell_table* table, cell_bytes key,
                                         const cell_write* write, const cell_call* call) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  ASSIGN_OR_RETURN(Made future, MakeFor(client, table, key));
  RETURN_IF_ERROR(CheckWrite(write));
  if (write != nullptr && (write->expires_after_us != 0 || write->expires_at_ns != 0)) {
    return absl::InvalidArgumentError("a delete has no expiry");
  }
  ASSIGN_OR_RETURN(const std::optional<Condition> condition, ConditionOf(write, future.get()));
  if (condition.has_value()) {
    const auto start = [condition](auto* on, cell_future* begun, const CallOptions& its) {
      return on->AsyncDeleteIf(begun->key, *condition, its);
    };
    return BeginOperation(std::move(future), OnKey(client, table, options, start), TakeWrite);
  }
  const auto start = [](auto* on, cell_future* begun, const CallOptions& its) {
    return on->AsyncDelete(begun->key, its);
  };
  return BeginOperation(std::move(future), OnKey(client, table, options, start), TakeExisted);
}

template <typename Start, typename Take>
absl::StatusOr<cell_future*> BeginFunction(cell_client* client, cell_table* table, cell_bytes key, const char* name,
                                           cell_bytes argument, const cell_call* call, Start start, Take take) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  ASSIGN_OR_RETURN(Made future, MakeFor(client, table, key));
  if (name == nullptr) return absl::InvalidArgumentError("the function's name is NULL");
  RETURN_IF_ERROR(CheckBytes(argument));
  future->function = {name, std::string(View(argument))};
  return BeginOperation(std::move(future), OnKey(client, table, options, start), take);
}

template <typename Start>
absl::StatusOr<cell_future*> BeginOnRange(cell_client* client, cell_bytes from, cell_bytes to, const cell_call* call,
                                          const Start& start) {
  ASSIGN_OR_RETURN(const CallOptions options, OptionsOf(call));
  if (options.path.has_value()) return absl::InvalidArgumentError("servers count and delete ranges: there is no path");
  ASSIGN_OR_RETURN(Made future, MakeFor(client, nullptr, from));
  RETURN_IF_ERROR(SetValue(future.get(), to));
  const bool to_end = to.data == nullptr;
  RangeOptions range;
  range.timeout_us = options.timeout_us;
  return BeginOperation(
      std::move(future),
      [client, to_end, range, start](cell_future* begun) {
        const auto end = to_end ? std::nullopt : std::optional<std::string_view>(begun->value);
        return start(client->client.get(), begun->key, end, range);
      },
      TakeNumber);
}

}  // namespace
}  // namespace cell::c

using namespace cell;     // NOLINT(google-build-using-namespace)
using namespace cell::c;  // NOLINT(google-build-using-namespace)

extern "C" {

cell_future* cell_get(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call) {
  const auto start = [](auto* on, cell_future* begun, const CallOptions& options) {
    return on->AsyncGet(begun->key, options);
  };
  return OrError(client, BeginOnKey(client, table, key, call, start, TakeValue));
}

cell_future* cell_get_with_stamp(cell_client* client, cell_bytes key, const cell_call* call) {
  const auto start = [client](auto*, cell_future* begun, const CallOptions& options) {
    return client->client->AsyncGetWithStamp(begun->key, options);
  };
  return OrError(client, BeginOnKey(client, nullptr, key, call, start, TakeStamped));
}

cell_future* cell_multi_get(cell_client* client, const cell_bytes* keys, size_t count, const cell_call* call) {
  return OrError(client, BeginMultiGet(client, keys, count, call));
}

cell_future* cell_has(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call) {
  const auto start = [](auto* on, cell_future* begun, const CallOptions& options) {
    return on->AsyncContains(begun->key, options);
  };
  return OrError(client, BeginOnKey(client, table, key, call, start, TakeFound));
}

cell_future* cell_time_left(cell_client* client, cell_table* table, cell_bytes key, const cell_call* call) {
  const auto start = [](auto* on, cell_future* begun, const CallOptions& options) {
    return on->AsyncTimeLeftNs(begun->key, options);
  };
  return OrError(client, BeginOnKey(client, table, key, call, start, TakeTimeLeft));
}

cell_future* cell_put(cell_client* client, cell_table* table, cell_bytes key, cell_bytes value, const cell_write* write,
                      const cell_call* call) {
  return OrError(client, BeginPut(client, table, key, value, write, call));
}

cell_future* cell_delete(cell_client* client, cell_table* table, cell_bytes key, const cell_write* write,
                         const cell_call* call) {
  return OrError(client, BeginDelete(client, table, key, write, call));
}

cell_future* cell_apply(cell_client* client, cell_table* table, cell_bytes key, const char* function,
                        cell_bytes argument, const cell_call* call) {
  const auto start = [](auto* on, cell_future* begun, const CallOptions& options) {
    return on->AsyncApply(begun->key, begun->function, options);
  };
  return OrError(client, BeginFunction(client, table, key, function, argument, call, start, TakeApply));
}

cell_future* cell_evaluate(cell_client* client, cell_table* table, cell_bytes key, const char* function,
                           cell_bytes argument, const cell_call* call) {
  const auto start = [](auto* on, cell_future* begun, const CallOptions& options) {
    return on->AsyncEvaluate(begun->key, begun->function, options);
  };
  return OrError(client, BeginFunction(client, table, key, function, argument, call, start, TakeResult));
}

cell_future* cell_count(cell_client* client, cell_bytes from, cell_bytes to, const cell_call* call) {
  return OrError(client, BeginOnRange(client, from, to, call,
                                      [](Client* on, const auto&... range) { return on->AsyncCount(range...); }));
}

cell_future* cell_delete_range(cell_client* client, cell_bytes from, cell_bytes to, const cell_call* call) {
  return OrError(client, BeginOnRange(client, from, to, call,
                                      [](Client* on, const auto&... range) { return on->AsyncDeleteRange(range...); }));
}

}  // extern "C"

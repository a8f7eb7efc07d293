// The C API: clients, options and futures.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "cell/base/status_macros.h"
#include "cell/c/objects.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

using cell::ClientOptions;

struct cell_options {
  ClientOptions options;
};

namespace cell::c {
namespace {

// Larger than every key, value, argument and transaction id. What is smaller, and too large, the client refuses.
constexpr size_t kArgumentBytesMax = size_t{16} << 20;

using Setter = std::function<bool(ClientOptions*, std::string_view)>;

Setter Text(std::string ClientOptions::*field) {
  return [field](ClientOptions* options, std::string_view value) {
    options->*field = std::string(value);
    return true;
  };
}
template <typename T>
Setter Number(T ClientOptions::*field, T least) {
  return [field, least](ClientOptions* options, std::string_view value) {
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least) return false;
    options->*field = number;
    return true;
  };
}
Setter Switch(bool ClientOptions::*field) {
  return [field](ClientOptions* options, std::string_view value) {
    if (value != "0" && value != "1") return false;
    options->*field = value == "1";
    return true;
  };
}

const std::map<std::string_view, Setter>& Setters() {
  static const auto* const setters = new std::map<std::string_view, Setter>{
      {"cluster", Text(&ClientOptions::cluster)},
      {"zookeeper_digest", Text(&ClientOptions::zookeeper_digest)},
      {"fabric", Text(&ClientOptions::fabric)},
      {"secret_file", Text(&ClientOptions::secret_file)},
      {"tls_authority", Text(&ClientOptions::tls_authority)},
      {"tls_certificate", Text(&ClientOptions::tls_certificate)},
      {"tls_key", Text(&ClientOptions::tls_key)},
      {"rdma_device", Text(&ClientOptions::rdma_device)},
      {"rdma_gid_index", Number<int>(&ClientOptions::rdma_gid_index, -1)},
      {"rdma_mtu", Number<uint32_t>(&ClientOptions::rdma_mtu, 0)},
      {"path",
       [](ClientOptions* options, std::string_view value) {
         const std::optional<Path> path = ParsePath(value);
         options->path = path.value_or(options->path);
         return path.has_value();
       }},
      {"timeout_us", Number<int64_t>(&ClientOptions::timeout_us, 1)},
      {"reconnect_us", Number<int64_t>(&ClientOptions::reconnect_us, 1)},
      {"refused_pause_us", Number<int64_t>(&ClientOptions::refused_pause_us, 1)},
      {"cache_bytes", Number<size_t>(&ClientOptions::cache_bytes, 0)},
      {"cache_level_min", Number<int>(&ClientOptions::cache_level_min, 1)},
      {"route_ranges", Number<size_t>(&ClientOptions::route_ranges, 0)},
      {"selector", Text(&ClientOptions::selector)},
      {"seed", Number<uint64_t>(&ClientOptions::seed, 0)},
      {"busy_poll", Switch(&ClientOptions::busy_poll)},
      {"report", Switch(&ClientOptions::report)},
  };
  return *setters;
}

}  // namespace

cell_code CodeOf(const absl::Status& status) {
  if (status.ok()) return CELL_OK;
  if (IsMaybeApplied(status)) return CELL_MAYBE_APPLIED;
  if (IsSnapshotTooOld(status)) return CELL_SNAPSHOT_TOO_OLD;
  switch (status.code()) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
      return CELL_INTERNAL;
    default:
      return static_cast<cell_code>(status.code());
  }
}

absl::Status CheckOpen(const cell_client* client) {
  if (client == nullptr) return absl::CancelledError("the client is closed, or NULL");
  if (client->inherited()) return absl::CancelledError("the client belongs to the parent process");
  if (client->closing) return absl::CancelledError("the client is being closed");
  return client->status;
}

absl::Status CheckBytes(cell_bytes bytes) {
  if (bytes.data == nullptr && bytes.size > 0) {
    return absl::InvalidArgumentError(fmt::format("{} bytes at NULL", bytes.size));
  }
  if (bytes.size > kArgumentBytesMax) {  // Checked before it is copied.
    return absl::InvalidArgumentError(fmt::format("{} bytes are more than a key or a value can have", bytes.size));
  }
  return absl::OkStatus();
}

absl::StatusOr<CallOptions> OptionsOf(const cell_call* call) {
  CallOptions options;
  if (call == nullptr) return options;
  if (call->size != sizeof(cell_call)) return absl::InvalidArgumentError("cell_call has a wrong size");
  if (call->reserved != 0) return absl::InvalidArgumentError("cell_call::reserved is not 0");
  if (call->timeout_us < 0) return absl::InvalidArgumentError("the timeout is below 0");
  if (call->timeout_us > 0) options.timeout_us = call->timeout_us;
  switch (call->path) {
    case CELL_PATH_DEFAULT:
      return options;
    case CELL_PATH_SERVER:
      options.path = Path::kServer;
      return options;
    case CELL_PATH_CLIENT:
      options.path = Path::kClient;
      return options;
    case CELL_PATH_HYBRID:
      options.path = Path::kHybrid;
      return options;
    default:
      return absl::InvalidArgumentError(fmt::format("there is no path {}", call->path));
  }
}

absl::Status CheckWrite(const cell_write* write) {
  if (write == nullptr) return absl::OkStatus();
  if (write->size != sizeof(cell_write)) return absl::InvalidArgumentError("cell_write has a wrong size");
  if (write->reserved != 0) return absl::InvalidArgumentError("cell_write::reserved is not 0");
  return absl::OkStatus();
}

absl::StatusOr<Expires> ExpiresOf(const cell_write* write) {
  RETURN_IF_ERROR(CheckWrite(write));
  if (write == nullptr) return Expires::Never();
  if (write->expires_after_us < 0) return absl::InvalidArgumentError("the time to an expiry is below 0");
  if (write->expires_after_us > 0 && write->expires_at_ns > 0) {
    return absl::InvalidArgumentError("a pair has one expiry, and not two");
  }
  if (write->expires_after_us > 0) return Expires::AfterUs(write->expires_after_us);
  return write->expires_at_ns > 0 ? Expires::AtNs(write->expires_at_ns) : Expires::Never();
}

cell_future* OrError(cell_client* client, const absl::StatusOr<cell_future*>& begun) {
  if (begun.ok()) return *begun;
  const bool usable = client != nullptr && !client->inherited() && !client->closing;
  auto* const future = new cell_future(usable ? client : nullptr);
  future->End(begun.status());
  return future;
}

}  // namespace cell::c

bool cell_client::Deliver() {
  if (delivering) return false;
  delivering = true;
  // Callbacks may begin operations that end at once, and so on: those are for the next time.
  size_t left = ended.size();
  const bool any = left > 0;
  for (; left > 0; --left) {
    cell_future* const future = ended.front();
    ended.pop_front();
    future->queued = false;
    future->task.reset();
    future->keeps.reset();
    if (!future->freed && future->callback != nullptr) {
      std::exchange(future->callback, nullptr)(future, future->context);
    } else {
      future->DeleteIfFreed();
    }
  }
  delivering = false;
  return any;
}

void cell_client::LoseFutures() {
  while (futures != nullptr) {
    cell_future* const future = std::exchange(futures, futures->next);
    future->client = nullptr;
    future->before = future->next = nullptr;
  }
}

void cell_future::End(const absl::Status& status) {
  code = cell::c::CodeOf(status);
  message = std::string(status.message());
  done = true;
  if (busy != nullptr) *busy = false;
  if (!task.has_value()) return;
  queued = true;
  client->ended.push_back(this);
}

void cell_future::DeleteIfFreed() {
  if (freed && done && !queued && waits == 0) delete this;
}

void cell_future::AddPair(std::string_view pair_key, std::string_view pair_value, bool was_found, uint64_t expiry_ns) {
  if (texts == nullptr) texts = std::make_unique<std::deque<std::string>>();
  const auto keep = [this](std::string_view bytes) {
    texts->emplace_back(bytes);
    return cell_make_bytes(texts->back().data(), bytes.size());
  };
  const cell_bytes its_key = keep(pair_key);
  pairs.push_back({its_key, keep(pair_value), was_found ? 1 : 0, expiry_ns});
}

extern "C" {

const char* cell_code_name(cell_code code) {
  switch (code) {
    case CELL_OK:
      return "OK";
    case CELL_CANCELLED:
      return "CANCELLED";
    case CELL_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case CELL_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case CELL_NOT_FOUND:
      return "NOT_FOUND";
    case CELL_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case CELL_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case CELL_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case CELL_ABORTED:
      return "ABORTED";
    case CELL_OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case CELL_INTERNAL:
      return "INTERNAL";
    case CELL_UNAVAILABLE:
      return "UNAVAILABLE";
    case CELL_DATA_LOSS:
      return "DATA_LOSS";
    case CELL_MAYBE_APPLIED:
      return "MAYBE_APPLIED";
    case CELL_SNAPSHOT_TOO_OLD:
      return "SNAPSHOT_TOO_OLD";
  }
  return "unknown";
}

cell_options* cell_options_new() { return new cell_options; }

cell_code cell_options_set(cell_options* options, const char* name, const char* value) {
  if (options == nullptr || name == nullptr || value == nullptr) return CELL_INVALID_ARGUMENT;
  const auto setter = cell::c::Setters().find(name);
  if (setter == cell::c::Setters().end()) return CELL_NOT_FOUND;
  return setter->second(&options->options, value) ? CELL_OK : CELL_INVALID_ARGUMENT;
}

void cell_options_free(cell_options* options) { delete options; }

void cell_log_to_standard_error() {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("cell", std::move(sink)));
}

cell_client* cell_open(const cell_options* options) {
  auto* const opened = new cell_client;
  if (options == nullptr) {
    opened->status = absl::InvalidArgumentError("there are no options, and so no cluster");
  } else {
    absl::StatusOr<std::unique_ptr<cell::Client>> client = cell::Client::Open(options->options);
    opened->status = client.status();
    if (client.ok()) opened->client = *std::move(client);
  }
  opened->message = std::string(opened->status.message());
  return opened;
}

cell_code cell_client_code(const cell_client* client) {
  return client == nullptr ? CELL_INVALID_ARGUMENT : cell::c::CodeOf(client->status);
}

const char* cell_client_message(const cell_client* client) {
  return client == nullptr ? "the client is NULL" : client->message.c_str();
}

void cell_close(cell_client* client) {
  if (client == nullptr || client->delivering) return;
  if (client->inherited()) {
    // It is the parent's: nothing of it may be touched.
    for (CellObject* const object : client->objects) object->client = nullptr;
    client->LoseFutures();
    return;
  }
  client->closing = true;
  if (client->client != nullptr) client->client->Close();  // All futures are done then.
  while (client->Deliver()) {
  }
  for (CellObject* const object : client->objects) {
    object->Close();
    object->client = nullptr;
  }
  client->LoseFutures();
  delete client;
}

size_t cell_key_bytes_max(const cell_client* client) {
  return cell::c::CheckOpen(client).ok() ? client->client->key_bytes_max() : 0;
}

const char* cell_metrics_json(cell_client* client) {
  if (!cell::c::CheckOpen(client).ok()) return "{}";
  const cell::ClientMetrics& metrics = client->client->metrics();
  const nlohmann::json json = {
      {"operations", metrics.operations},
      {"server_path", metrics.server_path},
      {"client_path", metrics.client_path},
      {"calls", metrics.calls},
      {"round_trips", metrics.round_trips()},
      {"node_reads", metrics.node_reads},
      {"extent_reads", metrics.extent_reads},
      {"lookups", metrics.lookups},
      {"scanned", metrics.scanned},
      {"retries", metrics.retries()},
      {"errors", metrics.errors},
      {"latency_us",
       {{"p50", static_cast<double>(metrics.latency_ns.Quantile(0.5)) / 1e3},
        {"p99", static_cast<double>(metrics.latency_ns.Quantile(0.99)) / 1e3}}},
  };
  client->text = json.dump();
  return client->text.c_str();
}

void cell_poll(cell_client* client, int64_t timeout_us) {
  if (client == nullptr || client->inherited()) return;
  const bool delivered = client->Deliver();
  if (!cell::c::CheckOpen(client).ok()) return;
  const int64_t now_ns = client->client->NowNs();
  const bool forever = timeout_us < 0 || timeout_us > (INT64_MAX - now_ns) / 1000;
  client->client->Poll(delivered ? now_ns : forever ? INT64_MAX : now_ns + timeout_us * 1000);
  client->Deliver();
}

int cell_wait_fd(cell_client* client) { return cell::c::CheckOpen(client).ok() ? client->client->WaitFd() : -1; }

int64_t cell_begin_wait(cell_client* client) {
  if (!cell::c::CheckOpen(client).ok()) return INT64_MAX;
  const int64_t until_ns = client->client->BeginWait();
  if (!client->ended.empty()) return 0;
  return until_ns == 0 ? 0 : std::max<int64_t>(1, (until_ns - client->client->NowNs() + 999) / 1000);
}

void cell_end_wait(cell_client* client) {
  if (cell::c::CheckOpen(client).ok()) client->client->EndWait();
}

cell_code cell_wait(cell_future* future) {
  if (future == nullptr) return CELL_INVALID_ARGUMENT;
  ++future->waits;
  while (!future->done && cell::c::CheckOpen(future->client).ok()) {
    future->client->client->Poll(INT64_MAX);
    if (!future->done) future->client->Deliver();
  }
  cell_client* const client = future->client;
  if (future->done && client != nullptr && !client->inherited()) client->Deliver();
  const cell_code code = cell_future_code(future);
  --future->waits;
  future->DeleteIfFreed();  // A callback may have freed it.
  return code;
}

int cell_done(const cell_future* future) { return future != nullptr && future->done ? 1 : 0; }

void cell_on_done(cell_future* future, void (*callback)(cell_future* future, void* context), void* context) {
  if (future == nullptr) return;
  future->callback = callback;
  future->context = context;
  if (callback == nullptr || !future->done || future->queued) return;
  cell_client* const client = future->client;
  if (client == nullptr || client->inherited() || client->closing) return;  // Nobody delivers it.
  future->queued = true;
  client->ended.push_back(future);
}

void cell_future_free(cell_future* future) {
  if (future == nullptr) return;
  future->freed = true;
  future->DeleteIfFreed();
  // If the parent process has it in flight, its memory stays.
}

cell_code cell_future_code(const cell_future* future) {
  if (future == nullptr) return CELL_INVALID_ARGUMENT;
  if (future->done) return future->code;
  return future->client == nullptr || future->client->inherited() ? CELL_CANCELLED : CELL_INVALID_ARGUMENT;
}
const char* cell_message(const cell_future* future) {
  return future == nullptr ? "the future is NULL" : future->message.c_str();
}
int cell_found(const cell_future* future) { return future != nullptr && future->found ? 1 : 0; }
int cell_applied(const cell_future* future) { return future != nullptr && future->applied ? 1 : 0; }
cell_bytes cell_value(const cell_future* future) {
  return future == nullptr ? cell_bytes{} : cell_make_bytes(future->result.data(), future->result.size());
}
uint64_t cell_stamp(const cell_future* future) { return future == nullptr ? 0 : future->stamp; }
uint64_t cell_number(const cell_future* future) { return future == nullptr ? 0 : future->number; }
size_t cell_pairs(const cell_future* future) { return future == nullptr ? 0 : future->pairs.size(); }
cell_pair cell_pair_at(const cell_future* future, size_t index) {
  return future == nullptr || index >= future->pairs.size() ? cell_pair{} : future->pairs[index];
}

}  // extern "C"

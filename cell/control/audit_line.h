// Formats the lines of a server's audit log: what operators had it do, and which requests it refused. Pure.
//
// A line is a JSON object:
//   time       when it happened: UTC, as in RFC 3339
//   server     which server wrote it
//   event      begin, end: around a change; refused: nothing was done; kept_out: a connection was closed at once
//   id         the same for begin and end of one change
//   who        operator/NAME, client/NAME, server/NAME (certificates), uid/N (Unix socket), or "" if nobody knows
//   from       unix, or IP:PORT
//   rpc        the request (control.proto), with its arguments as text; long ones are cut
//   code, message   the result, also of a request that was refused
//   ms         how long it took
//   left_out   how many refusals were not written since the last one (AuditLimit)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cell/control/authorization.h"

namespace cell {

struct AuditEntry {
  int64_t time_ns = 0;  // Time of day.
  std::string_view event;
  std::optional<uint64_t> id;
  Caller caller;
  std::string rpc, arguments;
  std::string code, message;
  std::optional<double> ms;
  uint64_t left_out = 0;
};

// Arguments and messages are cut after this many bytes; those of callers that are no operators sooner.
inline constexpr size_t kAuditTextBytesMax = 1024;
inline constexpr size_t kOthersAuditTextBytesMax = 200;

// Returns one line, with its end. It is valid JSON in UTF-8 whatever bytes the entry has.
std::string AuditLine(const std::string& server, const AuditEntry& entry);

// Limits how many lines others than operators cause, who could otherwise fill the log and have it forget what operators
// did. Not thread-safe.
class AuditLimit {
 public:
  // Returns whether there may be one more line at this time. Sets *left_out to how many there were not since the last
  // one.
  bool Take(int64_t now_ns, uint64_t* left_out);

 private:
  static constexpr int64_t kEveryNs = 1'000'000'000;
  static constexpr int64_t kBurst = 100;

  std::optional<int64_t> filled_ns_;
  int64_t left_ = kBurst;
  uint64_t left_out_ = 0;
};

}  // namespace cell

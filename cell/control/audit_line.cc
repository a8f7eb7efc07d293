#include "cell/control/audit_line.h"

#include <algorithm>
#include <ctime>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

std::string TimeText(int64_t time_ns) {
  const time_t seconds = time_ns / 1'000'000'000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, time_ns % 1'000'000'000 / 1000);
}

std::string Cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : fmt::format("{}... ({} bytes)", text.substr(0, most), text.size());
}

}  // namespace

std::string AuditLine(const std::string& server, const AuditEntry& entry) {
  const size_t most = entry.caller.role == Role::kOperator ? kAuditTextBytesMax : kOthersAuditTextBytesMax;
  nlohmann::ordered_json line = {{"time", TimeText(entry.time_ns)}, {"server", server}, {"event", entry.event}};
  if (entry.id.has_value()) line["id"] = *entry.id;
  line["who"] = entry.caller.name;
  line["from"] = entry.caller.from;
  if (!entry.rpc.empty()) {
    line["rpc"] = Cut(entry.rpc, most);
    line["arguments"] = Cut(entry.arguments, most);
  }
  if (!entry.code.empty()) {
    line["code"] = entry.code;
    line["message"] = Cut(entry.message, most);
  }
  if (entry.ms.has_value()) line["ms"] = *entry.ms;
  if (entry.left_out > 0) line["left_out"] = entry.left_out;
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

bool AuditLimit::Take(int64_t now_ns, uint64_t* left_out) {
  const int64_t more = filled_ns_.has_value() ? (now_ns - *filled_ns_) / kEveryNs : 0;
  left_ = std::min(kBurst, left_ + std::max<int64_t>(more, 0));
  filled_ns_ = filled_ns_.value_or(now_ns) + more * kEveryNs;
  if (left_ == 0) {
    ++left_out_;
    return false;
  }
  --left_;
  *left_out = left_out_;
  left_out_ = 0;
  return true;
}

}  // namespace cell

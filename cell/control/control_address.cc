#include "cell/control/control_address.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/strings/match.h"
#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "cell/io/net/tcp_socket.h"

namespace cell {
namespace {

constexpr std::string_view kTls = "tls://";
constexpr std::string_view kUnix = "unix://";

using Kind = ControlAddress::Kind;

}  // namespace

absl::StatusOr<std::vector<ControlAddress>> ParseControlAddresses(const std::string& text) {
  const absl::Status bad = absl::InvalidArgumentError(fmt::format(
      "{} is not the address of a control plane: tls://HOST:PORT, unix://MACHINE/PATH or HOST:PORT", ForMessage(text)));
  std::vector<ControlAddress> addresses;
  for (std::string_view rest = text;;) {
    if (rest.starts_with(kUnix)) {
      rest.remove_prefix(kUnix.size());
      const size_t slash = rest.find('/');
      if (slash == std::string_view::npos || slash + 1 == rest.size()) return bad;
      addresses.push_back({Kind::kUnix, std::string(rest.substr(slash)), std::string(rest.substr(0, slash))});
      return addresses;
    }
    const Kind kind = rest.starts_with(kTls) ? Kind::kTls : Kind::kPlain;
    if (kind == Kind::kTls) rest.remove_prefix(kTls.size());
    const size_t comma = rest.find(',');
    std::string host_port(rest.substr(0, comma));
    if (!ParseHostPort(host_port).ok()) return bad;
    addresses.push_back({kind, std::move(host_port), {}});
    if (comma == std::string_view::npos) return addresses;
    rest.remove_prefix(comma + 1);
  }
}

std::string ToString(std::vector<ControlAddress> addresses) {
  std::stable_sort(addresses.begin(), addresses.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  std::string text;
  for (const ControlAddress& one : addresses) {
    if (!text.empty()) text += ",";
    if (one.kind == Kind::kTls) text += kTls;
    if (one.kind == Kind::kUnix) text += kUnix;
    text += one.machine + one.address;
  }
  return text;
}

absl::StatusOr<ControlAddress> ChooseControlAddress(const std::string& server,
                                                    const std::vector<ControlAddress>& addresses,
                                                    const std::string& machine, bool with_tls) {
  std::optional<ControlAddress> tls, plain, local, elsewhere;
  for (const ControlAddress& one : addresses) {
    if (one.kind == Kind::kTls) tls = one;
    if (one.kind == Kind::kPlain) plain = one;
    if (one.kind == Kind::kUnix) (one.machine == machine ? local : elsewhere) = one;
  }
  if (with_tls && tls.has_value()) return *tls;
  if (with_tls && plain.has_value()) return ControlAddress{Kind::kTls, plain->address, {}};
  if (local.has_value()) return *local;
  if (plain.has_value()) return *plain;
  if (tls.has_value()) {
    return absl::InvalidArgumentError(fmt::format(
        "{} (control plane at {}) asks operators for a certificate: give --tls-authority, --tls-certificate and "
        "--tls-key, or run this on the machine of {}",
        server, tls->address, server));
  }
  return absl::FailedPreconditionError(fmt::format(
      "the control plane of {} is a Unix socket of another machine{}: run this on that machine, or start {} with "
      "--control HOST:PORT, --tls-certificate, --tls-key and --tls-authority",
      server, elsewhere.has_value() ? fmt::format(" ({})", elsewhere->address) : "", server));
}

const std::string& ControlMachine() {
  static const std::string machine = FirstLineOf("/proc/sys/kernel/random/boot_id").value_or("");
  return machine;
}

}  // namespace cell

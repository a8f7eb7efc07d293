// cell_gateway lets clients of Redis use a cluster (docs/redis.md).
#include "cell/gateway/gateway.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "cell/base/status_macros.h"
#include "cell/cmd/help_text.h"
#include "cell/cmd/number_flags.h"
#include "cell/io/exec/invocation.h"
#include "cell/io/net/descriptors.h"
#include "fmt/format.h"
#include "tools/client_flags.h"
#include "tools/command_line.h"

namespace cell {
namespace {

gateway::Gateway* running = nullptr;

void StopRunning(int) { running->Stop(); }

absl::Status Serve(const gateway::GatewayOptions& options) {
  if (options.client.cluster.empty()) {
    return absl::InvalidArgumentError("no cluster was given: use --cluster DIR, or set CELL_CLUSTER=DIR");
  }
  if (options.tls_listen.empty() != options.tls_certificate.empty() ||
      options.tls_certificate.empty() != options.tls_key.empty()) {
    return absl::InvalidArgumentError("--listen-tls, --certificate and --key belong together");
  }
  if (options.tls_listen.empty() && !options.tls_authority.empty()) {
    return absl::InvalidArgumentError("--client-authority is for --listen-tls");
  }
  RaiseDescriptorLimit();
  ASSIGN_OR_RETURN(const std::unique_ptr<gateway::Gateway> gateway, gateway::Gateway::Open(options));
  running = gateway.get();
  struct sigaction action {};
  action.sa_handler = StopRunning;
  action.sa_flags = SA_RESETHAND;  // A second signal ends a gateway that takes long to close.
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  if (!gateway->address().empty()) fmt::print("cell_gateway serves clients of Redis at {}\n", gateway->address());
  if (!gateway->tls_address().empty()) {
    fmt::print("cell_gateway serves clients of Redis with TLS at {}\n", gateway->tls_address());
  }
  std::fflush(stdout);
  gateway->Run();
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  HoldStandardStreams();
  EnterCallersDirectory();
  gateway::GatewayOptions options;
  CLI::App app("Let clients of Redis use a cluster: redis-cli -p 6379 set key value");
  app.formatter(HelpText());
  AddClientFlags(&app, &options.client);
  app.add_option("--listen", options.listen, "HOST:PORT at which it listens; port 0: any free one; \"\": only with TLS")
      ->capture_default_str();
  app.add_option("--listen-tls", options.tls_listen, "HOST:PORT at which it listens for clients with TLS");
  app.add_option("--certificate", options.tls_certificate, "PEM file with the certificate for --listen-tls");
  app.add_option("--key", options.tls_key, "PEM file with the certificate's key");
  app.add_option("--client-authority", options.tls_authority,
                 "PEM file with the authority that has signed the certificates of the clients of --listen-tls; without "
                 "it they need none");
  app.add_option("--users", options.users,
                 "Directory of secret files (cellctl secret for), one for each user. Clients then have to prove who "
                 "they are: AUTH NAME PASSWORD, with the file's name and the secret's 64 hex digits");
  app.add_option("--threads", options.threads, "Threads that serve clients")
      ->check(WholeNumber(1, 64))
      ->capture_default_str();
  app.add_option("--clients-max", options.connections_max, "Connections that may be open at the same time")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--idle-seconds", options.idle_s,
                 "Seconds after which a connection is closed from which nothing came; 0: never")
      ->check(WholeNumber(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--buffer-bytes-max", options.buffer_bytes_max,
                 "Bytes of requests and replies of all connections together, such as 512M")
      ->transform(SizeInBytes(1 << 20, uint64_t{1} << 40))
      ->default_str("1G");
  app.footer("Exit status: 0 stopped by a signal, 2 error (one line on standard error).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse("cell_gateway", app, error);
  }
  const absl::Status status = Serve(options);
  if (status.ok()) return 0;
  std::fputs(fmt::format("cell_gateway: {}\n", std::string(status.message())).c_str(), stderr);
  return 2;
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

#include "cell/gateway/gateway.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/gateway/worker.h"
#include "cell/io/net/tcp_socket.h"

namespace cell::gateway {

Gateway::Gateway(const GatewayOptions& options) : options_(options) {}
Gateway::~Gateway() = default;

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Open(const GatewayOptions& options) {
  if (options.listen.empty() && options.tls_listen.empty())
    return absl::InvalidArgumentError("no address to listen at");
  std::unique_ptr<Gateway> gateway(new Gateway(options));
  if (!options.tls_listen.empty()) {
    ASSIGN_OR_RETURN(gateway->tls_, TlsServer::Make(options.tls_certificate, options.tls_key, options.tls_authority));
  }
  std::vector<UserFile> files;
  if (!options.users.empty()) {
    ASSIGN_OR_RETURN(files, ReadUsers(options.users));
  }
  if (!options.listen.empty()) {
    ASSIGN_OR_RETURN(gateway->listener_, ListenTcp(options.listen));
    gateway->address_ = BoundAddress(gateway->listener_.get(), options.listen);
  }
  if (!options.tls_listen.empty()) {
    ASSIGN_OR_RETURN(gateway->tls_listener_, ListenTcp(options.tls_listen));
    gateway->tls_address_ = BoundAddress(gateway->tls_listener_.get(), options.tls_listen);
  }
  gateway->stop_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  gateway->totals_ = std::make_unique<Totals>(options.connections_max, options.idle_s, options.buffer_bytes_max);
  for (size_t i = 0; i < options.threads; ++i) {
    ClientOptions client_options = options.client;
    client_options.seed += i;
    std::vector<std::unique_ptr<Client>> clients;
    Shared shared{gateway->totals_.get(), nullptr, {}};
    for (const UserFile& file : files) {
      client_options.secret_file = file.path;
      ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Open(client_options));
      shared.users.push_back({file.name, file.password, client.get()});
      clients.push_back(std::move(client));
    }
    if (files.empty()) {
      ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Open(client_options));
      shared.anybody = client.get();
      clients.push_back(std::move(client));
    }
    auto worker = std::make_unique<Worker>(gateway.get(), std::move(clients), std::move(shared));
    RETURN_IF_ERROR(worker->Prepare());
    gateway->workers_.push_back(std::move(worker));
  }
  return gateway;
}

void Gateway::Run() {
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers_.size(); ++i) {
    threads.emplace_back([worker = workers_[i].get()] { worker->Run(); });
  }
  workers_.front()->Run();
  for (std::thread& thread : threads) thread.join();
}

void Gateway::Stop() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
}

}  // namespace cell::gateway

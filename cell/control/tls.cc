#include "cell/control/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <functional>

#include "absl/strings/match.h"
#include "cell/base/status_macros.h"
#include "cell/control/authorization.h"
#include "fmt/format.h"

namespace cell {
namespace {

namespace experimental = grpc::experimental;

constexpr unsigned kClientRefreshS = 60;

// Compares as DNS does: without case, and "*.example.org" is any host of one more label.
bool NamesHost(std::string_view name, std::string_view host) {
  if (name.starts_with("*.")) {
    const size_t dot = host.find('.');
    if (dot == std::string_view::npos || dot == 0) return false;
    name.remove_prefix(2);
    host.remove_prefix(dot + 1);
  }
  return !name.empty() && absl::EqualsIgnoreCase({name.data(), name.size()}, {host.data(), host.size()});
}

// Checks that the certificate is the server's. Thread-safe.
class ServerVerifier : public experimental::ExternalCertificateVerifier {
 public:
  explicit ServerVerifier(std::string server) : server_(std::move(server)) {}
  ~ServerVerifier() override = default;

  bool Verify(experimental::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    std::string host(request->target_name().data(), request->target_name().size());
    if (const size_t colon = host.rfind(':'); colon != std::string::npos) host.resize(colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    std::vector<std::string> uris, names;
    for (const grpc::string_ref& uri : request->uri_names()) uris.emplace_back(uri.data(), uri.size());
    for (const grpc::string_ref& name : request->dns_names()) names.emplace_back(name.data(), name.size());
    for (const grpc::string_ref& name : request->ip_names()) names.emplace_back(name.data(), name.size());
    if (!IsServer(server_, host, uris, names)) {
      *status = {grpc::StatusCode::UNAUTHENTICATED,
                 fmt::format("its certificate is neither {} nor that of the host {}", ServerUri(server_), host)};
    }
    return true;  // It is checked.
  }
  void Cancel(experimental::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string server_;
};

std::shared_ptr<experimental::FileWatcherCertificateProvider> Watch(const TlsFiles& files, unsigned refresh_s) {
  return std::make_shared<experimental::FileWatcherCertificateProvider>(files.key, files.certificate, files.authority,
                                                                        refresh_s);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files, unsigned refresh_s) {
  RETURN_IF_ERROR(CheckTlsFiles(files));
  experimental::TlsServerCredentialsOptions options(Watch(files, refresh_s));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return experimental::TlsServerCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files, const std::string& server) {
  RETURN_IF_ERROR(CheckTlsFiles(files));
  experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files, kClientRefreshS));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_verify_server_certs(true);
  options.set_check_call_host(false);  // The verifier looks at the host.
  options.set_certificate_verifier(experimental::ExternalCertificateVerifier::Create<ServerVerifier>(server));
  return experimental::TlsCredentials(options);
}

bool IsServer(const std::string& server, const std::string& host, const std::vector<std::string>& uris,
              const std::vector<std::string>& dns_and_ip_names) {
  const auto is_cell = [](const std::string& uri) { return uri.starts_with(kIdentityScheme); };
  if (std::any_of(uris.begin(), uris.end(), is_cell)) {
    return std::find(uris.begin(), uris.end(), ServerUri(server)) != uris.end() &&
           std::count_if(uris.begin(), uris.end(), is_cell) == 1;
  }
  return std::any_of(dns_and_ip_names.begin(), dns_and_ip_names.end(),
                     [&host](const std::string& name) { return NamesHost(name, host); });
}

}  // namespace cell

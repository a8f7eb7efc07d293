// Makes gRPC's credentials for mutual TLS from PEM files, and checks who is at the other end.
//
// The files are read again every `refresh_s` seconds, so certificates can be renewed without a restart. Who replaces a
// certificate and its key does that with both at once (rename), because a pair that does not match lets nobody in.
//
// The minimum is TLS 1.2: gRPC 1.51 has no way to ask for more, and uses TLS 1.3 if both sides have it.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cell/control/tls_files.h"

namespace cell {

// Lets in only clients with a certificate that the authority has signed. What they may do is for others to say
// (authorization.h).
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const TlsFiles& files, unsigned refresh_s);

// Talks only to the server of that name, or to the host that is connected to: see IsServer.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientTls(const TlsFiles& files, const std::string& server);

// Returns whether a certificate with these names is that of `server`: it has the URI cell://server/NAME or, if it has
// no cell:// URI at all, a DNS name or IP address that is `host`. A client's or an operator's certificate is no
// server's, whatever host it names.
bool IsServer(const std::string& server, const std::string& host, const std::vector<std::string>& uris,
              const std::vector<std::string>& dns_and_ip_names);

}  // namespace cell

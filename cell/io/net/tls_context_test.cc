#include "cell/io/net/tls_context.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "cell/io/net/fd.h"
#include "cell/io/net/test_certificates.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

const Identity kAlice{Role::kClient, "alice"};
const Identity kServer0{Role::kServer, "server-0"};

using ContextPtr = std::shared_ptr<const TlsContext>;

ContextPtr ContextOf(std::shared_ptr<const Keyring> keys, const TlsCertificate& certificate = {}) {
  absl::StatusOr<ContextPtr> made =
      TlsContext::Make(keys != nullptr ? std::move(keys) : std::make_shared<const Keyring>(), certificate);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

// A connection between a client and a server, which are driven in turn.
class Pair {
 public:
  Pair(const ContextPtr& server, const ContextPtr& client, const Identity& as = kAlice) {
    int ends[2];
    CELL_CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    server_socket = Fd(ends[0]);
    client_socket = Fd(ends[1]);
    accepted = server->Accept(server, server_socket.get());
    connected = client->Connect(client, client_socket.get(), as);
  }
  // Returns what went wrong, if anything. The one that fails closes, as a fabric does.
  absl::Status Shake() {
    bool server_done = false, client_done = false;
    for (int i = 0; i < 20 && !(server_done && client_done); ++i) {
      if (!client_done) {
        const absl::StatusOr<bool> done = connected->Handshake();
        if (!done.ok()) client = done.status();
        client_done = !done.ok() || *done;
      }
      if (!server_done) {
        const absl::StatusOr<bool> done = accepted->Handshake();
        if (!done.ok()) server = done.status();
        server_done = !done.ok() || *done;
      }
      if (!client.ok()) (void)::shutdown(client_socket.get(), SHUT_RDWR);
    }
    EXPECT_TRUE(server_done && client_done);
    return !server.ok() ? server : client;
  }

  Fd server_socket, client_socket;
  std::unique_ptr<TlsSession> accepted, connected;
  absl::Status server, client;
};

std::string Carry(TlsSession* from, TlsSession* to, const std::string& text) {
  size_t sent = 0;
  std::string arrived;
  std::array<std::byte, 5000> room;
  for (int i = 0; i < 10'000 && arrived.size() < text.size(); ++i) {
    if (sent < text.size()) {
      const auto bytes = from->Send(AsBytes(text).subspan(sent));
      if (!bytes.ok()) return std::string(bytes.status().message());
      sent += bytes->value_or(0);
    }
    const auto bytes = to->Receive(absl::MakeSpan(room));
    if (!bytes.ok()) return std::string(bytes.status().message());
    if (bytes->has_value()) arrived += AsText(ConstBytes(room).first(**bytes));
  }
  return arrived;
}

TEST(Tls, ASecretShowsWhoTheClientIs) {
  const ContextPtr server = ContextOf(KeysOf("secret"));
  for (const Identity& who : {kAlice, Identity{Role::kOperator, "bob"}, kServer0}) {
    Pair pair(server, ContextOf(KeysOf("secret")), who);
    ASSERT_TRUE(pair.Shake().ok()) << pair.server << pair.client;
    EXPECT_EQ(pair.accepted->peer(), who);
    EXPECT_EQ(pair.connected->peer().role, Role::kServer);
    const std::string text(100'000, 'x');
    EXPECT_EQ(Carry(pair.connected.get(), pair.accepted.get(), text), text);
    EXPECT_EQ(Carry(pair.accepted.get(), pair.connected.get(), text), text);
  }
}

TEST(Tls, OneWithTheSecretOfAnIdentityIsThatIdentity) {
  const auto alices = std::make_shared<const Keyring>(std::vector<Secret>{SecretOf(SecretOfText("secret"), kAlice)});
  Pair pair(ContextOf(KeysOf("secret")), ContextOf(alices), kServer0);
  ASSERT_TRUE(pair.Shake().ok()) << pair.server << pair.client;
  EXPECT_EQ(pair.accepted->peer(), kAlice);
}

TEST(Tls, EitherOfTwoSecretsIsValid) {
  const auto both = std::make_shared<const Keyring>(std::vector<Secret>{SecretOfText("after"), SecretOfText("before")});
  for (const char* secret : {"after", "before"}) {
    Pair pair(ContextOf(both), ContextOf(KeysOf(secret)));
    EXPECT_TRUE(pair.Shake().ok()) << pair.server << pair.client;
  }
}

TEST(Tls, AnotherSecretIsRefused) {
  Secret forged = SecretOf(SecretOfText("another"), kServer0);
  forged.id = SecretOfText("secret").id;
  const std::shared_ptr<const Keyring> wrong[] = {KeysOf("another"),
                                                  std::make_shared<const Keyring>(std::vector<Secret>{forged})};
  for (const auto& keys : wrong) {
    Pair pair(ContextOf(KeysOf("secret")), ContextOf(keys));
    EXPECT_FALSE(pair.Shake().ok());
    EXPECT_FALSE(pair.server.ok());
    EXPECT_EQ(pair.client.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_NE(std::string(pair.client.message()).find("--secret-file"), std::string::npos) << pair.client;
  }
}

TEST(Tls, CertificatesShowWhoBothAre) {
  const TestAuthority authority("cluster");
  const ContextPtr server = ContextOf(nullptr, authority.Issue("URI:cell://server/server-0"));
  EXPECT_EQ(server->certified(), kServer0);
  // The name that the client gives itself is ignored.
  Pair pair(server, ContextOf(nullptr, authority.Issue("DNS:host,URI:cell://client/alice,URI:https://x")), kServer0);
  ASSERT_TRUE(pair.Shake().ok()) << pair.server << pair.client;
  EXPECT_EQ(pair.accepted->peer(), kAlice);
  EXPECT_EQ(pair.connected->peer(), kServer0);
  EXPECT_EQ(Carry(pair.connected.get(), pair.accepted.get(), "text"), "text");
}

TEST(Tls, AServerWithBothAcceptsBoth) {
  const TestAuthority authority("cluster");
  const ContextPtr server = ContextOf(KeysOf("secret"), authority.Issue("URI:cell://server/server-0"));
  Pair by_secret(server, ContextOf(KeysOf("secret")));
  EXPECT_TRUE(by_secret.Shake().ok()) << by_secret.server << by_secret.client;
  Pair by_certificate(server, ContextOf(nullptr, authority.Issue("URI:cell://client/alice")));
  EXPECT_TRUE(by_certificate.Shake().ok()) << by_certificate.server << by_certificate.client;
  EXPECT_EQ(by_certificate.accepted->peer(), kAlice);
}

TEST(Tls, ClientsWithoutAValidCertificateAreRefused) {
  const TestAuthority authority("cluster"), another("another");
  const ContextPtr server = ContextOf(nullptr, authority.Issue("URI:cell://server/server-0"));
  TlsCertificate foreign = another.Issue("URI:cell://client/alice");
  foreign.authority = authority.Issue("").authority;  // It trusts the server.
  const TlsCertificate wrong[] = {authority.Issue("URI:cell://client/alice", -7200, -3600),
                                  authority.Issue("URI:cell://client/alice", 3600, 7200), foreign};
  for (const TlsCertificate& certificate : wrong) {
    Pair pair(server, ContextOf(nullptr, certificate));
    EXPECT_FALSE(pair.Shake().ok());
    EXPECT_NE(std::string(pair.server.message()).find("certificate is refused"), std::string::npos) << pair.server;
  }
  // None at all, and a secret that the server does not have.
  Pair with_secret(server, ContextOf(KeysOf("secret")));
  EXPECT_FALSE(with_secret.Shake().ok());
}

TEST(Tls, ServersThatAreNoneAreRefused) {
  const TestAuthority authority("cluster"), another("another");
  const ContextPtr client = ContextOf(nullptr, authority.Issue("URI:cell://client/bob"));
  TlsCertificate foreign = another.Issue("URI:cell://server/server-0");
  foreign.authority = authority.Issue("").authority;
  const TlsCertificate wrong[] = {authority.Issue("URI:cell://client/alice"),
                                  authority.Issue("URI:cell://server/server-0", -7200, -3600), foreign};
  for (const TlsCertificate& certificate : wrong) {
    Pair pair(ContextOf(nullptr, certificate), client);
    EXPECT_FALSE(pair.Shake().ok());
    EXPECT_EQ(pair.client.code(), absl::StatusCode::kPermissionDenied);
  }
  // A client that has only a secret takes nobody's certificate for it.
  Pair pair(ContextOf(KeysOf("another"), authority.Issue("URI:cell://server/server-0")), ContextOf(KeysOf("secret")));
  EXPECT_FALSE(pair.Shake().ok());
}

TEST(Tls, ACertificateSaysWhoseItIs) {
  const TestAuthority authority("cluster");
  for (const char* subject : {"", "DNS:server-0", "URI:cell://server/", "URI:cell://root/x", "URI:https://server/x",
                              "URI:cell://server/a,URI:cell://client/b"}) {
    const auto made = TlsContext::Make(std::make_shared<const Keyring>(), authority.Issue(subject));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << subject;
  }
}

TEST(Tls, FilesThatAreNotValidAreRefused) {
  const TestAuthority authority("cluster");
  const TlsCertificate good = authority.Issue("URI:cell://server/server-0");
  std::string TlsCertificate::*const parts[] = {&TlsCertificate::authority, &TlsCertificate::certificate,
                                                &TlsCertificate::key};
  for (const auto part : parts) {
    for (const std::string& text : {std::string("nonsense"), (good.*part).substr(0, 100)}) {
      TlsCertificate bad = good;
      bad.*part = text;
      EXPECT_EQ(TlsContext::Make(std::make_shared<const Keyring>(), bad).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  }
  TlsCertificate others_key = good;
  others_key.key = authority.Issue("URI:cell://server/server-0").key;
  EXPECT_FALSE(TlsContext::Make(std::make_shared<const Keyring>(), others_key).ok());
}

TEST(Tls, WhatIsChangedOnTheWayBreaksTheConnection) {
  const ContextPtr context = ContextOf(KeysOf("secret"));
  Pair pair(context, context);
  ASSERT_TRUE(pair.Shake().ok());
  // One bit of a record is flipped between the client and the server.
  ASSERT_TRUE(pair.connected->Send(AsBytes("an order")).ok());
  std::array<char, 1000> record;
  const ssize_t bytes = ::recv(pair.server_socket.get(), record.data(), record.size(), 0);
  ASSERT_GT(bytes, 10);
  record[static_cast<size_t>(bytes) - 3] ^= 1;
  ASSERT_EQ(::send(pair.client_socket.get(), record.data(), static_cast<size_t>(bytes), 0), bytes);
  std::array<std::byte, 100> room;
  EXPECT_EQ(pair.accepted->Receive(absl::MakeSpan(room)).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Tls, TheEndOfTheConnectionIsSeen) {
  const ContextPtr context = ContextOf(KeysOf("secret"));
  Pair pair(context, context);
  ASSERT_TRUE(pair.Shake().ok());
  std::array<std::byte, 100> room;
  EXPECT_EQ(*pair.accepted->Receive(absl::MakeSpan(room)), std::nullopt);
  pair.connected.reset();
  (void)::shutdown(pair.client_socket.get(), SHUT_RDWR);
  EXPECT_EQ(*pair.accepted->Receive(absl::MakeSpan(room)), 0u);
}

// A client that does not use our code: OpenSSL with the certificate, as it is.
class RawClient {
 public:
  RawClient(const ContextPtr& server, const TlsCertificate& certificate, int version_max) {
    int ends[2];
    CELL_CHECK_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    server_socket_ = Fd(ends[0]);
    socket_ = Fd(ends[1]);
    accepted_ = server->Accept(server, server_socket_.get());
    context_.reset(::SSL_CTX_new(::TLS_client_method()));
    SSL_CTX_set_max_proto_version(context_.get(), version_max);
    BIO* const pem =
        ::BIO_new_mem_buf(certificate.certificate.data(), static_cast<int>(certificate.certificate.size()));
    BIO* const key_pem = ::BIO_new_mem_buf(certificate.key.data(), static_cast<int>(certificate.key.size()));
    X509* const x509 = ::PEM_read_bio_X509(pem, nullptr, nullptr, nullptr);
    EVP_PKEY* const key = ::PEM_read_bio_PrivateKey(key_pem, nullptr, nullptr, nullptr);
    CELL_CHECK_EQ(::SSL_CTX_use_certificate(context_.get(), x509), 1);
    CELL_CHECK_EQ(::SSL_CTX_use_PrivateKey(context_.get(), key), 1);
    ::X509_free(x509);
    ::EVP_PKEY_free(key);
    ::BIO_free(pem);
    ::BIO_free(key_pem);
    ssl_.reset(::SSL_new(context_.get()));
    ::SSL_set_fd(ssl_.get(), socket_.get());
  }

  // Returns what the server says in the end.
  absl::Status Shake() {
    for (int i = 0; i < 20; ++i) {
      (void)::SSL_connect(ssl_.get());
      const absl::StatusOr<bool> done = accepted_->Handshake();
      if (!done.ok()) return done.status();
      if (*done) return absl::OkStatus();
    }
    return absl::DeadlineExceededError("it does not end");
  }
  // Returns whether it has got anything by which it could resume the connection.
  bool HasTicket() {
    char byte;
    (void)::SSL_read(ssl_.get(), &byte, 1);  // Takes what comes after the handshake.
    return ::SSL_SESSION_is_resumable(::SSL_get0_session(ssl_.get())) == 1;
  }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };
  Fd server_socket_, socket_;
  std::unique_ptr<TlsSession> accepted_;
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
};

TEST(Tls, EarlierVersionsAreRefused) {
  const TestAuthority authority("authority");
  const ContextPtr server = ContextOf(nullptr, authority.Issue("URI:cell://server/server-0"));
  const TlsCertificate alices = authority.Issue("URI:cell://client/alice");
  EXPECT_TRUE(RawClient(server, alices, TLS1_3_VERSION).Shake().ok());
  EXPECT_FALSE(RawClient(server, alices, TLS1_2_VERSION).Shake().ok());
}

// A ticket would outlive the certificate, or a secret that is retired.
TEST(Tls, NothingCanBeResumed) {
  const TestAuthority authority("authority");
  const ContextPtr server = ContextOf(nullptr, authority.Issue("URI:cell://server/server-0"));
  RawClient client(server, authority.Issue("URI:cell://client/alice"), TLS1_3_VERSION);
  ASSERT_TRUE(client.Shake().ok());
  EXPECT_FALSE(client.HasTicket());
}

}  // namespace
}  // namespace cell

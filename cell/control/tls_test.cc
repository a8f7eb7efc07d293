#include "cell/control/tls.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "cell/base/json.h"
#include "cell/control/control.pb.h"
#include "cell/control/control_client.h"
#include "cell/control/control_server.h"
#include "cell/control/test_certificates.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

TEST(IsServer, ACertificateIsThatOfTheServerOrOfTheHost) {
  const struct {
    std::vector<std::string> uris, names;
    bool is;
  } kCases[] = {
      {{"cell://server/server-0"}, {}, true},
      {{"https://example.org/", "cell://server/server-0"}, {}, true},
      {{"cell://server/server-1"}, {}, false},
      {{"cell://server/server-01"}, {}, false},
      {{"cell://operator/server-0"}, {}, false},
      {{"cell://client/server-0"}, {}, false},
      {{}, {"host.example.org"}, true},
      {{}, {"HOST.example.org"}, true},
      {{}, {"other", "*.example.org"}, true},
      {{"https://example.org/"}, {"host.example.org"}, true},
      {{}, {"*.host.example.org"}, false},
      {{}, {"*.org"}, false},
      {{}, {"*"}, false},
      {{}, {"example.org"}, false},
      {{}, {"host.example.org.evil.org"}, false},
      {{}, {""}, false},
      {{}, {}, false},
      // A client of the cluster that runs on the host is no server.
      {{"cell://client/shop"}, {"host.example.org"}, false},
      {{"cell://server/server-1"}, {"host.example.org"}, false},
      {{"cell://server/server-0", "cell://server/server-1"}, {"host.example.org"}, false},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(IsServer("server-0", "host.example.org", one.uris, one.names), one.is)
        << (one.uris.empty() ? "" : one.uris[0]) << " " << (one.names.empty() ? "" : one.names[0]);
  }
  EXPECT_TRUE(IsServer("server-0", "10.0.0.1", {}, {"10.0.0.1"}));
}

// Makes a request without arguments, by its method's name.
grpc::Status Call(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                  const std::string& method) {
  grpc::GenericStub stub(grpc::CreateChannel(address, credentials));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("");
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

class Lines : public AuditSink {
 public:
  absl::Status Append(std::string_view line, bool) override {
    const std::lock_guard lock(mutex_);
    lines_.push_back(*ParseJson(line));
    return absl::OkStatus();
  }
  std::vector<nlohmann::json> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<nlohmann::json> lines_;  // Guarded by mutex_.
};

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    std::string directory = "/tmp/cell-tls-XXXXXX";
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    authority_ = std::make_unique<AuthorityFiles>(directory_, "authority");
    server_files_ = authority_->Issue("server", "URI:cell://server/server-0");
    operator_files_ = authority_->Issue("operator", "URI:cell://operator/alice");
  }

  ControlOptions Options() {
    ControlOptions options;
    options.address = "127.0.0.1:0";
    options.tls = server_files_;
    options.tls_refresh_s = 1;
    options.audit = &audit_;
    return options;
  }
  void Start(const ControlOptions& options) {
    server_.reset();
    auto server = ControlServer::Start(options, {});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void Start() { Start(Options()); }
  absl::Status Try(const TlsFiles& files, const std::string& server = "server-0") {
    const auto client = ControlClient::Open(server, server_->address(), files, std::chrono::seconds(10));
    return client.ok() ? (*client)->Split(7) : client.status();
  }
  // Returns whether the server took the request: it has no workers, so it has no region 7.
  bool Served(const TlsFiles& files, const std::string& server = "server-0") {
    return Try(files, server).code() == absl::StatusCode::kNotFound;
  }

  std::string directory_;
  std::unique_ptr<AuthorityFiles> authority_;
  TlsFiles server_files_, operator_files_;
  Lines audit_;  // Outlives the server.
  std::unique_ptr<ControlServer> server_;
};

TEST_F(Tls, AnOperatorIsServedAndWrittenDown) {
  Start();
  EXPECT_EQ(server_->address().find("tls://127.0.0.1:"), 0u);
  EXPECT_TRUE(Served(operator_files_));
  const auto lines = audit_.Take();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["event"], "begin");
  EXPECT_EQ(lines[1]["event"], "end");
  EXPECT_EQ(lines[1]["code"], "NOT_FOUND");
  for (const auto& line : lines) {
    EXPECT_EQ(line["who"], "operator/alice");
    EXPECT_EQ(line["from"].get<std::string>().find("127.0.0.1:"), 0u);
    EXPECT_EQ(line["rpc"], "Split");
    EXPECT_EQ(line["arguments"], "region: 7");
    EXPECT_EQ(line["id"], lines[0]["id"]);
  }
}

// Makes every request of control.proto. A request that is not guarded would be served here.
TEST_F(Tls, NobodyButAnOperatorMayMakeAnyRequest) {
  Start();
  const auto* const service = control::StatusRequest::descriptor()->file()->FindServiceByName("Control");
  const struct {
    std::string names, who;
  } kOthers[] = {{"URI:cell://server/server-1", "server/server-1"},
                 {"URI:cell://client/shop", "client/shop"},
                 {"URI:cell://operator/a,URI:cell://client/b", ""},
                 {"DNS:localhost", ""},
                 {"", ""}};
  const std::string address = server_->address().substr(std::string("tls://").size());
  for (const auto& other : kOthers) {
    const auto credentials = ClientTls(authority_->Issue("other", other.names), "server-0");
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string name = service->method(i)->name();
      const grpc::Status status = Call(address, *credentials, "/cell.control.Control/" + name);
      EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << name << " by " << other.names;
      const auto lines = audit_.Take();
      ASSERT_EQ(lines.size(), 1u) << name << " by " << other.names;
      EXPECT_EQ(lines[0]["event"], "refused");
      EXPECT_EQ(lines[0]["rpc"], name);
      EXPECT_EQ(lines[0]["who"], other.who);
      EXPECT_EQ(lines[0]["code"], "PERMISSION_DENIED");
    }
  }
}

TEST_F(Tls, ReflectionAndHealthAreNotAtThePort) {
  Start();
  const auto credentials = ClientTls(operator_files_, "server-0");
  ASSERT_TRUE(credentials.ok());
  for (const char* const method :
       {"/grpc.health.v1.Health/Check", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    EXPECT_EQ(Call(server_->address().substr(6), *credentials, method).error_code(), grpc::StatusCode::UNIMPLEMENTED)
        << method;
  }
}

TEST_F(Tls, CertificatesOfOthersAreKeptOut) {
  Start();
  const AuthorityFiles stranger(directory_, "stranger");
  TlsFiles forged = stranger.Issue("operator", "URI:cell://operator/alice");
  forged.authority = authority_->path();  // It knows who the server is.
  EXPECT_EQ(Try(forged).code(), absl::StatusCode::kUnavailable);
  // The client itself does not use what has expired, so it expires while it is in use.
  const TlsFiles brief = authority_->Issue("brief", "URI:cell://operator/alice", 2);
  const auto client = ClientTls(brief, "server-0");
  ASSERT_TRUE(client.ok()) << client.status();
  std::this_thread::sleep_for(std::chrono::milliseconds(3100));
  EXPECT_EQ(Try(brief).code(), absl::StatusCode::kInvalidArgument);
  const auto channel = grpc::CreateChannel(server_->address().substr(6), *client);
  EXPECT_FALSE(channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(1)));
  EXPECT_EQ(audit_.Take().size(), 0u);
  EXPECT_TRUE(Served(operator_files_));
}

TEST_F(Tls, AClientTalksOnlyToTheServerThatItMeant) {
  Start();
  EXPECT_EQ(Try(operator_files_, "server-1").code(), absl::StatusCode::kUnavailable);
  for (const auto& [names, right] : {std::pair{"URI:cell://client/server-0", false},
                                     {"URI:cell://operator/server-0", false},
                                     {"DNS:localhost", false},
                                     {"", false},
                                     {"IP:127.0.0.1", true},
                                     {"URI:cell://client/x,IP:127.0.0.1", false}}) {
    ControlOptions options = Options();
    options.tls = authority_->Issue("server", names);
    Start(options);
    EXPECT_EQ(Served(operator_files_), right) << names;
  }
  const AuthorityFiles stranger(directory_, "stranger");
  ControlOptions options = Options();
  options.tls = stranger.Issue("server", "URI:cell://server/server-0");
  options.tls.authority = authority_->path();
  Start(options);
  EXPECT_EQ(Try(operator_files_).code(), absl::StatusCode::kUnavailable);
}

TEST_F(Tls, RenewedFilesAreUsedWithoutARestart) {
  Start();
  ASSERT_TRUE(Served(operator_files_));
  const AuthorityFiles next(directory_, "next");
  TlsFiles of_next = next.Issue("operator", "URI:cell://operator/alice");
  EXPECT_FALSE(Served(of_next));
  const TlsFiles server = next.Issue("server", "URI:cell://server/server-0");
  ASSERT_EQ(std::rename(server.key.c_str(), server_files_.key.c_str()), 0);
  ASSERT_EQ(std::rename(server.certificate.c_str(), server_files_.certificate.c_str()), 0);
  ASSERT_EQ(std::rename(next.path().c_str(), authority_->path().c_str()), 0);
  of_next.authority = authority_->path();
  bool served = false;
  for (int i = 0; i < 100 && !served; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    served = Served(of_next);
  }
  EXPECT_TRUE(served);
}

TEST_F(Tls, FilesThatDoNotFitAreNamed) {
  const auto refused = [](const TlsFiles& files, const std::string& part) {
    const absl::Status status = CheckTlsFiles(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_NE(status.message().find(part), std::string::npos) << status;
  };
  ASSERT_TRUE(CheckTlsFiles(operator_files_).ok());
  TlsFiles files = operator_files_;
  files.authority.clear();
  refused(files, "all three of --tls-certificate, --tls-key and --tls-authority");
  files = operator_files_;
  files.key = server_files_.key;
  refused(files, "is not the key of --tls-certificate");
  files.key = files.certificate;
  ::chmod(files.certificate.c_str(), 0600);
  refused(files, "has no private key in PEM");
  files = operator_files_;
  files.certificate = files.key;
  refused(files, "has no certificate in PEM");
  files = operator_files_;
  files.authority = directory_ + "/none";
  refused(files, "no such file");
  ::chmod(operator_files_.key.c_str(), 0644);
  refused(operator_files_, "every user of this machine can use");
  refused(authority_->Issue("old", "URI:cell://operator/alice", -60), "has expired");
}

}  // namespace
}  // namespace cell

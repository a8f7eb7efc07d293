#include "cell/io/net/credentials.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "cell/io/net/test_certificates.h"
#include "cell/io/net/test_credentials.h"

namespace cell {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class CredentialFilesTest : public ::testing::Test {
 protected:
  void TearDown() override { ::unlink(path_.c_str()); }
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_ + ".new") << text;
    ASSERT_EQ(::chmod((path_ + ".new").c_str(), mode), 0);
    ASSERT_EQ(::rename((path_ + ".new").c_str(), path_.c_str()), 0);
  }
  const std::string path_ = ::testing::TempDir() + "/secret-" + std::to_string(::getpid());
};

TEST_F(CredentialFilesTest, RefusesWhatOthersCanReadOrChange) {
  for (const mode_t mode : {0644, 0604, 0602, 0620}) {
    Write(ToLine(SecretOfText("a")), mode);
    const absl::Status status = CredentialFiles::Open({path_}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("chmod 600"), std::string::npos) << status;
  }
  Write(ToLine(SecretOfText("a")));
  EXPECT_EQ((*CredentialFiles::Open({path_}))->Current(0)->keys->Cluster(), SecretOfText("a"));
}

TEST_F(CredentialFilesTest, RefusesWhatIsNoSecretFile) {
  for (const std::string& text : {std::string(), std::string("short"), std::string(300'000, '#')}) {
    Write(text);
    EXPECT_EQ(CredentialFiles::Open({path_}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(CredentialFiles::Open({path_ + "-that-is-not-there"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CredentialFiles::Open({::testing::TempDir()}).status().code(), absl::StatusCode::kInvalidArgument);
}

// Opening a FIFO would wait until somebody writes to it.
TEST_F(CredentialFilesTest, DoesNotWaitForAFifo) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(CredentialFiles::Open({path_}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(CredentialFilesTest, RefusesWhatBelongsToAnotherUser) {
  Write(ToLine(SecretOfText("a")));
  if (::chown(path_.c_str(), 65534, 65534) != 0) GTEST_SKIP() << "this user, or this sandbox, cannot give files away";
  const absl::Status status = CredentialFiles::Open({path_}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("65534"), std::string::npos) << status;
}

// Such as the certificate of another server.
TEST_F(CredentialFilesTest, WhatIsNotAcceptedReplacesNothing) {
  const auto accept = [](const Credentials& read) {
    return read.keys->Cluster() == SecretOfText("b") ? absl::InvalidArgumentError("not this one") : absl::OkStatus();
  };
  Write(ToLine(SecretOfText("b")));
  EXPECT_EQ(CredentialFiles::Open({path_}, accept).status(), absl::InvalidArgumentError("not this one"));
  Write(ToLine(SecretOfText("a")));
  const std::shared_ptr<CredentialFiles> files = *CredentialFiles::Open({path_}, accept);
  Write(ToLine(SecretOfText("b")));
  EXPECT_EQ(files->Current(kSecond)->keys->Cluster(), SecretOfText("a"));
  Write(ToLine(SecretOfText("c")));
  EXPECT_EQ(files->Current(2 * kSecond)->keys->Cluster(), SecretOfText("c"));
}

TEST_F(CredentialFilesTest, WithoutAFileThereIsNoSecret) {
  EXPECT_TRUE((*CredentialFiles::Open({}))->Current(0)->keys->empty());
}

TEST_F(CredentialFilesTest, ANewSecretIsUsedWithinASecond) {
  Write(ToLine(SecretOfText("a")));
  const std::shared_ptr<CredentialFiles> files = *CredentialFiles::Open({path_});
  EXPECT_EQ(files->Current(0)->keys->Cluster(), SecretOfText("a"));
  Write(ToLine(SecretOfText("b")) + ToLine(SecretOfText("a")));
  EXPECT_EQ(files->Current(kSecond - 1)->keys->Cluster(), SecretOfText("a"));
  EXPECT_EQ(files->Current(kSecond)->keys->Cluster(), SecretOfText("b"));
}

TEST_F(CredentialFilesTest, ChangesAreSeenByMoreThanTheSize) {
  Write(ToLine(SecretOfText("a")));
  const std::shared_ptr<CredentialFiles> files = *CredentialFiles::Open({path_});
  Write(ToLine(SecretOfText("b")));
  EXPECT_EQ(files->Current(kSecond)->keys->Cluster(), SecretOfText("b"));
}

class CertificateFilesTest : public CredentialFilesTest {
 protected:
  void WriteAll(const TlsCertificate& certificate, mode_t mode = 0600) {
    for (const auto& [name, text] : {std::pair(".authority", certificate.authority),
                                     std::pair(".pem", certificate.certificate), std::pair(".key", certificate.key)}) {
      std::ofstream(path_ + name) << text;
      ASSERT_EQ(::chmod((path_ + name).c_str(), mode), 0);
    }
  }
  void TearDown() override {
    for (const char* name : {".authority", ".pem", ".key"}) ::unlink((path_ + name).c_str());
  }
  const CredentialFiles::Paths all_ = {"", path_ + ".authority", path_ + ".pem", path_ + ".key"};
  const TestAuthority authority_{"authority"};
};

TEST_F(CertificateFilesTest, ARenewedCertificateIsUsed) {
  WriteAll(authority_.Issue("URI:cell://client/a"));
  const std::shared_ptr<CredentialFiles> files = *CredentialFiles::Open(all_);
  EXPECT_EQ(files->Current(0)->tls->certified(), (Identity{Role::kClient, "a"}));
  WriteAll(authority_.Issue("URI:cell://client/b"));
  EXPECT_EQ(files->Current(kSecond)->tls->certified(), (Identity{Role::kClient, "b"}));
}

TEST_F(CertificateFilesTest, AKeyIsForItsOwnerAlone) {
  for (const mode_t mode : {0644, 0660, 0602}) {
    WriteAll(authority_.Issue("URI:cell://client/a"), mode);
    const absl::Status status = CredentialFiles::Open(all_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << mode;
    EXPECT_NE(std::string(status.message()).find(".key can be read or changed"), std::string::npos) << status;
  }
}

TEST_F(CertificateFilesTest, AllThreeFilesAreNeeded) {
  WriteAll(authority_.Issue("URI:cell://client/a"));
  for (std::string CredentialFiles::Paths::*one :
       {&CredentialFiles::Paths::authority, &CredentialFiles::Paths::certificate, &CredentialFiles::Paths::key}) {
    CredentialFiles::Paths some = all_;
    (some.*one).clear();
    const absl::Status status = CredentialFiles::Open(some).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("needed together"), std::string::npos) << status;
  }
}

TEST_F(CredentialFilesTest, WhatIsNotValidReplacesNothing) {
  Write(ToLine(SecretOfText("a")));
  const std::shared_ptr<CredentialFiles> files = *CredentialFiles::Open({path_});
  Write("half a li");
  EXPECT_EQ(files->Current(2 * kSecond)->keys->Cluster(), SecretOfText("a"));
  ::unlink(path_.c_str());
  EXPECT_EQ(files->Current(4 * kSecond)->keys->Cluster(), SecretOfText("a"));
  Write(ToLine(SecretOfText("c")));
  EXPECT_EQ(files->Current(6 * kSecond)->keys->Cluster(), SecretOfText("c"));
}

TEST_F(CredentialFilesTest, IsWrittenForThisUserAloneAndReplacesNothingUnasked) {
  const Keyring first({SecretOfText("a")}), second({SecretOfText("b"), SecretOfText("a")});
  ASSERT_TRUE(WriteSecretFile(path_, first, /*replaces=*/false).ok());
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
  EXPECT_EQ(WriteSecretFile(path_, second, /*replaces=*/false).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadSecretFile(path_)->secrets(), first.secrets());
  ASSERT_TRUE(WriteSecretFile(path_, second, /*replaces=*/true).ok());
  EXPECT_EQ(ReadSecretFile(path_)->secrets(), second.secrets());
}

TEST_F(CredentialFilesTest, IsNotWrittenThroughASymbolicLink) {
  const std::string elsewhere = path_ + "-elsewhere";
  ASSERT_EQ(::symlink(elsewhere.c_str(), path_.c_str()), 0);
  EXPECT_EQ(WriteSecretFile(path_, Keyring({SecretOfText("a")}), /*replaces=*/false).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_NE(::access(elsewhere.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cell

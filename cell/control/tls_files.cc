#include "cell/control/tls_files.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <memory>

#include "absl/status/statusor.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// Reads one PEM object by OpenSSL's `read`.
template <typename T>
T* ReadPem(const std::string& text, T* (*read)(BIO*, T**, pem_password_cb*, void*)) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())),
                                                      &BIO_free);
  const auto no_password = [](char*, int, int, void*) { return 0; };  // Otherwise OpenSSL asks on the terminal.
  return read(bio.get(), nullptr, no_password, nullptr);
}

absl::StatusOr<Certificate> ReadCertificate(const std::string& flag, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadNamedFile(path));
  Certificate certificate(ReadPem<X509>(text, &PEM_read_bio_X509), &X509_free);
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(fmt::format("{} {} has no certificate in PEM", flag, path));
  }
  return certificate;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (!files.all()) {
    return absl::InvalidArgumentError("mutual TLS needs all three of --tls-certificate, --tls-key and --tls-authority");
  }
  ASSIGN_OR_RETURN(const Certificate authority, ReadCertificate("--tls-authority", files.authority));
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("--tls-certificate", files.certificate));
  ASSIGN_OR_RETURN(const std::string text, ReadNamedFile(files.key));
  struct stat status {};
  if (::stat(files.key.c_str(), &status) == 0 && (status.st_mode & 0007) != 0) {
    return absl::InvalidArgumentError(
        fmt::format("every user of this machine can use --tls-key {}: run chmod 600 {}", files.key, files.key));
  }
  const Key key(ReadPem<EVP_PKEY>(text, &PEM_read_bio_PrivateKey), &EVP_PKEY_free);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("--tls-key {} has no private key in PEM, or one that needs a password", files.key));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        fmt::format("--tls-key {} is not the key of --tls-certificate {}", files.key, files.certificate));
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return absl::InvalidArgumentError(fmt::format("--tls-certificate {} has expired: renew it", files.certificate));
  }
  return absl::OkStatus();
}

}  // namespace cell

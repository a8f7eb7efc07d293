// Makes certificates for tests: authorities, and certificates that these sign, as PEM files.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cell/base/check.h"
#include "cell/control/tls_files.h"

namespace cell {

class TestAuthority {
 public:
  // Writes files into this directory whose names begin with `name`.
  TestAuthority(std::string directory, std::string name)
      : prefix_(std::move(directory) + "/" + name), key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    Fill(certificate_.get(), key_.get(), "CN", name, 3600);
    Extend(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
    CELL_CHECK(X509_sign(certificate_.get(), key_.get(), EVP_sha256()) > 0);
    WriteCertificate(path(), certificate_.get());
  }

  std::string path() const { return prefix_ + ".pem"; }

  // Makes a certificate with these names, such as "URI:cell://operator/alice,DNS:localhost", which expires in
  // `seconds`. Returns its files, and `path()` as the authority. The same `file` replaces what was there.
  TlsFiles Issue(const std::string& file, const std::string& names, long seconds = 3600) const {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate certificate(X509_new());
    Fill(certificate.get(), key.get(), "CN", file, seconds);
    X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
    if (!names.empty()) Extend(certificate.get(), NID_subject_alt_name, names.c_str());
    CELL_CHECK(X509_sign(certificate.get(), key_.get(), EVP_sha256()) > 0);
    TlsFiles files;
    files.authority = path();
    files.certificate = prefix_ + "-" + file + ".pem";
    files.key = prefix_ + "-" + file + ".key";
    WriteCertificate(files.certificate, certificate.get());
    std::FILE* const out = Open(files.key);
    CELL_CHECK(PEM_write_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1);
    Close(out, files.key);
    return files;
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  static void Fill(X509* certificate, EVP_PKEY* key, const char* field, const std::string& name, long seconds) {
    static long serial = 1;
    X509_set_version(certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -7200);
    X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), field, MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  }
  static void Extend(X509* certificate, int what, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
    CELL_CHECK(extension != nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  static std::FILE* Open(const std::string& path) {
    std::FILE* const out = std::fopen((path + ".new").c_str(), "w");
    CELL_CHECK(out != nullptr);
    ::chmod((path + ".new").c_str(), 0600);
    return out;
  }
  static void Close(std::FILE* out, const std::string& path) {
    CELL_CHECK(std::fclose(out) == 0);
    CELL_CHECK(std::rename((path + ".new").c_str(), path.c_str()) == 0);
  }
  static void WriteCertificate(const std::string& path, X509* certificate) {
    std::FILE* const out = Open(path);
    CELL_CHECK(PEM_write_X509(out, certificate) == 1);
    Close(out, path);
  }

  const std::string prefix_;
  const Key key_;
  const Certificate certificate_;
};

}  // namespace cell

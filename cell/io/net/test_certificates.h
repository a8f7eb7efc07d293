// Makes certificate authorities and certificates for tests.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "cell/base/check.h"
#include "cell/io/net/tls_context.h"

namespace cell {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name) : key_(NewKey()), certificate_(Make(name, key_.get())) {
    Add("basicConstraints", "critical,CA:TRUE", certificate_.get());
    Sign(certificate_.get());
  }

  // Returns a certificate with this subject alternative name, such as URI:cell://server/server-0, or with none if it is
  // empty. It is valid from `from_s` to `to_s`, in seconds from now.
  TlsCertificate Issue(const std::string& subject, long from_s = -3600, long to_s = 3600) const {
    const KeyPtr key = NewKey();
    const CertificatePtr made = Make("peer", key.get(), from_s, to_s);
    ::X509_set_issuer_name(made.get(), ::X509_get_subject_name(certificate_.get()));
    if (!subject.empty()) Add("subjectAltName", subject, made.get());
    Sign(made.get());
    return {Pem(certificate_.get()), Pem(made.get()), Pem(key.get())};
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { ::X509_free(certificate); }
    void operator()(BIO* bio) const { ::BIO_free(bio); }
  };
  using KeyPtr = std::unique_ptr<EVP_PKEY, Free>;
  using CertificatePtr = std::unique_ptr<X509, Free>;

  static KeyPtr NewKey() { return KeyPtr(EVP_EC_gen("P-256")); }
  static CertificatePtr Make(const std::string& name, EVP_PKEY* key, long from_s = -3600, long to_s = 3600) {
    static long serial = 1;
    CertificatePtr made(::X509_new());
    ::X509_set_version(made.get(), 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(made.get()), serial++);
    ::X509_gmtime_adj(::X509_getm_notBefore(made.get()), from_s);
    ::X509_gmtime_adj(::X509_getm_notAfter(made.get()), to_s);
    X509_NAME* subject = ::X509_get_subject_name(made.get());
    ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                                 -1, 0);
    ::X509_set_issuer_name(made.get(), subject);
    ::X509_set_pubkey(made.get(), key);
    return made;
  }
  static void Add(const char* name, const std::string& value, X509* to) {
    X509_EXTENSION* extension = ::X509V3_EXT_conf(nullptr, nullptr, name, value.c_str());
    CELL_CHECK_NE(extension, nullptr);
    ::X509_add_ext(to, extension, -1);
    ::X509_EXTENSION_free(extension);
  }
  void Sign(X509* certificate) const { CELL_CHECK(::X509_sign(certificate, key_.get(), ::EVP_sha256()) > 0); }
  static std::string TextOf(BIO* bio) {
    char* text = nullptr;
    const long bytes = BIO_get_mem_data(bio, &text);
    return {text, static_cast<size_t>(bytes)};
  }
  static std::string Pem(X509* certificate) {
    const std::unique_ptr<BIO, Free> bio(::BIO_new(::BIO_s_mem()));
    CELL_CHECK_EQ(::PEM_write_bio_X509(bio.get(), certificate), 1);
    return TextOf(bio.get());
  }
  static std::string Pem(EVP_PKEY* key) {
    const std::unique_ptr<BIO, Free> bio(::BIO_new(::BIO_s_mem()));
    CELL_CHECK_EQ(::PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr), 1);
    return TextOf(bio.get());
  }

  const KeyPtr key_;
  const CertificatePtr certificate_;
};

}  // namespace cell

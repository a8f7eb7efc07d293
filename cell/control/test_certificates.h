// Writes certificates for tests to PEM files.
#pragma once

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "cell/base/check.h"
#include "cell/control/tls_files.h"
#include "cell/io/net/test_certificates.h"

namespace cell {

class AuthorityFiles {
 public:
  // Writes files into this directory whose names begin with `name`.
  AuthorityFiles(const std::string& directory, const std::string& name)
      : prefix_(directory + "/" + name), authority_(name) {
    Write(path(), authority_.Issue("").authority);
  }

  std::string path() const { return prefix_ + ".pem"; }

  // Makes a certificate with these names, such as "URI:cell://operator/alice,DNS:localhost", which expires in
  // `seconds`. Returns its files, and `path()` as the authority. The same `file` replaces what was there.
  TlsFiles Issue(const std::string& file, const std::string& names, long seconds = 3600) const {
    const TlsCertificate issued = authority_.Issue(names, -7200, seconds);
    TlsFiles files;
    files.authority = path();
    files.certificate = prefix_ + "-" + file + ".pem";
    files.key = prefix_ + "-" + file + ".key";
    Write(files.certificate, issued.certificate);
    Write(files.key, issued.key);
    return files;
  }

 private:
  // Replaces a file as a whole.
  static void Write(const std::string& path, const std::string& text) {
    CELL_CHECK(static_cast<bool>(std::ofstream(path + ".new") << text << std::flush));
    ::chmod((path + ".new").c_str(), 0600);
    CELL_CHECK_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  }

  const std::string prefix_;
  const TestAuthority authority_;
};

}  // namespace cell

// Names the files of mutual TLS, and checks them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cell {

struct TlsFiles {
  std::string authority;    // PEM files: who signs the certificates of the other side...
  std::string certificate;  // ...our own...
  std::string key;          // ...and its key.

  bool any() const { return !authority.empty() || !certificate.empty() || !key.empty(); }
  bool all() const { return !authority.empty() && !certificate.empty() && !key.empty(); }
};

// Returns InvalidArgument, with what to do, unless all three are given, can be read, are what they should be and belong
// together, and the certificate has not expired.
absl::Status CheckTlsFiles(const TlsFiles& files);

}  // namespace cell

#include "cell/cluster/zookeeper/digest_file.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>

#include <array>
#include <string_view>

#include "absl/strings/escaping.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/text_file.h"
#include "fmt/format.h"

namespace cell {

absl::StatusOr<std::string> ReadZooKeeperDigest(const std::string& path) {
  ASSIGN_OR_RETURN(std::string digest, ReadNamedFile(path));
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 0077) != 0) {
    return absl::InvalidArgumentError(fmt::format("others can read {}: run chmod 600 {}", path, path));
  }
  while (digest.ends_with('\n') || digest.ends_with('\r')) digest.pop_back();
  const size_t colon = digest.find(':');
  const bool one_line = digest.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos;
  if (colon == std::string::npos || colon == 0 || colon + 1 == digest.size() || !one_line) {
    return absl::InvalidArgumentError(fmt::format("{} must have one line, USER:PASSWORD", path));
  }
  return digest;
}

std::string ReaderOf(std::string_view digest) {
  const size_t colon = digest.find(':');
  const std::string_view password = digest.substr(colon + 1);
  constexpr std::string_view kPurpose = "cell zookeeper reader";
  std::array<unsigned char, EVP_MAX_MD_SIZE> mac;
  unsigned int bytes = 0;
  CELL_CHECK_NE(::HMAC(::EVP_sha256(), password.data(), static_cast<int>(password.size()),
                       reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(), mac.data(), &bytes),
                nullptr);
  const std::string_view text(reinterpret_cast<const char*>(mac.data()), bytes);
  return fmt::format("{}-reader:{}", digest.substr(0, colon), absl::BytesToHexString({text.data(), text.size()}));
}

bool IsReader(std::string_view digest) { return digest.substr(0, digest.find(':')).ends_with("-reader"); }

std::string AclIdOf(std::string_view digest) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash;
  unsigned int bytes = 0;
  CELL_CHECK_EQ(::EVP_Digest(digest.data(), digest.size(), hash.data(), &bytes, ::EVP_sha1(), nullptr), 1);
  return fmt::format("{}:{}", digest.substr(0, digest.find(':')),
                     absl::Base64Escape({reinterpret_cast<const char*>(hash.data()), bytes}));
}

}  // namespace cell

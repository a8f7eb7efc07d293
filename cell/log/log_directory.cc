#include "cell/log/log_directory.h"

#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/file/text_file.h"
#include "cell/io/net/fd.h"
#include "cell/log/directory_log_store.h"
#include "fmt/format.h"

namespace cell {
namespace {

std::string ClaimPath(const std::string& directory) { return directory + "/cluster"; }

// Returns how the names of files begin in which the cluster's servers compose their claims.
std::string UnfinishedClaim(const std::string& uuid) { return fmt::format("cluster.{}.", uuid); }

absl::Status Anothers(const std::string& directory, const std::string& whose, const std::string& uuid) {
  return absl::FailedPreconditionError(fmt::format(
      "{} has the logs of {}, but this is {}: give this cluster's log directory, or an empty one (--log-dir)",
      directory, whose, uuid.empty() ? "one of an earlier release" : "cluster " + uuid));
}

// Checks a directory. Sets *claimed if the cluster's claim is there.
absl::Status Check(const std::string& directory, const std::string& uuid, bool* claimed) {
  *claimed = false;
  PosixFiles files;
  const absl::StatusOr<std::vector<std::string>> names = files.List(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  RETURN_IF_ERROR(names.status());
  if (const std::optional<std::string> theirs = FirstLineOf(ClaimPath(directory))) {
    *claimed = true;
    return *theirs == uuid ? absl::OkStatus() : Anothers(directory, "cluster " + *theirs, uuid);
  }
  if (uuid.empty()) return absl::OkStatus();
  for (const std::string& name : *names) {
    if (name.rfind("region-", 0) == 0) return Anothers(directory, "a cluster of an earlier release", uuid);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLogDirectory(const std::string& directory, const std::string& uuid) {
  bool claimed;
  return Check(directory, uuid, &claimed);
}

absl::Status ClaimLogDirectory(const std::string& directory, const std::string& uuid) {
  PosixFiles files;
  RETURN_IF_ERROR(files.MakeDirectory(directory));
  bool claimed;
  RETURN_IF_ERROR(Check(directory, uuid, &claimed));
  if (claimed || uuid.empty()) return absl::OkStatus();
  // A link appears with all of its content, and fails if another server's claim is there already.
  const std::string made = fmt::format("{}/{}{}", directory, UnfinishedClaim(uuid), ::getpid());
  (void)files.Remove(made);  // A former process with the same id may have left it.
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Create(made));
    RETURN_IF_ERROR(file->Append(uuid + "\n"));
    RETURN_IF_ERROR(file->Sync());
  }
  const bool linked = ::link(made.c_str(), ClaimPath(directory).c_str()) == 0;
  const int error = errno;
  RETURN_IF_ERROR(files.Remove(made));
  if (!linked && error != EEXIST) {
    errno = error;
    return ErrnoError(absl::StatusCode::kUnavailable, fmt::format("cannot create {}", ClaimPath(directory)));
  }
  RETURN_IF_ERROR(files.SyncDirectory(directory));
  return Check(directory, uuid, &claimed);
}

absl::Status RemoveLogDirectory(const std::string& directory, const std::string& uuid) {
  bool claimed;
  RETURN_IF_ERROR(Check(directory, uuid, &claimed));
  PosixFiles files;
  RETURN_IF_ERROR(DirectoryLogStore(&files, directory).RemoveAll());
  if (claimed) RETURN_IF_ERROR(files.Remove(ClaimPath(directory)));
  // A server that was interrupted while it claimed the directory has left a file.
  if (const auto names = files.List(directory); names.ok() && !uuid.empty()) {
    for (const std::string& name : *names) {
      if (name.starts_with(UnfinishedClaim(uuid))) RETURN_IF_ERROR(files.Remove(fmt::format("{}/{}", directory, name)));
    }
  }
  (void)files.Remove(directory);  // Fails if the directory has other files, which stay.
  return absl::OkStatus();
}

}  // namespace cell

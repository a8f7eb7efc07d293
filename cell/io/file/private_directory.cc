#include "cell/io/file/private_directory.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "cell/base/status_macros.h"
#include "cell/io/net/fd.h"
#include "fmt/format.h"

namespace cell {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // As many as Linux follows.

bool Trusted(uid_t owner, const PathUser& user) {
  return owner == 0 || owner == user.user || owner == user.stands_for_root;
}

absl::Status Refused(const std::string& why) { return absl::FailedPreconditionError(why); }

absl::StatusOr<PathFacts> FactsOf(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    const auto code = errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable;
    return ErrnoError(code, fmt::format("cannot look at {}", path.string()));
  }
  return PathFacts{info.st_uid, info.st_mode};
}

// Checks the steps of an absolute path up to the first link. Returns the path with that link followed, or nullopt if
// there is none.
absl::StatusOr<std::optional<fs::path>> CheckUntilLink(const fs::path& path, const PathUser& user) {
  fs::path at;
  for (auto step = path.begin(); step != path.end(); ++step) {
    at /= *step;
    const bool last = std::next(step) == path.end();
    ASSIGN_OR_RETURN(const PathFacts facts, FactsOf(at));
    if (S_ISLNK(facts.mode)) {
      RETURN_IF_ERROR(CheckLink(at.string(), facts, user));
      std::error_code error;
      fs::path target = at.parent_path() / fs::read_symlink(at, error);  // An absolute target replaces all before it.
      if (error) return absl::UnavailableError(fmt::format("cannot read the link {}", at.string()));
      for (++step; step != path.end(); ++step) target /= *step;
      return target;
    }
    RETURN_IF_ERROR(last ? CheckOwnDirectory(at.string(), facts, user) : CheckDirectoryAbove(at.string(), facts, user));
  }
  return std::nullopt;
}

}  // namespace

PathUser ThisUser() {
  PathUser user{::geteuid(), 0};
  // "inside outside count" for each range: the machine itself has all users as they are.
  std::ifstream map("/proc/self/uid_map");
  uint64_t inside, outside, count;
  bool root_is_there = false;
  while (map >> inside >> outside >> count) root_is_there = root_is_there || outside == 0;
  if (!root_is_there && map.eof()) std::ifstream("/proc/sys/kernel/overflowuid") >> user.stands_for_root;
  return user;
}

absl::Status CheckOwnDirectory(const std::string& path, const PathFacts& facts, const PathUser& user) {
  if (!S_ISDIR(facts.mode)) return Refused(fmt::format("{} is not a directory", path));
  if (!Trusted(facts.owner, user)) {
    return Refused(
        fmt::format("{} belongs to user {}, who could read and replace what is kept there: use a directory of this "
                    "user, {}",
                    path, facts.owner, user.user));
  }
  if ((facts.mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Refused(fmt::format(
        "other users can write to {} (mode {:o}): use another directory, or look that all in it is this user's and "
        "close it to others (chmod 700 '{}')",
        path, facts.mode & 07777, path));
  }
  return absl::OkStatus();
}

absl::Status CheckDirectoryAbove(const std::string& path, const PathFacts& facts, const PathUser& user) {
  if (!Trusted(facts.owner, user)) {
    return Refused(fmt::format("{} belongs to user {}, who could replace what is in it: use a directory elsewhere",
                               path, facts.owner));
  }
  if ((facts.mode & S_IWOTH) != 0 && (facts.mode & S_ISVTX) == 0) {
    return Refused(fmt::format(
        "other users can replace what is in {} (mode {:o}): use a directory elsewhere, or take that right away "
        "(chmod o-w '{}')",
        path, facts.mode & 07777, path));
  }
  return absl::OkStatus();
}

absl::Status CheckLink(const std::string& path, const PathFacts& facts, const PathUser& user) {
  if (Trusted(facts.owner, user)) return absl::OkStatus();
  return Refused(fmt::format("{} is a symbolic link of user {}, who decides where it leads: use another directory",
                             path, facts.owner));
}

absl::Status CheckPrivateDirectory(const std::string& directory) {
  const PathUser user = ThisUser();
  std::error_code error;
  fs::path path = fs::absolute(directory, error);
  if (error) return absl::UnavailableError(fmt::format("cannot find {}: {}", directory, error.message()));
  if (path.filename().empty()) path = path.parent_path();  // "DIR/"
  for (int links = 0; links <= kLinksMax; ++links) {
    ASSIGN_OR_RETURN(std::optional<fs::path> followed, CheckUntilLink(path, user));
    if (!followed.has_value()) return absl::OkStatus();
    path = *std::move(followed);
  }
  return absl::UnavailableError(fmt::format("{} leads through too many symbolic links", directory));
}

bool OthersCanRead(const std::string& directory) {
  struct stat info {};
  return ::stat(directory.c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0;
}

bool CloseToOthers(const std::string& directory) {
  struct stat info {};
  if (::stat(directory.c_str(), &info) != 0 || info.st_uid != ::geteuid()) return false;
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return false;
  return ::chmod(directory.c_str(), info.st_mode & 07777 & ~(S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace cell

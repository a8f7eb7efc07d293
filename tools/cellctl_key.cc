// cellctl: makes and replaces the keys by which logs and backups are encrypted.
#include <sys/random.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/posix_files.h"
#include "cell/io/file/private_file.h"
#include "cell/log/data_keys.h"
#include "cell/log/keys_needed.h"
#include "cell/log/place/log_place.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"

namespace cell {
namespace {

DataKey NewKey() {
  DataKey key;
  CELL_CHECK_EQ(::getrandom(key.key.data(), key.key.size(), 0), static_cast<ssize_t>(key.key.size()));
  return key;
}

absl::Status Rotate(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const DataKeys before, ReadKeyFile(flags.file));
  if (before.all().size() == DataKeys::kKeysMax) {
    return absl::ResourceExhaustedError(fmt::format("{} has {} keys, the limit: retire them (cellctl data-key retire)",
                                                    flags.file, DataKeys::kKeysMax));
  }
  std::vector<DataKey> keys = {NewKey()};
  keys.insert(keys.end(), before.all().begin(), before.all().end());
  return WritePrivateFile(flags.file, DataKeys(std::move(keys)).ToText(), /*replaces=*/true);
}

// Looks at the logs in the place that was given: a directory, or as cell_server's --log-store.
absl::StatusOr<KeysNeeded> Needed(const CtlFlags& flags) {
  LogPlace place = LogPlace::Directory(flags.logs);
  if (const absl::StatusOr<LogPlace> parsed = LogPlace::Parse(flags.logs); parsed.ok()) place = *parsed;
  ASSIGN_OR_RETURN(const std::shared_ptr<LogStore> store, ViewLogs(place));
  ASSIGN_OR_RETURN(KeysNeeded needed, FindKeysNeeded(store.get()));
  if (!needed.by_key.empty() || needed.plain.count > 0) return needed;
  return absl::InvalidArgumentError(
      fmt::format("there are no logs in {}: --logs takes the servers' --log-dir or --log-store, which is DIR/log for a "
                  "cluster that up has made in DIR",
                  flags.logs));
}

absl::Status Retire(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const DataKeys before, ReadKeyFile(flags.file));
  if (flags.logs.empty() && !flags.yes) {
    return absl::InvalidArgumentError(
        "without the old keys, what they have encrypted is lost: give --logs DIR, so that the logs there are looked at "
        "first, or --yes if nothing needs them any more");
  }
  if (!flags.logs.empty()) {
    ASSIGN_OR_RETURN(const KeysNeeded needed, Needed(flags));
    const std::string kept = IdText(before.newest().id());
    for (const auto& [id, files] : needed.by_key) {
      if (id == kept) continue;
      return absl::FailedPreconditionError(
          fmt::format("{} files need key {}, {} is one of them: {} was left as it is. Let all servers have {}, and run "
                      "cellctl checkpoint",
                      files.count, id, files.example, flags.file, flags.file));
    }
    if (!needed.by_key.contains(kept)) {  // Such as another cluster's logs, or ones without encryption.
      return absl::FailedPreconditionError(fmt::format(
          "no file in {} needs key {}, which would be left: are these the right logs, and have the servers made a "
          "checkpoint since the rotation? (--yes instead of --logs asks nothing)",
          flags.logs, kept));
    }
  }
  return WritePrivateFile(flags.file, DataKeys({before.newest()}).ToText(), /*replaces=*/true);
}

// Lists keys, those that logs need and that the file does not have, too.
absl::Status Show(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const DataKeys keys, ReadKeyFile(flags.file));
  KeysNeeded needed;
  if (!flags.logs.empty()) {
    ASSIGN_OR_RETURN(needed, Needed(flags));
  }
  nlohmann::json list = nlohmann::json::array();
  const auto add = [&](const std::string& id, bool there) {
    nlohmann::json key = {{"id", id}, {"encrypts", list.empty()}};
    std::string text = id + (list.empty() ? "  encrypts" : "");
    if (!flags.logs.empty()) {
      const uint64_t files = needed.by_key[id].count;
      key["log_files"] = files;
      text += fmt::format("  {} {}", files, files == 1 ? "file" : "files");
    }
    if (!there) {
      key["missing"] = true;
      text += fmt::format("  not in {}", flags.file);
    }
    list.push_back(std::move(key));
    if (!flags.json()) fmt::print("{}\n", text);
  };
  for (const DataKey& key : keys.all()) add(IdText(key.id()), true);
  std::vector<std::string> missing;
  for (const auto& [id, files] : needed.by_key) {
    const bool there = std::any_of(keys.all().begin(), keys.all().end(),
                                   [&id = id](const DataKey& key) { return IdText(key.id()) == id; });
    if (!there) missing.push_back(id);
  }
  for (const std::string& id : missing) add(id, false);
  if (flags.json()) {
    fmt::print("{}\n", list.dump());
  } else if (needed.plain.count > 0) {
    fmt::print("{} files are not encrypted, {} is one of them\n", needed.plain.count, needed.plain.example);
  }
  return absl::OkStatus();
}

int Report(const absl::Status& status) { return status.ok() ? kDone : Fail(status); }

}  // namespace

int KeyNew(Client*, const CtlFlags& flags) {
  return Report(WritePrivateFile(flags.file, DataKeys({NewKey()}).ToText(), /*replaces=*/false));
}

int KeyRotate(Client*, const CtlFlags& flags) { return Report(Rotate(flags)); }
int KeyRetire(Client*, const CtlFlags& flags) { return Report(Retire(flags)); }

int KeyShow(Client*, const CtlFlags& flags) { return Report(Show(flags)); }

}  // namespace cell

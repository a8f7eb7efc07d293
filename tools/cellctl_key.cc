// cellctl: makes and replaces the keys by which logs and backups are encrypted.
#include <sys/random.h>

#include <vector>

#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/io/file/private_file.h"
#include "cell/log/data_keys.h"
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

absl::Status Retire(const CtlFlags& flags) {
  ASSIGN_OR_RETURN(const DataKeys before, ReadKeyFile(flags.file));
  return WritePrivateFile(flags.file, DataKeys({before.newest()}).ToText(), /*replaces=*/true);
}

int Report(const absl::Status& status) { return status.ok() ? kDone : Fail(status); }

}  // namespace

int KeyNew(Client*, const CtlFlags& flags) {
  return Report(WritePrivateFile(flags.file, DataKeys({NewKey()}).ToText(), /*replaces=*/false));
}

int KeyRotate(Client*, const CtlFlags& flags) { return Report(Rotate(flags)); }
int KeyRetire(Client*, const CtlFlags& flags) { return Report(Retire(flags)); }

int KeyShow(Client*, const CtlFlags& flags) {
  const absl::StatusOr<DataKeys> keys = ReadKeyFile(flags.file);
  if (!keys.ok()) return Fail(keys.status());
  nlohmann::json list = nlohmann::json::array();
  for (const DataKey& key : keys->all()) {
    list.push_back({{"id", IdText(key.id())}, {"encrypts", list.empty()}});
    if (!flags.json()) fmt::print("{}{}\n", IdText(key.id()), list.size() == 1 ? "  encrypts" : "");
  }
  if (flags.json()) fmt::print("{}\n", list.dump());
  return kDone;
}

}  // namespace cell

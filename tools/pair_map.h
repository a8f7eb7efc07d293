// PairMap is the tree or a Pilaf table, whichever the user named.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cell/base/status_macros.h"
#include "cell/client/client.h"

namespace cell {

class PairMap {
 public:
  // Opens `table`, or the tree if it is empty. Returns NotFound if there is no such table.
  static absl::StatusOr<PairMap> Open(Client* client, const std::string& table) {
    PairMap map(client);
    if (table.empty()) {
      RETURN_IF_ERROR(client->Connect());
      return map;
    }
    ASSIGN_OR_RETURN(Table opened, client->OpenTable(table));
    map.table_ = std::make_unique<Table>(std::move(opened));
    return map;
  }

  void set_serializable(bool serializable) {
    if (table_ != nullptr) table_->set_serializable(serializable);
  }

  Task<absl::StatusOr<std::optional<std::string>>> AsyncGet(std::string_view key) {
    return table_ != nullptr ? table_->AsyncGet(key) : client_->AsyncGet(key);
  }
  Task<absl::StatusOr<bool>> AsyncContains(std::string_view key) {
    return table_ != nullptr ? table_->AsyncContains(key) : client_->AsyncContains(key);
  }
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value) {
    return table_ != nullptr ? table_->AsyncPut(key, value) : client_->AsyncPut(key, value);
  }
  Task<absl::StatusOr<bool>> AsyncPut(std::string_view key, std::string_view value, Expires expires) {
    return table_ != nullptr ? table_->AsyncPut(key, value, expires) : client_->AsyncPut(key, value, expires);
  }
  Task<absl::StatusOr<WriteIfResult>> AsyncPutIf(std::string_view key, std::string_view value, Expires expires,
                                                 Condition condition) {
    return table_ != nullptr ? table_->AsyncPutIf(key, value, expires, condition)
                             : client_->AsyncPutIf(key, value, expires, condition);
  }
  Task<absl::StatusOr<WriteIfResult>> AsyncDeleteIf(std::string_view key, Condition condition) {
    return table_ != nullptr ? table_->AsyncDeleteIf(key, condition) : client_->AsyncDeleteIf(key, condition);
  }
  // `function` must live until the task has ended.
  Task<absl::StatusOr<ApplyResult>> AsyncApply(std::string_view key, const FunctionCall& function) {
    return table_ != nullptr ? table_->AsyncApply(key, function) : client_->AsyncApply(key, function);
  }
  Task<absl::StatusOr<std::string>> AsyncEvaluate(std::string_view key, const FunctionCall& function) {
    return table_ != nullptr ? table_->AsyncEvaluate(key, function) : client_->AsyncEvaluate(key, function);
  }
  Task<absl::StatusOr<std::optional<int64_t>>> AsyncTimeLeftNs(std::string_view key) {
    return table_ != nullptr ? table_->AsyncTimeLeftNs(key) : client_->AsyncTimeLeftNs(key);
  }
  Task<absl::StatusOr<bool>> AsyncDelete(std::string_view key) {
    return table_ != nullptr ? table_->AsyncDelete(key) : client_->AsyncDelete(key);
  }

 private:
  explicit PairMap(Client* client) : client_(client) {}

  Client* client_;
  std::unique_ptr<Table> table_;  // Null: the tree.
};

}  // namespace cell

// cellctl tx: runs a script as one transaction.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "cell/functions/functions.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"
#include "tools/command_line.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

// A command of scripts. All but scan can be used with tables, too, as in "hash get TABLE KEY".
struct ScriptCommand {
  std::string_view name;
  size_t arguments_min, arguments_max;
  std::string_view form;  // Of its arguments.
};

constexpr std::array kCommands = {
    ScriptCommand{"get", 1, 1, "KEY"},          ScriptCommand{"put", 2, 2, "KEY VALUE"},
    ScriptCommand{"del", 1, 1, "KEY"},          ScriptCommand{"add", 2, 2, "KEY NUMBER"},
    ScriptCommand{"expect", 2, 2, "KEY VALUE"}, ScriptCommand{"absent", 1, 1, "KEY"},
    ScriptCommand{"scan", 1, 2, "FROM [TO]"},
};

struct ScriptLine {
  size_t number;
  std::string command = {};
  std::optional<std::string> table = {};  // nullopt: the tree.
  std::vector<std::string> arguments = {};
};

using Tables = std::map<std::string, Table>;  // By name.

// Returns the status with the line's number in its message.
absl::Status AtLine(size_t number, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("line {}: {}", number, std::string(status.message())));
}

absl::StatusOr<ScriptLine> ParseLine(size_t number, std::vector<std::string> words) {
  const bool of_table = words[0] == "hash" && words.size() > 1;
  const std::string name = of_table ? words[1] : words[0];
  const auto* const command =
      std::find_if(kCommands.begin(), kCommands.end(), [&name](const ScriptCommand& one) { return one.name == name; });
  if (command == kCommands.end() || (of_table && name == "scan")) {
    return absl::InvalidArgumentError(fmt::format(
        "there is no command {}; there are get, put, del, add, expect, absent and scan, and, for tables, hash get, "
        "hash put, hash del, hash add, hash expect and hash absent",
        ForMessage(of_table ? "hash " + name : name)));
  }
  const size_t before = of_table ? 3 : 1;
  if (words.size() < before + command->arguments_min || words.size() > before + command->arguments_max) {
    return absl::InvalidArgumentError(
        fmt::format("write: {}{}{} {}", of_table ? "hash " : "", name, of_table ? " TABLE" : "", command->form));
  }
  ScriptLine line{.number = number, .command = name};
  if (of_table) line.table = std::move(words[2]);
  words.erase(words.begin(), words.begin() + static_cast<ptrdiff_t>(before));
  line.arguments = std::move(words);
  if (name == "add") {
    const std::string wrong = SignedNumber()(line.arguments[1]);  // As for incr.
    if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  }
  if (name == "scan" && line.arguments.size() == 2) {
    RETURN_IF_ERROR(CheckRange(line.arguments[0], line.arguments[1]));
  }
  return line;
}

absl::StatusOr<std::vector<ScriptLine>> ReadScript(const std::string& file) {
  std::ifstream opened;
  if (file != "-") {
    if (std::filesystem::is_directory(file)) {
      return absl::InvalidArgumentError(fmt::format("\"{}\" is a directory, and not a script", file));
    }
    opened.open(file, std::ios::binary);
    if (!opened.is_open()) return absl::NotFoundError(fmt::format("cannot read \"{}\"", file));
  }
  std::istream& in = file == "-" ? std::cin : opened;
  const std::string text(std::istreambuf_iterator<char>(in), {});
  std::vector<ScriptLine> lines;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    ++number;
    const std::string_view written = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const size_t first = written.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || written[first] == '#') continue;
    absl::StatusOr<std::vector<std::string>> words = SplitWords(written);
    if (!words.ok()) return AtLine(number, words.status());
    absl::StatusOr<ScriptLine> line = ParseLine(number, *std::move(words));
    if (!line.ok()) return AtLine(number, line.status());
    lines.push_back(*std::move(line));
  }
  return lines;
}

// Opens each table that the lines name.
absl::StatusOr<Tables> OpenTables(Client* client, const std::vector<ScriptLine>& lines) {
  Tables tables;
  for (const ScriptLine& line : lines) {
    if (!line.table.has_value() || tables.contains(*line.table)) continue;
    absl::StatusOr<Table> table = client->OpenTable(*line.table);
    if (!table.ok()) return AtLine(line.number, table.status());
    tables.emplace(*line.table, *std::move(table));
  }
  return tables;
}

using Value = std::optional<std::string>;

std::string Shown(const Value& value) {
  if (!value.has_value()) return "(absent)";
  return value->empty() ? "(empty)" : EscapeText(*value);
}

// Returns the sum of a value and a number, as incr makes it.
absl::StatusOr<std::string> Sum(const Value& value, std::string_view number) {
  ASSIGN_OR_RETURN(FunctionOutput sum, Functions().Find("add-decimal")->run({value, number}));
  return std::move(sum.result);
}

// Runs one line. Adds what it has read to *output. Sets *unmet if it expects something else.
absl::Status RunLine(Transaction* transaction, const Tables& tables, const ScriptLine& line, nlohmann::json* output,
                     std::string* unmet) {
  const std::string& command = line.command;
  const std::vector<std::string>& arguments = line.arguments;
  const std::string& key = arguments[0];  // Of a scan, where it begins.
  const Table* const table = line.table.has_value() ? &tables.at(*line.table) : nullptr;
  const auto put = [&](const std::string& value) {
    return table != nullptr ? transaction->Put(*table, key, value) : transaction->Put(key, value);
  };
  if (command == "put") return put(arguments[1]);
  if (command == "del") return table != nullptr ? transaction->Delete(*table, key) : transaction->Delete(key);
  if (command == "scan") {
    ScanOptions options{.from = key};
    if (arguments.size() == 2) options.to = arguments[1];
    ASSIGN_OR_RETURN(const Transaction::Pairs pairs, transaction->Scan(options));
    for (const auto& [found, value] : pairs) {
      output->push_back({{"key", BytesAsJson(found)}, {"value", BytesAsJson(value)}});
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Value value, table != nullptr ? transaction->Get(*table, key) : transaction->Get(key));
  if (command == "get") {
    nlohmann::json pair = {{"key", BytesAsJson(key)}, {"value", nullptr}};
    if (value.has_value()) pair["value"] = BytesAsJson(*value);
    if (table != nullptr) pair["table"] = *line.table;
    output->push_back(std::move(pair));
    return absl::OkStatus();
  }
  if (command == "add") {
    ASSIGN_OR_RETURN(const std::string sum, Sum(value, arguments[1]));
    return put(sum);
  }
  const Value expected = command == "absent" ? Value() : Value(arguments[1]);
  const std::string where = table != nullptr ? fmt::format(" in table {}", *line.table) : "";
  if (value != expected) *unmet = fmt::format("line {}: {}{} is {}", line.number, EscapeText(key), where, Shown(value));
  return absl::OkStatus();
}

void Print(const nlohmann::json& output) {
  for (const nlohmann::json& pair : output) {
    const std::string key = *BytesFromJson(pair.at("key"));
    if (pair.at("value").is_null()) {
      fmt::print("{}\n", EscapeText(key));
    } else {
      fmt::print("{}\t{}\n", EscapeText(key), EscapeText(*BytesFromJson(pair.at("value"))));
    }
  }
}

}  // namespace

int RunScript(Client* client, const CtlFlags& flags) {
  const absl::StatusOr<std::vector<ScriptLine>> lines = ReadScript(flags.file);
  if (!lines.ok()) return Fail(lines.status());
  const absl::StatusOr<Tables> tables = OpenTables(client, *lines);
  if (!tables.ok()) return Fail(tables.status());
  nlohmann::json output;
  std::string unmet;
  const auto body = [&](Transaction* transaction) -> absl::Status {
    output = nlohmann::json::array();
    unmet.clear();
    for (const ScriptLine& line : *lines) {
      RETURN_IF_ERROR(AtLine(line.number, RunLine(transaction, *tables, line, &output, &unmet)));
      if (!unmet.empty()) return absl::OutOfRangeError(unmet);  // Gives the transaction up.
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<Committed> committed = client->RunTransaction(body);
  client->FinishTransactions();
  if (!unmet.empty()) {
    if (flags.json()) {
      fmt::print("{}\n", nlohmann::json{{"committed", false}, {"unmet", unmet}}.dump());
    } else {
      fmt::print(stderr, "not committed: {}\n", unmet);
    }
    return kAbsent;
  }
  if (!committed.ok()) return Fail(committed.status());
  if (flags.json()) {
    nlohmann::json result = {{"committed", true}, {"read", output}};
    if (committed->stamp != 0) result["stamp"] = committed->stamp;  // Else it has written nothing.
    fmt::print("{}\n", result.dump());
  } else {
    Print(output);
  }
  return kDone;
}

}  // namespace cell

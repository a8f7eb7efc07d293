// cellctl tx: runs a script as one transaction.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/transaction.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"
#include "tools/command_line.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

// A line of a script: its number, and its words.
struct ScriptLine {
  size_t number;
  std::vector<std::string> words;
};

absl::Status Wrong(const ScriptLine& line, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", line.number, why));
}

absl::StatusOr<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return absl::InvalidArgumentError(fmt::format("{} is not a decimal number of 64 bits", ForMessage(text)));
}

absl::Status CheckLine(const ScriptLine& line) {
  const std::vector<std::string>& words = line.words;
  const auto takes = [&](size_t min, size_t max, const char* form) -> absl::Status {
    if (words.size() >= min && words.size() <= max) return absl::OkStatus();
    return Wrong(line, fmt::format("write: {}", form));
  };
  if (words[0] == "get") return takes(2, 2, "get KEY");
  if (words[0] == "put") return takes(3, 3, "put KEY VALUE");
  if (words[0] == "del") return takes(2, 2, "del KEY");
  if (words[0] == "expect") return takes(3, 3, "expect KEY VALUE");
  if (words[0] == "absent") return takes(2, 2, "absent KEY");
  if (words[0] == "scan") return takes(2, 3, "scan FROM [TO]");
  if (words[0] == "add") {
    RETURN_IF_ERROR(takes(3, 3, "add KEY NUMBER"));
    const absl::StatusOr<int64_t> number = NumberOf(words[2]);
    return number.ok() ? absl::OkStatus() : Wrong(line, std::string(number.status().message()));
  }
  return Wrong(line, fmt::format("there is no command {}; there are get, put, del, add, scan, expect and absent",
                                 ForMessage(words[0])));
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
    ScriptLine line{number, {}};
    if (!words.ok()) return Wrong(line, std::string(words.status().message()));
    line.words = *std::move(words);
    RETURN_IF_ERROR(CheckLine(line));
    lines.push_back(std::move(line));
  }
  return lines;
}

using Value = std::optional<std::string>;

std::string Shown(const Value& value) { return value.has_value() ? EscapeText(*value) : "(absent)"; }

// Runs one line. Adds what it has read to *output. Sets *unmet if it expects something else.
absl::Status RunLine(Transaction* transaction, const ScriptLine& line, nlohmann::json* output, std::string* unmet) {
  const std::vector<std::string>& words = line.words;
  if (words[0] == "put") return transaction->Put(words[1], words[2]);
  if (words[0] == "del") return transaction->Delete(words[1]);
  if (words[0] == "scan") {
    ScanOptions options{.from = words[1]};
    if (words.size() == 3) options.to = words[2];
    ASSIGN_OR_RETURN(const Transaction::Pairs pairs, transaction->Scan(options));
    for (const auto& [key, value] : pairs) {
      output->push_back({{"key", BytesAsJson(key)}, {"value", BytesAsJson(value)}});
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Value value, transaction->Get(words[1]));
  if (words[0] == "get") {
    output->push_back({{"key", BytesAsJson(words[1])}, {"value", nullptr}});
    if (value.has_value()) output->back()["value"] = BytesAsJson(*value);
    return absl::OkStatus();
  }
  if (words[0] == "add") {
    const absl::StatusOr<int64_t> before = NumberOf(value.value_or("0"));
    if (!before.ok())
      return absl::FailedPreconditionError(fmt::format("line {}: the value of {}, {}", line.number,
                                                       EscapeText(words[1]), std::string(before.status().message())));
    int64_t sum = 0;
    if (__builtin_add_overflow(*before, *NumberOf(words[2]), &sum)) {
      return absl::OutOfRangeError(
          fmt::format("line {}: the sum of {} and {} is too large", line.number, *before, words[2]));
    }
    return transaction->Put(words[1], std::to_string(sum));
  }
  const Value expected = words[0] == "absent" ? Value() : Value(words[2]);
  if (value != expected) *unmet = fmt::format("line {}: {} is {}", line.number, EscapeText(words[1]), Shown(value));
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
  nlohmann::json output;
  std::string unmet;
  const auto body = [&](Transaction* transaction) -> absl::Status {
    output = nlohmann::json::array();
    unmet.clear();
    for (const ScriptLine& line : *lines) {
      RETURN_IF_ERROR(RunLine(transaction, line, &output, &unmet));
      if (!unmet.empty()) return absl::OutOfRangeError(unmet);  // Gives the transaction up.
    }
    return absl::OkStatus();
  };
  const absl::StatusOr<Committed> committed = client->RunTransaction(body);
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
    fmt::print("{}\n", nlohmann::json{{"committed", true}, {"stamp", committed->stamp}, {"read", output}}.dump());
  } else {
    Print(output);
  }
  return kDone;
}

}  // namespace cell

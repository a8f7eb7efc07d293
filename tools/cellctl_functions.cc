// cellctl: applies functions of the servers to values, and evaluates them.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_split.h"
#include "cell/base/status_macros.h"
#include "cell/client/functions.h"
#include "cell/functions/functions.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "tools/cellctl_commands.h"
#include "tools/pair_map.h"
#include "tools/pair_text.h"

namespace cell {
namespace {

constexpr std::string_view kTypes = "i8, u8, i16, u16, i32, u32, i64, u64, f32 or f64";

bool Compares(std::string_view function) { return function == "count" || function == "filter"; }

// Returns whether this is a built-in function of elements, whose argument names their type.
bool TakesElements(std::string_view function) {
  static const std::set<std::string_view> kOfElements = {"add", "add-checked", "min", "max",   "and",
                                                         "or",  "xor",         "sum", "least", "greatest"};
  return Compares(function) || kOfElements.contains(function);
}

// Makes a function's argument of what was given: a predicate, elements, a type alone, or bytes as they are.
absl::StatusOr<std::string> ArgumentOf(const CtlFlags& flags) {
  if (Compares(flags.function) && flags.where.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{} compares elements, so it needs --where: eq, ne, lt, le, gt or ge, and ARGUMENT", flags.function));
  }
  if (flags.type.empty()) {
    if (!flags.where.empty()) {
      return absl::InvalidArgumentError(fmt::format("--where compares elements, so it needs their --type: {}", kTypes));
    }
    if (!TakesElements(flags.function)) return flags.argument;
    return absl::InvalidArgumentError(
        fmt::format("{} is a function of elements, so it needs their --type: {}", flags.function, kTypes));
  }
  ASSIGN_OR_RETURN(const ElementType type, ParseElementType(flags.type));
  std::string elements;
  if (!flags.argument.empty()) {
    ASSIGN_OR_RETURN(elements, ParseElements(type, flags.argument));
  }
  const std::string argument = MakeArgument(type, elements);
  if (flags.where.empty()) return argument;
  if (elements.size() != ElementBytes(type)) {
    return absl::InvalidArgumentError("--where compares with one element, which is ARGUMENT");
  }
  static const std::map<std::string_view, Comparison> kComparisonsByName = {
      {"eq", Comparison::kEqual},     {"ne", Comparison::kNotEqual}, {"lt", Comparison::kLess},
      {"le", Comparison::kLessEqual}, {"gt", Comparison::kGreater},  {"ge", Comparison::kGreaterEqual}};
  return static_cast<char>(kComparisonsByName.at(flags.where)) + argument;
}

// Returns the type of the elements in a function's result, or nullopt if it has none.
std::optional<ElementType> ResultType(const CtlFlags& flags) {
  const std::string_view function = flags.function;
  if (function == "append" || function == "count") return ElementType::kU64;
  if (function == "compare-and-swap") return ElementType::kU8;
  const absl::StatusOr<ElementType> type = ParseElementType(flags.type);
  if (!type.ok()) return std::nullopt;
  if (function != "sum") return *type;
  const char kind = flags.type[0];
  return kind == 'f' ? ElementType::kF64 : kind == 'u' ? ElementType::kU64 : ElementType::kI64;
}

nlohmann::json ResultAsJson(std::string_view result, std::optional<ElementType> type) {
  if (!type.has_value()) return BytesAsJson(result);
  // JSON has no nan and no infinity: those are strings.
  nlohmann::json elements = nlohmann::json::array();
  const std::string text = PrintElements(*type, result);
  for (const absl::string_view one :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipEmpty())) {
    nlohmann::json element = nlohmann::json::parse(std::string(one), nullptr, /*allow_exceptions=*/false);
    elements.push_back(element.is_discarded() ? nlohmann::json(std::string(one)) : std::move(element));
  }
  return elements;
}

void PrintResult(std::string_view result, std::optional<ElementType> type) {
  if (result.empty()) return;
  fmt::print("{}\n", type.has_value() ? PrintElements(*type, result) : EscapeText(result));
}

int PrintApplied(const absl::StatusOr<ApplyResult>& applied, std::optional<ElementType> type, const CtlFlags& flags) {
  if (!applied.ok()) return Fail(applied.status());
  if (flags.json()) {
    nlohmann::json json = {{"changed", applied->changed}, {"existed", applied->existed}, {"stamp", applied->stamp}};
    json["result"] = ResultAsJson(applied->result, type);
    fmt::print("{}\n", json.dump());
  } else {
    PrintResult(applied->result, type);
  }
  return kDone;
}

}  // namespace

int Incr(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const FunctionCall add = functions::AddDecimal(flags.by);
  return PrintApplied(client->Run(map->AsyncApply(flags.key, add)), std::nullopt, flags);
}

int Apply(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  absl::StatusOr<std::string> argument = ArgumentOf(flags);
  if (!argument.ok()) return Fail(argument.status());
  const FunctionCall call{flags.function, *std::move(argument)};
  return PrintApplied(client->Run(map->AsyncApply(flags.key, call)), ResultType(flags), flags);
}

int Evaluate(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  absl::StatusOr<std::string> argument = ArgumentOf(flags);
  if (!argument.ok()) return Fail(argument.status());
  const FunctionCall call{flags.function, *std::move(argument)};
  const absl::StatusOr<std::string> result = client->Run(map->AsyncEvaluate(flags.key, call));
  if (!result.ok() && !absl::IsFailedPrecondition(result.status())) return Fail(result.status());
  // The result, or the refusal, does not tell whether there is a value.
  const absl::StatusOr<bool> found = client->Run(map->AsyncContains(flags.key));
  if (!found.ok()) return Fail(found.status());
  if (!*found) {
    if (flags.json()) fmt::print("{}\n", nlohmann::json{{"found", false}}.dump());
    return Absent(flags);
  }
  if (!result.ok()) return Fail(result.status());
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"found", true}, {"result", ResultAsJson(*result, ResultType(flags))}}.dump());
  } else {
    PrintResult(*result, ResultType(flags));
  }
  return kDone;
}

int ListFunctions(Client* client, const CtlFlags& flags) {
  std::map<std::string, size_t> names;  // With how many workers have them.
  size_t workers = 0;
  absl::Status failure = absl::UnavailableError("no server answers");
  for (const absl::StatusOr<std::string>& status : client->ServerStatus()) {
    if (!status.ok()) {
      failure = status.status();
      continue;
    }
    ++workers;
    const nlohmann::json worker = nlohmann::json::parse(*status);
    for (const nlohmann::json& name : worker.at("functions")) ++names[name.get<std::string>()];
  }
  if (workers == 0) return Fail(failure);
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, having] : names) {
    const Function* const known = Functions().Find(name);
    const std::string_view help = known == nullptr ? "a function of the servers' own" : known->help;
    if (flags.json()) {
      list.push_back({{"name", name}, {"everywhere", having == workers}, {"help", std::string(help)}});
    } else {
      fmt::print("{:<{}}  {}{}\n", name, kFunctionNameBytesMax / 2, help,
                 having == workers ? "" : " (not on all servers)");
    }
  }
  if (flags.json()) fmt::print("{}\n", list.dump());
  return kDone;
}

}  // namespace cell

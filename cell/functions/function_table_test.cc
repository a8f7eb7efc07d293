#include "cell/functions/function_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cell {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<FunctionOutput> Nothing(const FunctionInput&) { return FunctionOutput{}; }
absl::StatusOr<FunctionOutput> Echo(const FunctionInput& input) {
  return FunctionOutput{std::nullopt, std::string(input.argument)};
}
absl::StatusOr<FunctionOutput> Put(const FunctionInput& input) {
  return FunctionOutput{std::string(input.argument), ""};
}
Function Named(std::string_view name) { return {name, "", false, &Nothing}; }

TEST(FunctionName, HasOnlyTheAllowedCharacters) {
  const std::string longest(kFunctionNameBytesMax, 'a');
  for (const std::string& name : {std::string("a"), std::string("z9-"), std::string("add-checked"), longest}) {
    EXPECT_TRUE(ValidFunctionName(name)) << name;
  }
  for (const std::string& name :
       {std::string(), longest + "a", std::string("9a"), std::string("-a"), std::string("Add"), std::string("a_b"),
        std::string("a b"), std::string("a\0", 2), std::string("\xe4"), std::string("a{"), std::string("a`")}) {
    EXPECT_FALSE(ValidFunctionName(name)) << name;
  }
}

TEST(FunctionTable, FindsExactlyWhatWasAdded) {
  FunctionTable table;
  for (const std::string_view name : {"min", "add", "add-checked"}) ASSERT_TRUE(table.Add(Named(name)).ok());
  ASSERT_NE(table.Find("add"), nullptr);
  EXPECT_EQ(table.Find("add")->name, "add");
  EXPECT_EQ(table.Find("add-checked")->name, "add-checked");
  for (const std::string_view name : {"", "ad", "add-", "zzz"}) EXPECT_EQ(table.Find(name), nullptr) << name;
  EXPECT_EQ(table.Find(std::string(1 << 20, 'a')), nullptr);
  EXPECT_TRUE(table.status().ok());
}

TEST(FunctionTable, ListsAllByName) {
  FunctionTable table;
  EXPECT_TRUE(table.all().empty());
  for (const std::string_view name : {"min", "add", "max"}) ASSERT_TRUE(table.Add(Named(name)).ok());
  const std::vector<const Function*> all = table.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]->name, "add");
  EXPECT_EQ(all[1]->name, "max");
  EXPECT_EQ(all[2]->name, "min");
  EXPECT_EQ(all[1], table.Find("max"));
}

TEST(FunctionTable, RefusesBadFunctionsAndKeepsTheFirstError) {
  FunctionTable table;
  ASSERT_TRUE(table.Add({"add", "the first", true, &Put}).ok());
  const absl::Status bad_name = table.Add(Named("no\nname"));
  EXPECT_EQ(bad_name.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad_name.message()), HasSubstr("\"no\\nname\""));
  EXPECT_EQ(table.Add({"nothing", "", false, nullptr}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table.Add(Named("add")).code(), absl::StatusCode::kAlreadyExists);
  ASSERT_EQ(table.all().size(), 1u);
  EXPECT_EQ(table.Find("add")->help, "the first");
  EXPECT_EQ(table.status(), bad_name);
}

// A function's own output, checked.
struct OutputCase {
  Function function;
  size_t bytes;
  absl::StatusCode code;
};

TEST(Run, ChecksWhatAFunctionReturns) {
  const Function writes{"put", "", true, &Put}, reads{"echo", "", false, &Echo}, answers{"echo", "", true, &Echo},
      lies{"put", "", false, &Put};
  for (const OutputCase& c : {
           OutputCase{writes, kValueBytesMax, absl::StatusCode::kOk},
           OutputCase{writes, kValueBytesMax + 1, absl::StatusCode::kInternal},
           OutputCase{reads, kValueBytesMax, absl::StatusCode::kOk},
           OutputCase{reads, kValueBytesMax + 1, absl::StatusCode::kInternal},
           OutputCase{answers, kWrittenResultBytesMax, absl::StatusCode::kOk},
           OutputCase{answers, kWrittenResultBytesMax + 1, absl::StatusCode::kInternal},
           OutputCase{lies, 0, absl::StatusCode::kInternal},
       }) {
    const std::string argument(c.bytes, 'x');
    const absl::StatusOr<FunctionOutput> output = cell::Run(c.function, {std::nullopt, argument});
    ASSERT_EQ(output.status().code(), c.code) << c.function.name << " " << c.bytes;
    if (output.ok()) {
      EXPECT_EQ(output->value.value_or("") + output->result, argument);
    } else {
      EXPECT_THAT(std::string(output.status().message()), HasSubstr(std::string(c.function.name)));
    }
  }
}

template <absl::StatusCode code>
absl::StatusOr<FunctionOutput> FailWith(const FunctionInput&) {
  return absl::Status(code, "mine");
}

TEST(Run, PassesErrorsOnThatAreOfTheFunction) {
  using Code = absl::StatusCode;
  const auto run = [](absl::StatusOr<FunctionOutput> (*fail)(const FunctionInput&)) {
    return cell::Run({"fail", "", true, fail}, {std::nullopt, ""}).status();
  };
  EXPECT_EQ(run(&FailWith<Code::kInvalidArgument>), absl::InvalidArgumentError("mine"));
  EXPECT_EQ(run(&FailWith<Code::kFailedPrecondition>), absl::FailedPreconditionError("mine"));
  EXPECT_EQ(run(&FailWith<Code::kOutOfRange>), absl::OutOfRangeError("mine"));
  // A client would try again after one, and take the other for a write that may have happened.
  EXPECT_EQ(run(&FailWith<Code::kUnavailable>).code(), Code::kInternal);
  EXPECT_EQ(run(&FailWith<Code::kUnknown>).code(), Code::kInternal);
}

}  // namespace
}  // namespace cell

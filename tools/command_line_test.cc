#include "tools/command_line.h"

#include <gtest/gtest.h>

#include "cell/cmd/number_flags.h"

namespace cell {
namespace {

using Words = std::vector<std::string>;

struct Program {
  Program() {
    app.require_subcommand(0, 1);
    app.fallthrough();
    app.add_option("--cluster", text);
    app.add_flag("--load,!--no-load", flag);
    CLI::App* get = app.add_subcommand("get", "");
    get->add_option("key", text)->required();
    app.add_subcommand("del", "")->add_option("key", text)->required();
    CLI::App* scan = app.add_subcommand("scan", "");
    scan->add_option("--limit", limit)->check(Count());
    CLI::App* hash = app.add_subcommand("hash", "");
    hash->require_subcommand(1);
    hash->add_subcommand("drop", "")->add_option("table,--table", text)->required();
    hash->add_subcommand("list", "");
  }

  std::string Message(Words words) {
    std::reverse(words.begin(), words.end());
    try {
      app.parse(std::move(words));
      return "";
    } catch (const CLI::ParseError& error) {
      return ParseMessage(app, error);
    }
  }
  Words Complete(const Words& words) {
    return Completions(app, words, [](std::string_view name) { return Words{"<" + std::string(name) + ">"}; });
  }

  CLI::App app{"", "program"};
  std::string text;
  bool flag = false;
  uint64_t limit = 0;
};

TEST(CommandLine, SplitsAsAShellDoes) {
  EXPECT_EQ(*SplitWords("  put a\tb "), (Words{"put", "a", "b"}));
  EXPECT_EQ(*SplitWords(R"(put 'a b' "c \"d\" \n" e\ f '' g'h'"i")"),
            (Words{"put", "a b", R"(c "d" \n)", "e f", "", "ghi"}));
  EXPECT_EQ(*SplitWords(std::string_view("a\0b c", 5)), (Words{std::string("a\0b", 3), "c"}));
  EXPECT_EQ(*SplitWords("gr\xc3\xbc\xc3\x9f"), (Words{"gr\xc3\xbc\xc3\x9f"}));
  for (const char* line : {"put 'a", "put \"a", "put \"a\\\""}) {
    EXPECT_EQ(SplitWords(line).status().code(), absl::StatusCode::kInvalidArgument) << line;
  }
}

TEST(CommandLine, NamesWhatWasMeant) {
  EXPECT_EQ(Program().Message({"delete", "my", "key"}), "there is no command \"delete\": did you mean del?");
  EXPECT_EQ(Program().Message({"gett", "key"}), "there is no command \"gett\": did you mean get?");
  EXPECT_EQ(Program().Message({"frobnicate"}), "there is no command \"frobnicate\"");
  EXPECT_EQ(Program().Message({"--clustre", "/tmp/x", "get", "key"}),
            "get: there is no flag --clustre: did you mean --cluster?");
  EXPECT_EQ(Program().Message({"--clustre=/tmp/x", "scan"}),
            "scan: there is no flag --clustre: did you mean --cluster?");
  EXPECT_EQ(Program().Message({"get", "key", "--no-lod"}), "get: there is no flag --no-lod: did you mean --no-load?");
  EXPECT_EQ(Program().Message({"hash", "dropp", "t"}), "hash: there is no command \"dropp\": did you mean drop?");
  EXPECT_EQ(Program().Message({"get", "a", "b", "c"}), "get: unexpected argument \"b\"");
  EXPECT_EQ(Program().Message({"get"}), "get: key is required");
  EXPECT_EQ(Program().Message({"scan", "--limit", "-1"}), "scan: --limit: -1 is not a whole number of at least 0");
}

TEST(CommandLine, CompletesCommandsFlagsAndArguments) {
  Program program;
  EXPECT_EQ(program.Complete({""}), (Words{"del", "get", "hash", "scan"}));
  EXPECT_EQ(program.Complete({"g"}), (Words{"get"}));
  EXPECT_EQ(program.Complete({"get", "--cl"}), (Words{"--cluster"}));
  EXPECT_EQ(program.Complete({"hash", ""}), (Words{"drop", "list"}));
  EXPECT_EQ(program.Complete({"hash", "drop", ""}), (Words{"<table>"}));
  EXPECT_EQ(program.Complete({"hash", "drop", "--table", ""}), (Words{"<table>"}));
  EXPECT_EQ(program.Complete({"--cluster", "x", "get", ""}), (Words{"<key>"}));
  EXPECT_EQ(program.Complete({"get", "key", ""}), Words());
  EXPECT_EQ(program.Complete({"scan", "nothing"}), Words());
}

}  // namespace
}  // namespace cell

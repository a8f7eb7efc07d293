#include "cell/cmd/help_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cell {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HelpText, AnArgumentThatIsAlsoAFlagIsListedOnce) {
  CLI::App app{"", "program"};
  app.formatter(HelpText());
  std::string table, key;
  CLI::App* const drop = app.add_subcommand("drop", "");
  drop->add_option("table,--table", table, "Name of the table")->required();
  drop->add_option("--key", key, "Name of the key");
  const std::string help = drop->help();
  const size_t at = help.find("Name of the table");
  ASSERT_NE(at, std::string::npos) << help;
  EXPECT_EQ(help.find("Name of the table", at + 1), std::string::npos) << help;
  EXPECT_THAT(help, HasSubstr("Name of the key"));
}

TEST(HelpText, AFlagIsShownWithItsOpposite) {
  CLI::App app{"", "program"};
  app.formatter(HelpText());
  bool load = true;
  app.add_flag("--load,!--no-load", load, "Load the keys");
  EXPECT_THAT(app.help(), HasSubstr("--load,--no-load "));
  EXPECT_THAT(app.help(), Not(HasSubstr("{false}")));
}

}  // namespace
}  // namespace cell

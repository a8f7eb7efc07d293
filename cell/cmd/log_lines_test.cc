#include "cell/cmd/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "fmt/format.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace cell {
namespace {

TEST(LogLines, AMessageIsOneLineWhateverAStrangerPutIntoIt) {
  std::ostringstream written;
  spdlog::logger logger("", std::make_shared<spdlog::sinks::ostream_sink_mt>(written));
  logger.set_formatter(LogLines());
  logger.warn("no such server: {}", "a\n[2030-01-01 00:00:00.000] [info] forged\r\x1b[2J\x7f gr\xc3\xbc\xc3\x9f");
  EXPECT_THAT(written.str(), testing::EndsWith("] [warning] no such server: a\\n[2030-01-01 00:00:00.000] [info] "
                                               "forged\\x0d\\x1b[2J\\x7f gr\xc3\xbc\xc3\x9f\n"));
  EXPECT_EQ(written.str().find('\n'), written.str().size() - 1);
}

TEST(OneLine, ShowsCharactersAndEscapesTheRest) {
  struct {
    const char* text;
    const char* shown;
  } const cases[] = {
      {"", ""},
      {"plain \xc3\xbc \xe2\x82\xac \xf0\x9f\x90\x98", "plain \xc3\xbc \xe2\x82\xac \xf0\x9f\x90\x98"},
      {"tab\t\x1b[31m\x07", "tab\\x09\\x1b[31m\\x07"},
      {"a\r\nb", "a\\x0d\\nb"},
      {"\xc2\x9b"
       "2J\xc2\x85",
       "\\xc2\\x9b"
       "2J\\xc2\\x85"},  // Control characters of eight bits: CSI and NEL.
      {"\xe2\x80\xa8\xe2\x80\xae\xe2\x81\xa6", "\\xe2\\x80\\xa8\\xe2\\x80\\xae\\xe2\\x81\\xa6"},
      {"\xff\xfe", "\\xff\\xfe"},
      {"\xc3", "\\xc3"},  // Cut short.
      {"\xc3(", "\\xc3("},
      {"\xc0\xaf \xe0\x80\xaf", "\\xc0\\xaf \\xe0\\x80\\xaf"},  // Longer than needed.
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                      // Half of a pair of UTF-16.
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},             // Beyond Unicode.
  };
  for (const auto& c : cases) EXPECT_EQ(OneLine(c.text), c.shown);
  EXPECT_EQ(OneLine(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(OneLine, CutsWhatIsLong) {
  EXPECT_EQ(OneLine(std::string(kLogTextBytesMax, 'a')), std::string(kLogTextBytesMax, 'a'));
  EXPECT_EQ(OneLine(std::string(1'000'000, 'a')),
            std::string(kLogTextBytesMax, 'a') + fmt::format("... ({} bytes more)", 1'000'000 - kLogTextBytesMax));
  EXPECT_LT(OneLine(std::string(1'000'000, '\x1b')).size(), kLogTextBytesMax + 40);
}

}  // namespace
}  // namespace cell

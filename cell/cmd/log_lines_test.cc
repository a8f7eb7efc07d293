#include "cell/cmd/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

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

}  // namespace
}  // namespace cell

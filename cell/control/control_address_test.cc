#include "cell/control/control_address.h"

#include <gtest/gtest.h>

namespace cell {
namespace {

using Kind = ControlAddress::Kind;

const ControlAddress kTls{Kind::kTls, "10.0.0.1:7100", {}};
const ControlAddress kPlain{Kind::kPlain, "[::1]:7", {}};
const ControlAddress kUnix{Kind::kUnix, "/run/a,b/server-0.control.sock", "here"};

TEST(ControlAddress, IsReadAsItWasWritten) {
  for (const std::vector<ControlAddress>& addresses :
       {std::vector{kTls}, {kPlain}, {kUnix}, {kTls, kUnix}, {kPlain, kUnix}}) {
    const auto read = ParseControlAddresses(ToString(addresses));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, addresses);
  }
  EXPECT_EQ(ToString({kUnix, kTls}), "tls://10.0.0.1:7100,unix://here/run/a,b/server-0.control.sock");
  EXPECT_EQ(ToString({kPlain}), "[::1]:7");
}

TEST(ControlAddress, RefusesNonsense) {
  for (const char* const text : {"", "nowhere", "tls://", "tls://host", "unix://", "unix://machine", "unix://machine/",
                                 "a:1,", "a:1,,b:2", ",a:1", "tls://tls://a:1", "/path", "a:99999"}) {
    EXPECT_EQ(ParseControlAddresses(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(ControlAddress, IsChosenByWhatTheClientHas) {
  const auto choose = [](const std::vector<ControlAddress>& of, const std::string& machine, bool with_tls) {
    return ChooseControlAddress("server-0", of, machine, with_tls);
  };
  EXPECT_EQ(*choose({kTls, kUnix}, "here", false), kUnix);
  EXPECT_EQ(*choose({kTls, kUnix}, "here", true), kTls);
  EXPECT_EQ(*choose({kTls, kUnix}, "there", true), kTls);
  EXPECT_EQ(*choose({kUnix}, "here", true), kUnix);
  EXPECT_EQ(*choose({kPlain}, "there", false), kPlain);
  // A client that has certificates is not led to a port without TLS by a membership that someone has changed.
  EXPECT_EQ(choose({kPlain}, "there", true)->kind, Kind::kTls);
  const absl::Status no_certificate = choose({kTls, kUnix}, "there", false).status();
  EXPECT_EQ(no_certificate.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(no_certificate.message().find("give --tls-authority, --tls-certificate and --tls-key"), std::string::npos)
      << no_certificate;
  for (const bool with_tls : {false, true}) {
    const absl::Status elsewhere = choose({kUnix}, "there", with_tls).status();
    EXPECT_EQ(elsewhere.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(elsewhere.message().find("run this on that machine, or start server-0 with --control"), std::string::npos)
        << elsewhere;
  }
}

}  // namespace
}  // namespace cell

// Tests the wire format of Redis.
#include "cell/gateway/resp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"

namespace cell::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = RequestParser::Outcome;

std::vector<std::string> Words(const RequestParser& parser) {
  return {parser.arguments().begin(), parser.arguments().end()};
}

// Returns all requests of a stream, and the error at its end, that arrives in pieces of these sizes.
std::vector<std::vector<std::string>> ParseAll(std::string_view stream, size_t piece) {
  RequestParser parser;
  std::vector<std::vector<std::string>> requests;
  while (true) {
    const Outcome outcome = parser.Next();
    if (outcome == Outcome::kRequest) {
      requests.push_back(Words(parser));
    } else if (outcome == Outcome::kError) {
      requests.push_back({"error", parser.error()});
      return requests;
    } else if (stream.empty()) {
      return requests;
    } else {
      parser.Feed(stream.substr(0, piece));
      stream.remove_prefix(std::min(piece, stream.size()));
    }
  }
}

TEST(RequestParser, TakesArraysAndLines) {
  RequestParser parser;
  parser.Feed("*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\nSET  key \"a b\\x41\\n\"\r\n\r\n*0\r\n*-1\r\n*1\r\n$0\r\n\r\n");
  ASSERT_EQ(parser.Next(), Outcome::kRequest);
  EXPECT_THAT(Words(parser), ElementsAre("GET", "a\r\n"));
  ASSERT_EQ(parser.Next(), Outcome::kRequest);
  EXPECT_THAT(Words(parser), ElementsAre("SET", "key", "a bA\n"));
  for (int empty = 0; empty < 3; ++empty) {
    ASSERT_EQ(parser.Next(), Outcome::kRequest);
    EXPECT_THAT(Words(parser), IsEmpty());
  }
  ASSERT_EQ(parser.Next(), Outcome::kRequest);
  EXPECT_THAT(Words(parser), ElementsAre(""));
  EXPECT_EQ(parser.Next(), Outcome::kIncomplete);
  EXPECT_EQ(parser.buffered(), 0u);
}

TEST(RequestParser, RefusesSizesBeforeItReservesMemory) {
  const auto error = [](std::string_view stream, bool trusted = true) {
    RequestParser parser;
    parser.set_trusted(trusted);
    parser.Feed(stream);
    EXPECT_EQ(parser.Next(), Outcome::kError) << stream;
    EXPECT_EQ(parser.Next(), Outcome::kError) << "It does not go on.";
    return parser.error();
  };
  EXPECT_EQ(error("*1000000000\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*99999999999999999999\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*1x\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*" + std::string(100, '1')), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error("*1\r\n$2000000000\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(error(fmt::format("*1\r\n${}\r\n", kArgumentBytesMax + 1)), "Protocol error: invalid bulk length");
  EXPECT_EQ(error("*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
  EXPECT_EQ(error("*1\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
  EXPECT_THAT(error("*1\r\n$1\r\nabc"), HasSubstr("does not end"));
  EXPECT_EQ(error("GET \"a\r\n"), "Protocol error: unbalanced quotes in request");
  EXPECT_EQ(error(std::string(kInlineBytesMax + 1, 'a')), "Protocol error: too big inline request");
  EXPECT_EQ(error(std::string(kInlineBytesMax + 1, 'a') + "\n"), "Protocol error: too big inline request");
  EXPECT_EQ(error("*11\r\n", false), "Protocol error: unauthenticated multibulk length");
  EXPECT_EQ(error("*1\r\n$16385\r\n", false), "Protocol error: unauthenticated bulk length");
}

TEST(RequestParser, KeepsLittleMemoryOnceAllIsTaken) {
  RequestParser parser;
  parser.Feed(fmt::format("*1\r\n${}\r\n{}\r\n", 1'000'000, std::string(1'000'000, 'x')));
  ASSERT_EQ(parser.Next(), Outcome::kRequest);
  EXPECT_GE(parser.capacity(), 1'000'000u);
  EXPECT_EQ(parser.Next(), Outcome::kIncomplete);
  EXPECT_LT(parser.capacity(), 300'000u);
}

TEST(RequestParser, RefusesARequestThatIsTooLargeAsAWhole) {
  RequestParser parser;
  const std::string argument(kArgumentBytesMax, 'x');
  parser.Feed(fmt::format("*{}\r\n", kArgumentsMax));
  Outcome outcome = Outcome::kIncomplete;
  for (size_t sent = 0; outcome == Outcome::kIncomplete; sent += argument.size()) {
    ASSERT_LE(sent, kRequestBytesMax);
    parser.Feed(fmt::format("${}\r\n{}\r\n", argument.size(), argument));
    outcome = parser.Next();
  }
  EXPECT_EQ(outcome, Outcome::kError);
}

TEST(RequestParser, GivesTheSameWhateverPiecesArrive) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::string stream;
    for (int i = 0; i < 20; ++i) {
      const size_t words = random() % 5;
      stream += fmt::format("*{}\r\n", words);
      for (size_t word = 0; word < words; ++word) {
        const std::string text(random() % (random() % 50 == 0 ? 100'000 : 20), "ab\r\n$*\0"[random() % 7]);
        stream += fmt::format("${}\r\n{}\r\n", text.size(), text);
      }
      if (random() % 5 == 0) stream += "PING 'a b'\n";
    }
    if (random() % 2 == 0) stream[random() % stream.size()] = static_cast<char>(random());
    const auto whole = ParseAll(stream, stream.size());
    EXPECT_EQ(ParseAll(stream, 1 + random() % 5000), whole);
    if (stream.size() < 5000) {
      EXPECT_EQ(ParseAll(stream, 1), whole);
    }
  }
}

TEST(ReplyWriter, WritesBothVersions) {
  for (const int version : {2, 3}) {
    std::string out;
    ReplyWriter reply(&out);
    reply.set_version(version);
    reply.Simple("OK");
    reply.Error("ERR a\r\nb");
    reply.Integer(-9'223'372'036'854'775'807 - 1);
    reply.Bulk(std::string_view("a\0\r\n", 4));
    reply.Null();
    reply.NullArray();
    reply.Map(1);
    reply.Set(2);
    reply.Array(0);
    EXPECT_EQ(out, "+OK\r\n-ERR a  b\r\n:-9223372036854775808\r\n$4\r\na" + std::string(1, '\0') + "\r\n\r\n" +
                       (version == 2 ? "$-1\r\n*-1\r\n*2\r\n*2\r\n*0\r\n" : "_\r\n_\r\n%1\r\n~2\r\n*0\r\n"));
  }
}

}  // namespace
}  // namespace cell::gateway

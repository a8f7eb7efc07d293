#include "cell/io/fabric/verbs/verbs_messages.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>

#include "cell/base/random.h"

namespace cell {
namespace {

using State = MessageAssembler::State;

std::string Chunk(const ChunkHeader& header, std::string_view payload) {
  std::string chunk(reinterpret_cast<const char*>(&header), sizeof(header));
  return chunk += payload;
}

ChunkHeader HeaderOf(uint32_t message_bytes, uint32_t offset, uint64_t id = 1) {
  return {MessageType::kCall, 0, 0, message_bytes, offset, 256, id};
}

TEST(MessageAssembler, MessagesOfEverySize) {
  MessageAssembler assembler;
  Random random(1);
  for (int i = 0; i < 300; ++i) {
    std::string text(i == 0 ? 0 : i == 1 ? kMessageBytesMax : random.Below(20'000), static_cast<char>('a' + i % 26));
    MessageAssembler::Message message;
    State state = State::kMore;
    size_t offset = 0;
    do {
      ASSERT_EQ(state, State::kMore);
      const std::string payload = text.substr(offset, kChunkPayloadMax);
      const std::string chunk =
          Chunk(HeaderOf(static_cast<uint32_t>(text.size()), static_cast<uint32_t>(offset)), payload);
      state = assembler.Take(AsBytes(chunk), &message);
      offset += payload.size();
      if (state == State::kWhole) {
        ASSERT_EQ(AsText(message.bytes), text);
      }
    } while (offset < text.size());
    ASSERT_EQ(state, State::kWhole);
  }
}

TEST(MessageAssembler, ChunksThatDoNotFitAreNonsense) {
  const auto after_first = [](const ChunkHeader& second, size_t payload) {
    MessageAssembler assembler;
    MessageAssembler::Message message;
    EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(1000, 0), std::string(400, 'x'))), &message), State::kMore);
    return assembler.Take(AsBytes(Chunk(second, std::string(payload, 'y'))), &message);
  };
  EXPECT_EQ(after_first(HeaderOf(1000, 400), 600), State::kWhole);
  EXPECT_EQ(after_first(HeaderOf(1000, 400), 601), State::kNonsense);
  EXPECT_EQ(after_first(HeaderOf(1000, 399), 600), State::kNonsense);
  EXPECT_EQ(after_first(HeaderOf(1001, 400), 600), State::kNonsense);
  EXPECT_EQ(after_first(HeaderOf(1000, 400, 2), 600), State::kNonsense);
  EXPECT_EQ(after_first(HeaderOf(1000, 400), 0), State::kNonsense);
  MessageAssembler assembler;
  MessageAssembler::Message message;
  EXPECT_EQ(assembler.Take(AsBytes("short"), &message), State::kNonsense);
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(kMessageBytesMax + 1, 0), "x")), &message), State::kNonsense);
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(0xffffffff, 0), "x")), &message), State::kNonsense);
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(5, 7), "x")), &message), State::kNonsense);
}

TEST(MessageAssembler, CreditsMayComeInTheMidstOfAMessage) {
  MessageAssembler assembler;
  MessageAssembler::Message message;
  const ChunkHeader credits{MessageType::kCredits, 0, 8, 0, 0, 0, 0};
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(10, 0), "hello")), &message), State::kMore);
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(credits, "")), &message), State::kWhole);
  EXPECT_EQ(message.header.credits, 8);
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(HeaderOf(10, 5), "there")), &message), State::kWhole);
  EXPECT_EQ(AsText(message.bytes), "hellothere");
  EXPECT_EQ(assembler.Take(AsBytes(Chunk(credits, "with bytes")), &message), State::kNonsense);
}

TEST(MessageAssembler, AnyBytesStayInBounds) {
  Random random(2);
  for (int i = 0; i < 100'000; ++i) {
    MessageAssembler assembler;
    for (int j = 0; j < 4; ++j) {
      const size_t payload = random.Below(64);
      const std::unique_ptr<std::byte[]> chunk(new std::byte[sizeof(ChunkHeader) + payload]);
      Store(chunk.get(), HeaderOf(static_cast<uint32_t>(random.Below(100)), static_cast<uint32_t>(random.Below(70)),
                                  random.Below(2)));
      MessageAssembler::Message message;
      const State state = assembler.Take({chunk.get(), sizeof(ChunkHeader) + payload}, &message);
      if (state == State::kNonsense) break;
      if (state == State::kWhole) {
        ASSERT_EQ(message.bytes.size(), message.header.message_bytes);
      }
    }
  }
}

// Two sides send as fast as credits allow. There are never more chunks on the way than buffers, and the sides never
// block each other, however late the buffers are freed.
TEST(CreditWindow, NeverMoreThanThereAreBuffersAndNeverAStandstill) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    CreditWindow windows[2];
    std::deque<ChunkHeader> wires[2];  // To side 0, to side 1.
    uint32_t unfreed[2] = {0, 0};
    uint64_t delivered = 0;
    const bool one_way = seed % 3 == 0;
    int idle = 0;
    for (int step = 0; step < 20'000; ++step) {
      const auto side = static_cast<size_t>(random.Below(2));
      const size_t other = 1 - side;
      bool moved = true;
      switch (random.Below(3)) {
        case 0:
          if (windows[side].CanSend() && !(one_way && side == 0)) {
            windows[side].Sent();
            wires[other].push_back({MessageType::kCall, 0, windows[side].TakeOwed(), 0, 0, 0, 0});
          } else if (windows[side].ShouldTell()) {
            wires[other].push_back({MessageType::kCredits, 0, windows[side].TakeOwed(), 0, 0, 0, 0});
          } else {
            moved = false;
          }
          break;
        case 1:
          moved = !wires[side].empty();
          if (!moved) break;
          ASSERT_TRUE(windows[side].Received(wires[side].front()));
          if (wires[side].front().type == MessageType::kCall) {
            ++unfreed[side];
            ++delivered;
          }
          wires[side].pop_front();
          break;
        default:
          moved = unfreed[side] > 0;
          if (!moved) break;
          windows[side].Freed(unfreed[side]);
          unfreed[side] = 0;
      }
      idle = moved ? 0 : idle + 1;
      ASSERT_LT(idle, 200) << "a standstill";
      ASSERT_LE(wires[0].size() + unfreed[0], kReceivesPerLink);
      ASSERT_LE(wires[1].size() + unfreed[1], kReceivesPerLink);
    }
    EXPECT_GT(delivered, 2000u);
  }
}

TEST(CreditWindow, WhoSendsWithoutCreditIsFoundOut) {
  CreditWindow window;
  const ChunkHeader call{MessageType::kCall, 0, 0, 0, 0, 0, 0};
  for (uint32_t i = 0; i < kCredits; ++i) EXPECT_TRUE(window.Received(call));
  EXPECT_FALSE(window.Received(call));
  CreditWindow generous;
  EXPECT_FALSE(generous.Received({MessageType::kCall, 0, 1, 0, 0, 0, 0}));
  CreditWindow chatty;
  chatty.Sent();
  EXPECT_TRUE(chatty.Received({MessageType::kCredits, 0, 1, 0, 0, 0, 0}));
  EXPECT_FALSE(chatty.Received({MessageType::kCredits, 0, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace cell

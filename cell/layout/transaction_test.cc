// Parts of transactions, and the messages that carry them, are read as they were made, and refused when they are not
// whole.
#include "cell/layout/transaction.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cell/layout/region.h"
#include "cell/layout/wire_transaction.h"

namespace cell {
namespace {

std::string SomePart() {
  std::string part;
  AppendOperation({PartOperationKind::kReadNothing, "absent"}, &part);
  AppendOperation({PartOperationKind::kReadPair, "present", {}, 77}, &part);
  AppendOperation({PartOperationKind::kReadRange, "from", "to", 88}, &part);
  AppendOperation({PartOperationKind::kReadRange, "from", "", 0}, &part);
  AppendOperation({PartOperationKind::kPut, "key", "value", 99, 5}, &part);
  AppendOperation({PartOperationKind::kDelete, "other"}, &part);
  return part;
}

std::string With(const PartOperation& operation) {
  std::string part = SomePart();
  AppendOperation(operation, &part);
  return part;
}

TEST(Transaction, APartHasItsOperations) {
  const std::string part = SomePart();
  const auto operations = ParseOperations(part);
  ASSERT_TRUE(operations.ok()) << operations.status();
  ASSERT_EQ(operations->size(), 6u);
  EXPECT_EQ((*operations)[1].digest, 77u);
  EXPECT_EQ((*operations)[2].key, "from");
  EXPECT_EQ((*operations)[2].value, "to");
  EXPECT_EQ((*operations)[4].value, "value");
  EXPECT_EQ((*operations)[4].expires, 5u);
  EXPECT_TRUE((*operations)[5].writes());
  EXPECT_FALSE((*operations)[0].writes());
}

TEST(Transaction, APartThatIsNotWholeIsRefused) {
  const std::string part = SomePart();
  size_t whole = 0;
  for (size_t bytes = 0; bytes < part.size(); ++bytes) whole += ParseOperations(part.substr(0, bytes)).ok();
  EXPECT_EQ(whole, 5u);  // Those that end behind an operation.
  EXPECT_TRUE(ParseOperations(With({PartOperationKind::kPut, "key2", "v"})).ok());
  EXPECT_TRUE(ParseOperations(With({PartOperationKind::kReadPair, "key", {}, 1})).ok());
  for (const PartOperation& wrong : std::vector<PartOperation>{{PartOperationKind{0}, "k"},
                                                               {PartOperationKind{6}, "k"},
                                                               {PartOperationKind::kPut, ""},
                                                               {PartOperationKind::kDelete, "k", "v"},
                                                               {PartOperationKind::kReadPair, "k", "v"},
                                                               {PartOperationKind::kReadRange, "k", "k"},
                                                               {PartOperationKind::kReadRange, "k", "j"},
                                                               {PartOperationKind::kDelete, "k", {}, 0, 5},
                                                               {PartOperationKind::kDelete, "key"},
                                                               {PartOperationKind::kPut, "other", "v"}}) {
    EXPECT_EQ(ParseOperations(With(wrong)).status().code(), absl::StatusCode::kInvalidArgument)
        << static_cast<int>(wrong.kind) << wrong.key << wrong.value;
  }
  std::string many;
  for (size_t i = 0; i < kTransactionOperationsMax; ++i) AppendOperation({PartOperationKind::kReadNothing, "k"}, &many);
  EXPECT_TRUE(ParseOperations(many).ok());
  AppendOperation({PartOperationKind::kReadNothing, "k"}, &many);
  EXPECT_FALSE(ParseOperations(many).ok());
}

TEST(Transaction, APreparedPartIsReadAsItWasLogged) {
  const std::string part = SomePart(), others(8, '\1');
  const PreparedPart prepared{{1, 2, 3, 4}, 5, 6, 7, 8, others, part};
  const std::string bytes = EncodePrepared(prepared);
  const auto read = ParsePrepared(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->id.number, 2u);
  EXPECT_EQ(read->id.slot, 4u);
  EXPECT_EQ(read->stamp, 5u);
  EXPECT_EQ(read->primary, 8u);
  EXPECT_EQ(read->others, others);
  EXPECT_EQ(read->part, part);
  EXPECT_FALSE(ParsePrepared(bytes.substr(0, sizeof(PreparedHeader) - 1)).ok());
  EXPECT_FALSE(ParsePrepared(bytes.substr(0, bytes.size() - 1)).ok());
  EXPECT_FALSE(ParsePrepared(EncodePrepared({{0, 2, 3, 4}, 5, 6, 7, 8, others, part})).ok());
  EXPECT_FALSE(ParsePrepared(EncodePrepared({{1, 2, 3, kRequestSlots}, 5, 6, 7, 8, others, part})).ok());
}

TEST(Transaction, MessagesAreReadAsTheyWereMadeAndRefusedWhenCut) {
  const std::string part = SomePart(), others(4, '\1');
  TransactionPart sent{{1, 2, 3, 4}, TransactStep::kPrepare, "absent", static_cast<uint32_t>(part.size()), 9, others};
  const std::string transact = MakeTransactRequest(RootOf(7), sent) + part;
  const auto read = ParseTransactRequest(AsBytes(transact));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->fixed.root, RootOf(7));
  EXPECT_EQ(read->id().until, 3u);
  EXPECT_EQ(read->key, "absent");
  EXPECT_EQ(read->others, others);
  EXPECT_EQ(read->value, part);
  for (size_t bytes = 0; bytes < transact.size(); ++bytes) {
    EXPECT_FALSE(ParseTransactRequest(AsBytes(transact).subspan(0, bytes)).ok());
  }
  sent.step = TransactStep{3};
  EXPECT_FALSE(ParseTransactRequest(AsBytes(MakeTransactRequest(RootOf(7), sent) + part)).ok());

  const std::string decide = MakeDecideRequest(RootOf(7), {1, 2, 3, 4}, Decision::kAsk, 5, 8);
  EXPECT_EQ(ParseDecideRequest(AsBytes(decide))->stamp, 5u);
  EXPECT_EQ(ParseDecideRequest(AsBytes(decide))->expires, 8u);
  for (size_t bytes = 0; bytes < decide.size(); ++bytes) {
    EXPECT_FALSE(ParseDecideRequest(AsBytes(decide).subspan(0, bytes)).ok());
  }
  EXPECT_FALSE(ParseDecideRequest(AsBytes(MakeDecideRequest(RootOf(7), {0, 2, 3, 4}, Decision::kAsk))).ok());
  EXPECT_FALSE(ParseDecideRequest(AsBytes(MakeDecideRequest(RootOf(7), {1, 2, 3, 4}, Decision{6}))).ok());

  std::vector<std::byte> reply(100);
  const size_t bytes =
      WriteTransactReply(absl::MakeSpan(reply), MessageKind::kTransact, TransactOutcome::kBeyond, 6, "border", 9);
  const ConstBytes written(reply.data(), bytes);
  EXPECT_EQ(ParseTransactReply(written, MessageKind::kTransact)->key, "border");
  EXPECT_EQ(ParseTransactReply(written, MessageKind::kTransact)->fixed.expires, 9u);
  EXPECT_FALSE(ParseTransactReply(written, MessageKind::kDecide).ok());
  for (size_t cut = 0; cut < bytes; ++cut) {
    EXPECT_FALSE(ParseTransactReply(written.subspan(0, cut), MessageKind::kTransact).ok());
  }
}

}  // namespace
}  // namespace cell

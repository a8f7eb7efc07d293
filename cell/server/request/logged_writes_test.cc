// Tests writes whose region has a log: when they are applied and answered, and what becomes of them if the log fails.
#include <gtest/gtest.h>

#include <coroutine>
#include <memory>
#include <string>
#include <string_view>

#include "cell/base/crc64.h"
#include "cell/base/event.h"
#include "cell/functions/arguments.h"
#include "cell/io/fabric/waiter.h"
#include "cell/layout/wire_function.h"
#include "cell/server/request/test_request_service.h"
#include "cell/server/request/write_pipeline.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

struct FunctionCallOf {
  std::string name, argument;
};

// Counts the coroutines that an event releases.
struct Released : Executor {
  void Schedule(std::coroutine_handle<>) override { ++count; }

  int count = 0;
};

// A region whose writes are logged before they are applied. Its disk writes nothing before EndFlush is called.
class LoggedWritesTest : public RequestServiceTest {
 protected:
  LoggedWritesTest() { BeginLog(/*first=*/true); }

  HeldRegion* region() { return regions_.Find(1); }
  WritePipeline* writes() { return service_.writes(); }
  void BeginLog(bool first) {
    region()->SetLog(std::make_shared<RegionLog>(1, 1, 1, nullptr), first);
    EndFlush();
  }
  void EndFlush(const absl::Status& status = {}) { region()->log->EndFlush(region()->log->BeginFlush(), status); }
  // Brings what is logged to disk. Returns how many writes were answered.
  size_t FlushAndApply() {
    EndFlush();
    return writes()->ApplyDurable();
  }

  // Sends a request, and runs the server until it has seen it.
  void Send(const std::string& head, const std::string& body, Completion* reply) {
    const uint64_t before = service_.batches();
    client_->Call(connection_, AsBytes(head), AsBytes(body), kMessageBytesMax, INT64_MAX, reply);
    for (int i = 0; i < 1000 && service_.batches() == before; ++i) Turn();
    ASSERT_GT(service_.batches(), before);
  }
  void SendPutOf(const std::string& key, const std::string& value, Completion* reply, uint16_t upload = 0) {
    const auto bytes = static_cast<uint32_t>(value.size());
    Send(MakePutRequest(root_, {}, Crc64(value, Crc64(key)), key, bytes, upload), upload == 0 ? value : "", reply);
  }
  void SendDelete(const std::string& key, Reply* reply) {
    Send(MakeKeyRequest(MessageKind::kDelete, root_, {}, key), "", reply);
  }
  // Sends a put with a condition, or a delete if there is no value.
  void SendIf(const std::string& key, const WriteCondition& condition, const std::optional<std::string>& value,
              Reply* reply) {
    ConditionalWrite write{key, condition};
    if (value.has_value()) write.value_bytes = static_cast<uint32_t>(value->size());
    if (value.has_value()) write.crc = Crc64(*value, Crc64(key));
    Send(MakeWriteIfRequest(root_, {}, write), value.value_or(""), reply);
  }
  // Sends an application of a function.
  void SendApply(const std::string& key, const FunctionCallOf& call, Reply* reply, const RequestId& id = {},
                 bool again = false) {
    const FunctionOnKey function{key, call.name, static_cast<uint32_t>(call.argument.size()), 0, 0, id, again};
    Send(MakeFunctionRequest(MessageKind::kApply, root_, function), call.argument, reply);
  }
  // Waits for the answer. Returns the result, with "unchanged" before it if nothing was put; or the code of an error.
  std::string AnswerApply(const Reply& reply) {
    for (int i = 0; i < 1000 && !reply.done; ++i) Turn();
    const auto applied = ParseFunctionReply(AsBytes(reply.bytes), MessageKind::kApply);
    if (!applied.ok()) return absl::StatusCodeToString(applied.status().code());
    return fmt::format("{}{}", (applied->fixed.flags & kValueChanged) != 0 ? "" : "unchanged ", applied->value);
  }
  // Waits for the answer to a conditional write. Returns "applied" or "refused", whether the key existed, and "stamped"
  // if there is a pair with a stamp now; or the code of an error.
  std::string AnswerIf(const Reply& reply) {
    for (int i = 0; i < 1000 && !reply.done; ++i) Turn();
    const absl::StatusOr<WriteIfReply> written = ParseWriteIfReply(AsBytes(reply.bytes));
    if (!written.ok()) return absl::StatusCodeToString(written.status().code());
    return fmt::format("{}{}{}", written->applied != 0 ? "applied" : "refused", written->existed != 0 ? " existed" : "",
                       written->stamp != 0 ? " stamped" : "");
  }
  // Waits for the answer. Returns its code.
  absl::StatusCode Answer(const Reply& reply) {
    for (int i = 0; i < 1000 && !reply.done; ++i) Turn();
    return CodeOf(reply.bytes);
  }
  // Returns the value of a key, or "absent".
  std::string Get(const std::string& key) {
    const std::string reply = Call(MakeKeyRequest(MessageKind::kGet, root_, {}, key));
    const auto get = ParseGetReply(AsBytes(reply));
    return get.ok() && get->fixed.found != 0 ? std::string(get->value) : "absent";
  }
  // Stores pairs with such keys and values until the region has no more room.
  void Fill(const std::string& prefix, const std::string& value) {
    absl::Status full;
    for (int i = 0; full.ok(); ++i) {
      const std::string key = fmt::format("{:05}{}", i, prefix);
      full = region()->store->Put(key, value, Crc64(value, Crc64(key))).status();
    }
    ASSERT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EndFlush();
  }
};

TEST_F(LoggedWritesTest, AWriteIsAppliedAndAnsweredWhenItIsOnDisk) {
  Reply put;
  SendPutOf("key", "value", &put);
  ASSERT_EQ(region()->pending.size(), 1u);
  EXPECT_TRUE(region()->pending.front().call.request.empty());  // Those bytes are gone.
  EXPECT_EQ(writes()->ApplyDurable(), 0u);
  EXPECT_FALSE(put.done);
  EXPECT_EQ(Get("key"), "absent");
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
  EXPECT_EQ(Get("key"), "value");
}

// A write that is not applied yet has reserved an extent that no leaf points to. A check must not call that damage.
TEST_F(LoggedWritesTest, ACheckKnowsWhatWritesHaveReserved) {
  const std::string value(2'000, 'v');
  Reply first, second;
  SendPutOf("a", value, &first);
  SendPutOf("b", value, &second);
  ASSERT_EQ(region()->pending.size(), 2u);
  const auto has = [this](std::string_view what) {
    return Call(MakeTextRequest(MessageKind::kCheck, "1")).find(what) != std::string::npos;
  };
  EXPECT_TRUE(has("\"error_count\":0"));
  const PendingWrite last = region()->pending.back();
  region()->pending.pop_back();
  EXPECT_TRUE(has("\"error_count\":1"));  // Without the write it would be damage.
  region()->pending.push_back(last);
  EXPECT_EQ(FlushAndApply(), 2u);
  EXPECT_EQ(Answer(first), absl::StatusCode::kOk);
  EXPECT_EQ(Answer(second), absl::StatusCode::kOk);
}

// A condition is decided by the writes before it, applied or not. What it has seen is told once it is on disk: the
// client of a put that was lost would otherwise contradict one that was told of it.
TEST_F(LoggedWritesTest, AConditionSeesWhatIsLogged) {
  const std::string large(300, 'l');  // In an extent.
  for (const std::string& value : {std::string("value"), large}) {
    SCOPED_TRACE(value.size());
    Reply first, absent, present, same, other, again, none;
    SendIf("key", {ConditionKind::kAbsent}, value, &first);
    SendIf("key", {ConditionKind::kAbsent}, "late", &absent);
    SendIf("key", {ConditionKind::kPresent}, value, &present);
    SendIf("key", {ConditionKind::kValue, 0, value}, std::nullopt, &same);
    SendIf("key", {ConditionKind::kValue, 0, value}, "late", &other);
    SendIf("key", {ConditionKind::kAbsent}, "again", &again);
    SendIf("key", {ConditionKind::kStamp, 1}, "late", &none);
    EXPECT_EQ(region()->pending.size(), 7u);
    for (int i = 0; i < 10; ++i) Turn();
    EXPECT_FALSE(first.done || absent.done || present.done || same.done || other.done || again.done || none.done);
    EXPECT_EQ(Get("key"), "absent");
    EXPECT_EQ(FlushAndApply(), 7u);
    EXPECT_EQ(AnswerIf(first), "applied stamped");
    EXPECT_EQ(AnswerIf(absent), "refused existed stamped");
    EXPECT_EQ(AnswerIf(present), "applied existed stamped");
    EXPECT_EQ(AnswerIf(same), "applied existed");
    EXPECT_EQ(AnswerIf(other), "refused");
    EXPECT_EQ(AnswerIf(again), "applied stamped");
    EXPECT_EQ(AnswerIf(none), "refused existed stamped");
    EXPECT_EQ(Get("key"), "again");
    Reply erase;
    SendDelete("key", &erase);
    EXPECT_EQ(FlushAndApply(), 1u);
    EXPECT_EQ(Answer(erase), absl::StatusCode::kOk);
  }
}

TEST_F(LoggedWritesTest, AConditionThatSawNothingThatIsLoggedIsAnsweredAtOnce) {
  Reply put, refused;
  SendPutOf("other", "value", &put);
  SendIf("key", {ConditionKind::kPresent}, "value", &refused);
  EXPECT_EQ(AnswerIf(refused), "refused");
  EXPECT_FALSE(put.done);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
}

TEST_F(LoggedWritesTest, AConditionOfAValueInATableSeesWhatIsLogged) {
  uint32_t region = 2;
  for (const uint32_t bucket_bytes : {0, 1024}) {
    RegionContent content;
    content.hash_range = HashRange{0, UINT32_MAX};
    content.bucket_bytes = bucket_bytes;
    HeldRegion* const table = *regions_.Create(region, content);
    table->SetLog(std::make_shared<RegionLog>(region, 1, 1, nullptr), true);
    const auto send = [&](const WriteCondition& condition, const std::string& value, Reply* reply) {
      const ConditionalWrite write{"key", condition, static_cast<uint32_t>(value.size()), Crc64(value, Crc64("key"))};
      Send(MakeWriteIfRequest(HashRootOf(region), {}, write), value, reply);
    };
    for (const std::string& value : {std::string("value"), std::string(3'000, 'v')}) {
      SCOPED_TRACE(fmt::format("{} {}", bucket_bytes, value.size()));
      Reply put, other, same, stamp;
      send({ConditionKind::kAbsent}, value, &put);
      send({ConditionKind::kValue, 0, value + "!"}, "late", &other);
      send({ConditionKind::kValue, 0, value}, value, &same);
      send({ConditionKind::kStamp, 1}, "late", &stamp);
      ASSERT_EQ(table->pending.size(), 3u);
      EXPECT_EQ(AnswerIf(stamp), "INVALID_ARGUMENT");
      table->log->EndFlush(table->log->BeginFlush(), absl::OkStatus());
      EXPECT_EQ(writes()->ApplyDurable(), 3u);
      EXPECT_EQ(AnswerIf(put), "applied");
      EXPECT_EQ(AnswerIf(other), "refused existed");
      EXPECT_EQ(AnswerIf(same), "applied existed");
      ASSERT_TRUE(*table->store->Delete("key"));
    }
    ++region;
  }
}

TEST_F(LoggedWritesTest, AFunctionIsAppliedToWhatIsLogged) {
  Reply one, ten, failed, unchanged, erase, after;
  SendApply("key", {"add-decimal", "1"}, &one);
  SendApply("key", {"add-decimal", "10"}, &ten);
  SendApply("key", {"add", MakeArgument(ElementType::kI64, ScalarBytes<int64_t>(1))}, &failed);
  SendApply("key", {"compare-and-swap", MakeSwapArgument("12", "13")}, &unchanged);
  SendDelete("key", &erase);
  SendApply("key", {"add-decimal", "5"}, &after);
  EXPECT_EQ(region()->pending.size(), 6u);
  for (int i = 0; i < 10; ++i) Turn();
  // Also that one has failed tells what is not on disk yet.
  EXPECT_FALSE(one.done || ten.done || failed.done || unchanged.done || erase.done || after.done);
  EXPECT_EQ(FlushAndApply(), 6u);
  EXPECT_EQ(AnswerApply(one), "1");
  EXPECT_EQ(AnswerApply(ten), "11");
  EXPECT_EQ(AnswerApply(failed), "FAILED_PRECONDITION");
  EXPECT_EQ(AnswerApply(unchanged), std::string("unchanged ") + '\0');
  EXPECT_EQ(AnswerApply(after), "5");
  EXPECT_EQ(Get("key"), "5");
}

TEST_F(LoggedWritesTest, AFunctionThatComesAgainWaitsForTheSameRecord) {
  const RequestId id{1, 1, kRequestTriedNs, 0};
  Reply first, again, other;
  SendApply("key", {"add-decimal", "1"}, &first, id);
  SendApply("other", {"add-decimal", "1"}, &other);
  SendApply("key", {"add-decimal", "1"}, &again, id, true);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_FALSE(first.done || again.done);
  EXPECT_EQ(FlushAndApply(), 3u);
  EXPECT_EQ(AnswerApply(first), "1");
  EXPECT_EQ(AnswerApply(again), "1");
  EXPECT_EQ(Get("key"), "1");
  Reply late;  // Now there is nothing to wait for.
  SendApply("key", {"add-decimal", "1"}, &late, id, true);
  EXPECT_EQ(AnswerApply(late), "1");
}

// A client that is told that its function changes nothing must not see an earlier try do it, so that is logged.
TEST_F(LoggedWritesTest, AFunctionThatComesAgainAndChangesNothingIsLogged) {
  const RequestId id{1, 1, kRequestTriedNs, 0};
  const FunctionCallOf swap{"compare-and-swap", MakeSwapArgument("a", "b")};
  Reply again, put, first, once;
  SendApply("key", swap, &once, {1, 1, kRequestTriedNs, 1});
  EXPECT_EQ(AnswerApply(once), std::string("unchanged ") + '\0') << "what was sent once can be answered at once";
  SendApply("key", swap, &again, id, true);
  for (int i = 0; i < 10; ++i) Turn();
  EXPECT_FALSE(again.done);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(AnswerApply(again), std::string("unchanged ") + '\0');
  SendPutOf("key", "a", &put);
  EXPECT_EQ(FlushAndApply(), 1u);
  SendApply("key", swap, &first, id);
  EXPECT_EQ(AnswerApply(first), std::string("unchanged ") + '\0');
  EXPECT_EQ(Get("key"), "a");
}

TEST_F(LoggedWritesTest, AFunctionWhoseLogFailsIsOfUnknownOutcome) {
  const RequestId id{1, 1, kRequestTriedNs, 0};
  Reply first, again;
  SendApply("key", {"add-decimal", "1"}, &first, id);
  SendApply("key", {"add-decimal", "1"}, &again, id, true);
  EndFlush(absl::DataLossError("the disk failed"));
  EXPECT_EQ(writes()->ApplyDurable(), 2u);
  EXPECT_EQ(AnswerApply(first), "UNKNOWN");
  EXPECT_EQ(AnswerApply(again), "UNAVAILABLE") << "its client tries again, and then the region's next owner knows";
}

// Nothing was written by a refused one, so its client may try again. Of the others it is not known.
TEST_F(LoggedWritesTest, ARefusedWriteWhoseLogFailsIsToBeTriedAgain) {
  Reply put, refused;
  SendIf("key", {ConditionKind::kAbsent}, "value", &put);
  SendIf("key", {ConditionKind::kAbsent}, "late", &refused);
  ASSERT_EQ(region()->pending.size(), 2u);
  EndFlush(absl::DataLossError("the disk failed"));
  EXPECT_EQ(writes()->ApplyDurable(), 2u);
  EXPECT_EQ(AnswerIf(put), "UNKNOWN");
  EXPECT_EQ(AnswerIf(refused), "UNAVAILABLE");
}

// A record that cannot be applied must not get into the log.
TEST_F(LoggedWritesTest, ADeleteOfAKeyThatCannotBeIsRefusedBeforeItIsLogged) {
  const uint64_t appended = region()->log->appended();
  Reply erase;
  SendDelete(std::string(300, 'k'), &erase);
  EXPECT_EQ(region()->log->appended(), appended);
  EXPECT_TRUE(region()->pending.empty());
  EXPECT_EQ(Answer(erase), absl::StatusCode::kInvalidArgument);
}

TEST_F(LoggedWritesTest, APutThatCannotBeAppliedIsRefusedBeforeItIsLogged) {
  const auto put_of = [this](const std::string& key, uint64_t crc) {
    return MakePutRequest(root_, {}, crc, key, sizeof("value") - 1, 0);
  };
  const auto crc_of = [](const std::string& key) { return Crc64("value", Crc64(key)); };
  const std::string long_key(300, 'k');
  for (const std::string& head :
       {put_of("key", crc_of("key") + 1), put_of("", crc_of("")), put_of(long_key, crc_of(long_key))}) {
    const uint64_t appended = region()->log->appended();
    Reply put;
    Send(head, "value", &put);
    EXPECT_EQ(region()->log->appended(), appended);
    ASSERT_TRUE(region()->pending.empty());
    EXPECT_EQ(Answer(put), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(LoggedWritesTest, ALoggedPutNeedsItsUploadNoMore) {
  const std::string value(60'000, 'v');
  ASSERT_EQ(CodeOf(Call(MakeUploadRequest(2, 0, static_cast<uint32_t>(value.size())), value)), absl::StatusCode::kOk);
  Reply put;
  SendPutOf("key", value, &put, 2);
  ASSERT_EQ(region()->pending.size(), 1u);
  EXPECT_EQ(service_.uploads().bytes(), 0u);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
}

// A region without free nodes replaces values, as it does without a log.
TEST_F(LoggedWritesTest, AFullRegionReplacesValues) {
  const std::string tail(200, 'k');
  Fill(tail, "old");
  Reply put;
  SendPutOf("00000" + tail, "new", &put);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
  EXPECT_EQ(Get("00000" + tail), "new");
}

// The key is not stored any more when the put is applied. The put could then need a node that is not there.
TEST_F(LoggedWritesTest, AFullRegionDoesNotReplaceAKeyWhoseDeletionIsLogged) {
  const std::string tail(200, 'k');
  Fill(tail, "old");
  Reply erase, put;
  SendDelete("00000" + tail, &erase);
  ASSERT_EQ(region()->pending.size(), 1u);
  SendPutOf("00000" + tail, "new", &put);
  EXPECT_EQ(region()->pending.size(), 1u);
  EXPECT_EQ(writes()->held().size(1), 1u);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(erase), absl::StatusCode::kOk);
  EXPECT_EQ(writes()->RetryHeld(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kResourceExhausted);
}

// The delete gives its extent back when it is applied.
TEST_F(LoggedWritesTest, AWriteWaitsForTheRoomOfLoggedOnes) {
  const std::string value(kInlineValueBytesMax, 'v');
  Fill("", value);
  Reply erase, put;
  SendDelete("00000", &erase);
  SendPutOf("zzzzz", value, &put);
  EXPECT_FALSE(put.done);
  ASSERT_EQ(writes()->held().size(1), 1u);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(erase), absl::StatusCode::kOk);
  EXPECT_EQ(writes()->RetryHeld(), 1u);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
}

// Its record may be on disk nevertheless, so nobody knows its outcome. Here, it is not applied.
TEST_F(LoggedWritesTest, AWriteWhoseLogFailsGivesItsRoomBack) {
  const uint64_t used = region()->store->extents().bytes_used;
  Reply put;
  SendPutOf("key", std::string(1000, 'v'), &put);
  EXPECT_GT(region()->store->extents().bytes_used, used);
  EndFlush(absl::DataLossError("the disk failed"));
  EXPECT_EQ(writes()->ApplyDurable(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kUnknown);
  EXPECT_EQ(region()->store->extents().bytes_used, used);
  EXPECT_EQ(region()->store->keys(), 0u);
}

// The log drops what is appended to it after it has failed: an acknowledged write would be lost.
TEST_F(LoggedWritesTest, ARegionWhoseLogHasFailedAcceptsNoWrites) {
  for (const bool first : {false, true}) {
    SCOPED_TRACE(first);
    BeginLog(first);
    region()->FailLog(absl::DataLossError("the disk failed"));
    Reply put;
    SendPutOf("key", "value", &put);
    EXPECT_TRUE(region()->pending.empty());
    EXPECT_EQ(Answer(put), absl::StatusCode::kUnavailable);
    EXPECT_EQ(region()->store->keys(), 0u);
  }
}

// A split or a migration waits until all logged writes are applied.
TEST_F(LoggedWritesTest, WhoWaitsForTheRegionIsToldThatWritesWereApplied) {
  Reply put;
  SendPutOf("key", "value", &put);
  EndFlush();
  Released released;
  region()->changed.Wait(&released).await_suspend(std::noop_coroutine());
  EXPECT_EQ(writes()->ApplyDurable(), 1u);
  EXPECT_EQ(released.count, 1);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
}

TEST_F(LoggedWritesTest, ALoggedWriteOfAClientThatIsGoneIsAppliedAndNotAnswered) {
  Waiter put;
  SendPutOf("key", "value", &put);
  client_->Disconnect(connection_);
  for (int i = 0; i < 100; ++i) Turn();
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(nlohmann::json::parse(service_.reports().StatusJson(0, 1))["served"]["put"], 0);
  EXPECT_EQ(region()->store->keys(), 1u);
}

// Nobody waits for its answer, and it was not acknowledged.
TEST_F(LoggedWritesTest, AHeldWriteOfAClientThatIsGoneIsForgotten) {
  region()->ChangeState(RegionState::kFrozen);
  Waiter put;
  SendPutOf("key", "value", &put);
  ASSERT_EQ(writes()->held().size(1), 1u);
  client_->Disconnect(connection_);
  for (int i = 0; i < 100 && writes()->held().size(1) > 0; ++i) Turn();
  EXPECT_EQ(writes()->held().size(1), 0u);
  region()->Unfreeze();
  EXPECT_EQ(writes()->RetryHeld(), 0u);
  EXPECT_TRUE(region()->pending.empty());
}

TEST_F(LoggedWritesTest, TheStatusTellsHowLongAWriteWaited) {
  region()->ChangeState(RegionState::kFrozen);
  Reply put;
  SendPutOf("key", "value", &put);
  const int64_t until_ns = server_->NowNs() + 5'000'000;
  while (server_->NowNs() < until_ns) server_->Wait(until_ns);
  region()->Unfreeze();
  EXPECT_EQ(writes()->RetryHeld(), 1u);
  EXPECT_GE(writes()->held().longest_ns(), 5'000'000);
  EXPECT_EQ(FlushAndApply(), 1u);
  EXPECT_EQ(Answer(put), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cell

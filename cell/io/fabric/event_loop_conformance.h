// Tests what every fabric must do for threads that wait by an event loop of their own (Fabric::WaitFd): a part of the
// suite FabricConformance.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "cell/io/fabric/fabric_conformance.h"
#include "cell/io/fabric/waiter.h"

namespace cell {

TEST_P(FabricConformance, ADescriptorIsReadableOnceThereIsSomethingToDo) {
  const int fd = client_->WaitFd();
  if (fd < 0) {
    EXPECT_EQ(client_->BeginWait(Soon()), 0);
    GTEST_SKIP() << "a simulated fabric has no descriptor";
  }
  const auto readable = [fd](int ms) {
    pollfd ready{fd, POLLIN, 0};
    return ::poll(&ready, 1, ms) == 1;
  };
  // Whatever comes, the descriptor tells it: this never looks without being told.
  const auto until = [&](const Waiter& waiter) {
    const int64_t limit_ns = Soon();
    while (!waiter.done() && client_->NowNs() < limit_ns) {
      const int64_t until_ns = client_->BeginWait(Soon());
      EXPECT_TRUE(until_ns == 0 || readable(10'000));
      client_->EndWait();
      client_->Poll();
    }
    ASSERT_TRUE(waiter.done());
  };
  for (int i = 0; i < 20; ++i) {
    Waiter call, read;
    alignas(8) std::byte to[8] = {};
    client_->Call(connection_, AsBytes("hello"), {}, kReplyBytesMin, Soon(), &call);
    until(call);
    EXPECT_EQ(call.reply(), "HELLO");
    const ReadPart part{Pointer(7, 4096), to, sizeof(to)};
    client_->Read(connection_, absl::MakeConstSpan(&part, 1), Soon(), &read);
    until(read);
    EXPECT_TRUE(read.status().ok()) << read.status();
  }
  // Wake is told, by any thread and before or after BeginWait.
  for (int turns = 0; client_->BeginWait(Soon()) == 0; ++turns) {
    client_->EndWait();
    client_->Poll();
    if (turns == 100'000) return;  // It polls busily, and never waits.
  }
  EXPECT_FALSE(readable(0));
  std::thread waker([this] { client_->Wake(); });
  EXPECT_TRUE(readable(10'000));
  waker.join();
  client_->EndWait();
  EXPECT_EQ(client_->BeginWait(Soon()), 0);
  client_->EndWait();
  EXPECT_NE(client_->BeginWait(Soon()), 0) << "it is told once";
  client_->EndWait();
  client_->Wake();
  client_->Wait(0);  // Does not wait, so the Wake is for the next wait.
  EXPECT_EQ(client_->BeginWait(Soon()), 0);
  client_->EndWait();
  EXPECT_NE(client_->BeginWait(Soon()), 0);
  EXPECT_FALSE(readable(0));
  client_->EndWait();
  // A deadline ends the wait as well.
  Waiter late;
  const int64_t deadline_ns = client_->NowNs() + 20'000'000;
  client_->Connect(harness_->Address(1), deadline_ns, &late);
  EXPECT_LE(client_->BeginWait(Soon()), deadline_ns);
  client_->EndWait();
  late.Await(client_.get());
}

}  // namespace cell

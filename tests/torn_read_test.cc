// Shows what each protection is for, with one-sided reads in virtual time, in random line order, against a writer.
#include <gtest/gtest.h>

#include "cell/base/check.h"
#include "cell/base/crc64.h"
#include "cell/base/random.h"
#include "cell/io/fabric/waiter.h"
#include "cell/io/sim/sim_fabric.h"
#include "cell/tree/meganode.h"

namespace cell {
namespace {

class Finished : public Completion {
 public:
  void Done(const absl::Status& status, ConstBytes) override {
    CELL_CHECK(status.ok());
    done = true;
  }
  bool done = false;
};

struct Counts {
  uint64_t reads = 0;
  uint64_t refused = 0;        // Torn, and recognized as such.
  uint64_t torn_accepted = 0;  // Accepted by the checks, although no such node was ever written.
};

// The value of an inline pair with this stamp.
std::string ValueOf(uint64_t stamp) { return fmt::format("{0:016x}{0:016x}", stamp); }

// Returns whether a leaf was written like this. All entries of a leaf carry the same stamp, and each write gives all of
// them the next one. Their values or extents follow from the stamp. A mix of two stamps, or a value that is not its
// stamp's, was never written.
bool Whole(const NodeView& node) {
  for (int i = 0; i < node.count(); ++i) {
    const LeafPair pair = node.pair(i);
    const uint64_t stamp = node.pair(0).stamp;
    if (pair.stamp != stamp || pair.is_inline != (i % 3 != 0)) return false;
    if (pair.is_inline ? pair.value != ValueOf(stamp) : pair.outside != PairExtent{Pointer(1, stamp * 8), stamp}) {
      return false;
    }
  }
  return true;
}

// `pause_ns` is the writer's maximum pause before each write. 0: it never pauses, so that every read is contended.
Counts ReadUnderWrites(SimOptions options, uint64_t reads, NodeView::Checks checks, int64_t pause_ns = 0) {
  SimNetwork network(options);
  auto server = network.NewEndpoint();
  auto client = network.NewEndpoint();
  class NoService : public Service {
    void Serve(absl::Span<const IncomingCall>) override {}
    void Disconnected(ConnectionId) override {}
  } service;
  const RegionShape shape{1024, 64 << 10, 4096};
  RegionMemory* memory = *server->CreateRegion(1, shape.region_bytes());
  CELL_CHECK(Meganode::Format(memory, 1, shape).ok());
  CELL_CHECK(server->Listen("s", &service).ok());
  const ConnectionId connection = *ConnectTo(client.get(), "s");

  const Pointer self(1, kRegionHeaderBytes);
  uint64_t stamp = 1;
  const auto write = [&] {
    NodeDraft draft(1024);
    draft.Begin(self, 0, "", std::nullopt, Pointer());
    const std::string value = ValueOf(stamp);
    for (int i = 0; i < 18; ++i) {
      const LeafPair pair = i % 3 != 0 ? LeafPair::Inline(value, stamp, stamp)
                                       : LeafPair::Outside({Pointer(1, stamp * 8), stamp}, value.size(), stamp);
      CELL_CHECK(draft.Insert(i, fmt::format("key{:02}", i), pair));
    }
    draft.Publish(memory, self.offset());
    ++stamp;
  };
  write();

  // Many reads are in flight while the writer writes continuously, so every read is contended.
  constexpr size_t kInFlight = 32;
  struct Slot {
    alignas(64) std::byte image[1024];
    Finished finished;
  };
  std::vector<Slot> slots(kInFlight);
  Counts counts;
  Random random(options.seed);
  while (counts.reads < reads) {
    for (Slot& slot : slots) {
      slot.finished.done = false;
      const ReadPart part{self, slot.image, 1024};
      client->Read(connection, {&part, 1}, INT64_MAX, &slot.finished);
    }
    for (size_t left = kInFlight; left > 0;) {
      if (pause_ns > 0)
        client->Wait(network.now_ns() + static_cast<int64_t>(random.Below(static_cast<uint64_t>(pause_ns))));
      write();
      client->Wait(network.now_ns() + 1);
      client->Poll();
      left = 0;
      for (const Slot& slot : slots) left += !slot.finished.done;
    }
    for (const Slot& slot : slots) {
      ++counts.reads;
      NodeView node;
      if (NodeView::Parse(ConstBytes(slot.image, 1024), self, &node, checks) != NodeFault::kNone) {
        ++counts.refused;
      } else if (!Whole(node)) {
        ++counts.torn_accepted;
      }
    }
  }
  return counts;
}

// Fast lines against a slow writer make many reads whole; slow lines make many torn.
SimOptions Contended(uint64_t seed, SimOptions::LineOrder order, int64_t line_ns) {
  SimOptions options;
  options.seed = seed;
  options.line_order = order;
  options.latency_ns = 100;
  options.line_ns = line_ns;
  options.writer_step_ns = 20;
  return options;
}

// The thesis's scheme, 4.3.1, accepts nodes that never existed if the NIC reads in any order. If this ever fails, the
// simulation does not tear reads any more, and the tests below show nothing.
TEST(TornRead, BookendVersionsAloneAcceptATornNodeInRandomOrder) {
  uint64_t accepted = 0;
  for (const int64_t line_ns : {2, 20}) {
    accepted +=
        ReadUnderWrites(Contended(1, SimOptions::LineOrder::kRandom, line_ns), 300'000, NodeView::Checks::kVersionsOnly)
            .torn_accepted;
  }
  EXPECT_GT(accepted, 100u);
}

// If the NIC reads in address order the scheme is sufficient, as the thesis says.
TEST(TornRead, BookendVersionsAreEnoughInAddressOrder) {
  const Counts counts = ReadUnderWrites(Contended(1, SimOptions::LineOrder::kAscending, 2), 300'000,
                                        NodeView::Checks::kVersionsOnly, /*pause_ns=*/200);
  EXPECT_EQ(counts.torn_accepted, 0u);
  EXPECT_GT(counts.refused, counts.reads / 10);
  EXPECT_LT(counts.refused, counts.reads);
}

TEST(TornRead, TheFullCheckNeverAcceptsATornNodeInTenMillionReads) {
  Counts sum;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const Counts counts = ReadUnderWrites(Contended(seed, SimOptions::LineOrder::kRandom, seed % 2 == 0 ? 2 : 5),
                                          1'000'000, NodeView::Checks::kFull);
    sum.reads += counts.reads;
    sum.refused += counts.refused;
    ASSERT_EQ(counts.torn_accepted, 0u) << "seed " << seed;
  }
  EXPECT_GE(sum.reads, 10'000'000u);
  EXPECT_GT(sum.refused, sum.reads / 10) << "too few reads were contended";
  EXPECT_LT(sum.refused, sum.reads) << "every read was torn";
}

}  // namespace
}  // namespace cell

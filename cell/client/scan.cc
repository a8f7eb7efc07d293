// Scans: batches of entries, each over the path that was chosen for it.
#include <algorithm>

#include "cell/base/crc64.h"
#include "cell/base/status_macros.h"
#include "cell/client/way.h"
#include "fmt/format.h"

namespace cell {
namespace {

constexpr int kLeafAttemptsMax = 64;
// A one-sided batch ends early once its extents are this large together.
constexpr size_t kArenaBytesMax = size_t{4} << 20;

}  // namespace

class Scan::Cursor {
 public:
  Cursor(Session* session, ScanOptions options)
      : session_(session),
        options_(std::move(options)),
        next_key_(options_.from),
        left_(options_.limit),
        leaf_buffer_(session),
        right_buffer_(session) {
    options_.batch = std::clamp<uint32_t>(options_.batch, 1, kScanLimitMax);
    done_ = left_ == 0 || (options_.to.has_value() && next_key_ >= *options_.to);
  }

  Task<absl::StatusOr<absl::Span<const Entry>>> NextBatch() {
    places_.clear();
    arena_bytes_ = 0;
    entries_.clear();
    if (done_) co_return absl::Span<const Entry>();
    const CallContext context = session_->Begin(options_.call);
    absl::Status status = CheckKeys();
    // A batch of nothing says nothing: the end, or the next entries.
    while (status.ok() && places_.empty() && !done_) {
      if (!way_.has_value()) {
        way_key_ = next_key_;
        way_.emplace(session_, way_key_, context);
        if (!next_root_.null()) (void)way_->GoTo(next_root_);
      }
      if (way_->server() == nullptr) {
        leaf_ready_ = walk_goes_on_ = false;
        status = co_await way_->Find();
        if (!status.ok()) break;
      }
      ServerConnection* const server = way_->server();
      const Path path = session_->ChoosePath(&server->scans, context);
      if (path == Path::kServer) {
        leaf_ready_ = walk_goes_on_ = false;
        status = co_await FillByCall(server, context);
      } else {
        status = co_await FillByReads(server, context);
      }
      if (status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kUnknown) {
        leaf_ready_ = walk_goes_on_ = false;
        if (way_.has_value()) (void)way_->Lose();  // The region table may know another server.
        status = absl::OkStatus();
      }
      if (session_->now_ns() > context.deadline_ns && status.ok() && places_.empty()) {
        status = absl::DeadlineExceededError("scan took too long");
      }
    }
    EndWay();
    if (status.code() == absl::StatusCode::kUnknown) status = absl::UnavailableError(std::string(status.message()));
    session_->End(context, status);
    if (!status.ok()) co_return status;
    for (const Place& place : places_) {
      const std::string_view entry(reinterpret_cast<const char*>(arena_.data()) + place.at,
                                   place.key_bytes + place.value_bytes);
      entries_.push_back({entry.substr(0, place.key_bytes), entry.substr(place.key_bytes)});
    }
    session_->metrics()->scanned += entries_.size();
    co_return absl::Span<const Entry>(entries_);
  }

 private:
  // An entry in the arena: key and value one after the other.
  struct Place {
    size_t at;
    size_t key_bytes;
    size_t value_bytes;
  };

  absl::Status CheckKeys() const {
    const size_t longest = KeyBytesMax(session_->node_bytes());
    if (next_key_.size() > longest || (options_.to.has_value() && options_.to->size() > longest)) {
      return absl::InvalidArgumentError(fmt::format("a scan's bounds have at most {} bytes", longest));
    }
    return absl::OkStatus();
  }

  // The next batch begins at `root`; null: where the key leads.
  void NextAt(Pointer root) {
    next_root_ = root;
    way_.reset();
  }
  // The way refers to this batch's deadline, and to the key where it began.
  void EndWay() {
    if (way_.has_value()) NextAt(way_->server() != nullptr ? way_->root() : Pointer());
  }

  uint32_t Wanted() const { return static_cast<uint32_t>(std::min<uint64_t>(left_, options_.batch)); }

  // Room for `bytes` more, 8-byte aligned. What was written before stays where it is, by offset.
  size_t Reserve(size_t bytes) {
    const size_t at = arena_bytes_;
    arena_bytes_ += RoundUp(bytes, kWordBytes);
    if (arena_.size() * kWordBytes < arena_bytes_)
      arena_.resize(std::max(arena_bytes_ / kWordBytes, 2 * arena_.size()));
    return at;
  }
  std::byte* ArenaAt(size_t at) { return reinterpret_cast<std::byte*>(arena_.data()) + at; }

  Task<absl::Status> FillByCall(ServerConnection* server, CallContext context) {
    const int64_t asked_ns = session_->now_ns();
    const std::string request =
        MakeScanRequest(way_->root(), next_key_, options_.to.has_value() ? &*options_.to : nullptr, Wanted(),
                        kMessageBytesMax, options_.keys_only);
    const absl::StatusOr<ConstBytes> reply =
        co_await session_->Call(server, request, {}, kMessageBytesMax, context.deadline_ns);
    if (!reply.ok()) co_return reply.status();
    server->scans.ObserveServer(session_->now_ns() - asked_ns);
    if (IsRoute(*reply)) {
      const absl::StatusOr<RouteView> route = ParseRouteReply(*reply);
      co_return route.ok() ? way_->Follow(*route) : route.status();
    }
    const absl::StatusOr<ScanResult> result = ParseScanReply(*reply, &items_);
    if (!result.ok()) co_return result.status();
    // The views point into the reply, which is gone at the next suspension: copy it whole, then fetch large values.
    const std::byte* const from = reply->data();
    const size_t base = Reserve(reply->size());
    std::memcpy(ArenaAt(base), from, reply->size());
    const auto at = [&](std::string_view view) {
      return base + static_cast<size_t>(reinterpret_cast<const std::byte*>(view.data()) - from);
    };
    next_key_.assign(result->next_key);
    NextAt(result->next.null() ? way_->root() : result->next);
    if (!result->done && next_key_.empty()) co_return absl::DataLossError("a scan that goes on nowhere");
    done_ = result->done;
    left_ -= std::min<uint64_t>(left_, items_.size());
    done_ |= left_ == 0;
    size_t elsewhere = 0;
    for (const ScanItem& item : items_) {
      elsewhere += item.elsewhere;
      places_.push_back({at(item.key), item.key.size(), item.value.size()});
    }
    if (elsewhere == 0) co_return absl::OkStatus();
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].elsewhere) continue;
      const std::string key(reinterpret_cast<const char*>(ArenaAt(places_[i].at)), places_[i].key_bytes);
      absl::StatusOr<size_t> fetched = co_await FetchLarge(server, key, items_[i], context);
      if (!fetched.ok()) co_return fetched.status();
      if (*fetched == SIZE_MAX) {  // Changed since: begin the batch's rest anew, from this key.
        ++session_->metrics()->extent_retries;
        left_ += items_.size() - i;
        places_.resize(i);
        next_key_ = key;
        done_ = false;
        break;
      }
      places_[i].at = *fetched;
      places_[i].value_bytes = items_[i].value_bytes;
    }
    co_return absl::OkStatus();
  }

  // The extent in the arena, or SIZE_MAX when it is no longer what the leaf said.
  Task<absl::StatusOr<size_t>> FetchLarge(ServerConnection* server, std::string_view key, const ScanItem& item,
                                          CallContext context) {
    const size_t bytes = key.size() + item.value_bytes;
    const size_t at = Reserve(bytes);
    for (size_t done = 0; done < bytes;) {
      const size_t piece = std::min(bytes - done, (kMessageBytesMax - sizeof(ReplyHeader)) / 8 * 8);
      const std::string fetch =
          MakeFetchRequest(Pointer(item.extent.extent.region(), item.extent.extent.offset() + done), piece);
      const absl::StatusOr<ConstBytes> answer =
          co_await session_->Call(server, fetch, {}, kMessageBytesMax, context.deadline_ns);
      if (!answer.ok()) co_return answer.status();
      const absl::StatusOr<ConstBytes> got = ParseBytesReply(*answer, MessageKind::kFetch);
      if (got.status().code() == absl::StatusCode::kOutOfRange) co_return size_t{SIZE_MAX};  // It has moved.
      if (!got.ok()) co_return got.status();
      if (got->size() != piece) co_return absl::DataLossError("a fetch returned another size than asked for");
      std::memcpy(ArenaAt(at + done), got->data(), piece);
      done += piece;
    }
    const std::string_view extent = AsText(ConstBytes(ArenaAt(at), bytes));
    if (Crc64(extent) != item.extent.crc || extent.substr(0, key.size()) != key) co_return size_t{SIZE_MAX};
    co_return at;
  }

  // Leaf by leaf: its extents and the leaf to its right are read together.
  Task<absl::Status> FillByReads(ServerConnection* server, CallContext context) {
    int rounds = 0;
    for (int attempt = 0; places_.size() < Wanted() && !done_ && arena_bytes_ < kArenaBytesMax;) {
      if (!leaf_ready_) {
        if (!walk_goes_on_) walk_ = Walk(next_key_, way_->root());
        walk_goes_on_ = false;
        const absl::StatusOr<Walk::Step> step = co_await session_->WalkToLeaf(
            server, &walk_, way_->may_use_cache(), &leaf_buffer_, &leaf_, context.deadline_ns, &server->scans, &rounds);
        if (!step.ok()) co_return step.status();
        if (*step != Walk::Step::kArrived) {
          const absl::Status status = way_->Follow(walk_, *step);
          if (!status.ok() || places_.empty()) co_return status;
          break;
        }
        leaf_ready_ = true;
      }
      const uint64_t wanted = Wanted() - places_.size();
      const size_t places_before = places_.size();
      const size_t arena_before = arena_bytes_;
      const int first = leaf_.LowerBound(next_key_);
      int end = first;
      bool reached_to = false;
      slots_.clear();
      for (; end < leaf_.count() && slots_.size() < wanted && arena_bytes_ < kArenaBytesMax; ++end) {
        leaf_.CopyKey(end, &key_);
        if (options_.to.has_value() && key_ >= *options_.to) {
          reached_to = true;
          break;
        }
        const LeafSlot slot = leaf_.leaf_slot(end);
        if (slot.extent_bytes < key_.size() || slot.extent_bytes > key_.size() + kValueBytesMax) {
          co_return absl::DataLossError(fmt::format("the leaf gives {} an impossible size", ForMessage(key_)));
        }
        if (options_.keys_only) {
          const size_t at = Reserve(key_.size());
          std::memcpy(ArenaAt(at), key_.data(), key_.size());
          places_.push_back({at, key_.size(), 0});
        } else {
          places_.push_back({Reserve(slot.extent_bytes), key_.size(), slot.extent_bytes - key_.size()});
        }
        slots_.push_back(slot);
      }
      const bool whole_leaf = end == leaf_.count();
      const bool more_right = whole_leaf && leaf_.has_high() && left_ > places_.size() &&
                              !(options_.to.has_value() && leaf_.high_key() >= *options_.to);
      const Pointer right = leaf_.right();
      const bool go_right = more_right && right.region() == leaf_.self().region();
      parts_.clear();
      absl::Status status;
      if (!options_.keys_only) {
        for (size_t i = 0; i < slots_.size(); ++i) {
          parts_.push_back({slots_[i].extent, ArenaAt(places_[places_before + i].at),
                            static_cast<uint32_t>(RoundUp(slots_[i].extent_bytes, kWordBytes))});
        }
      }
      if (go_right) parts_.push_back({right, right_buffer_.data(), session_->node_bytes()});
      if (!parts_.empty()) {
        ++rounds;
        const int64_t asked_ns = session_->now_ns();
        session_->metrics()->node_reads += go_right;
        session_->metrics()->extent_reads += parts_.size() - go_right;
        status = co_await session_->Read(server, parts_);
        if (!status.ok() && status.code() != absl::StatusCode::kOutOfRange) {
          places_.resize(places_before);
          arena_bytes_ = arena_before;
          leaf_ready_ = false;
          co_return status;
        }
        server->scans.ObserveRead(session_->now_ns() - asked_ns);
      }
      if (!status.ok() ||
          !ExtentsAreRight(places_before)) {  // One was replaced since the leaf was read: read the leaf again.
        ++session_->metrics()->extent_retries;
        places_.resize(places_before);
        arena_bytes_ = arena_before;
        leaf_ready_ = false;
        if (++attempt == kLeafAttemptsMax) {
          co_return absl::UnavailableError(fmt::format("the leaf of {} changed {} times while it was read",
                                                       ForMessage(next_key_), kLeafAttemptsMax));
        }
        continue;
      }
      if (!whole_leaf) {
        if (reached_to) {
          done_ = true;
        } else {
          leaf_.CopyKey(end, &next_key_);  // The batch is full: go on here, with the leaf as it was read.
        }
        break;
      }
      if (!go_right) {
        // The end of the keys, of the range, or of the limit. After a limit `left_` ends it.
        done_ = !leaf_.has_high() || (options_.to.has_value() && leaf_.high_key() >= *options_.to);
        leaf_ready_ = false;
        if (!done_) next_key_ = leaf_.high_key();
        if (more_right) NextAt(right);  // The neighbour, on whatever server.
        break;
      }
      next_key_ = leaf_.high_key();
      walk_.ContinueRight(leaf_, next_key_);
      leaf_buffer_.Swap(&right_buffer_);
      leaf_ready_ = VisitPrefetched(right);
      walk_goes_on_ = !leaf_ready_;
    }
    if (left_ <= places_.size()) done_ = true;
    left_ -= std::min<uint64_t>(left_, places_.size());
    server->scans.ObserveReads(rounds);
    co_return absl::OkStatus();
  }

  bool ExtentsAreRight(size_t places_before) {
    if (options_.keys_only) return true;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Place& place = places_[places_before + i];
      if (Crc64(ConstBytes(ArenaAt(place.at), slots_[i].extent_bytes)) != slots_[i].crc) return false;
    }
    return true;
  }

  // Whether the node in leaf_buffer_, read as `right`, is the leaf of next_key_. If not, walk_ knows how to go on.
  bool VisitPrefetched(Pointer right) {
    NodeView view;
    const NodeFault fault = NodeView::Parse(ConstBytes(leaf_buffer_.data(), session_->node_bytes()), right, &view);
    if (fault != NodeFault::kNone) {
      ++session_->metrics()->torn;
      walk_.Failed(fault);
      return false;
    }
    leaf_ = view;
    return walk_.Visit(view) == Walk::Step::kArrived;
  }

  Session* session_;
  ScanOptions options_;
  std::string next_key_;  // Where the next batch begins, inclusive. walk_ refers to it.
  uint64_t left_;         // Of the limit.
  bool done_ = false;
  Pointer next_root_;       // Of the meganode with next_key_, if known.
  std::optional<Way> way_;  // Of the batch being filled...
  std::string way_key_;     // ...and where it begins.

  // One-sided: the leaf of next_key_, when ready.
  Walk walk_;
  bool walk_goes_on_ = false;
  bool leaf_ready_ = false;
  NodeView leaf_;
  NodeBuffer leaf_buffer_;
  NodeBuffer right_buffer_;

  // The batch.
  std::vector<uint64_t> arena_;  // Words, so that reads into it are aligned.
  size_t arena_bytes_ = 0;
  std::vector<Place> places_;
  std::vector<Entry> entries_;
  std::vector<LeafSlot> slots_;
  std::vector<ReadPart> parts_;
  std::vector<ScanItem> items_;
  std::string key_;
};

Scan::Scan(Session* session, ScanOptions options)
    : session_(session), cursor_(std::make_unique<Cursor>(session, std::move(options))) {}
Scan::Scan(Scan&&) noexcept = default;
Scan& Scan::operator=(Scan&&) noexcept = default;
Scan::~Scan() = default;

Task<absl::StatusOr<absl::Span<const Scan::Entry>>> Scan::AsyncNextBatch() { return cursor_->NextBatch(); }

absl::StatusOr<bool> Scan::Next() {
  if (++at_ < batch_.size()) return true;
  auto task = cursor_->NextBatch();
  task.Start();
  while (!task.done()) session_->Poll(INT64_MAX);
  ASSIGN_OR_RETURN(batch_, task.Take());
  at_ = 0;
  return !batch_.empty();
}

Scan Client::NewScan(ScanOptions options) { return Scan(session_.get(), std::move(options)); }

}  // namespace cell

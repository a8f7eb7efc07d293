// The messages between client and server, one struct per request and reply, followed by the bytes that it counts.
//
// A message that arrives is an image until Parse... has checked every count against the bytes that are there; the
// views that Parse returns point into the message. Integers are little-endian; reserved fields are zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/bytes.h"
#include "cell/layout/pointer.h"
#include "cell/layout/service_times.h"

namespace cell {

inline constexpr uint16_t kWireVersion = 5;

// The most that one message carries; larger values go in several (the thesis, 6.6.2).
inline constexpr size_t kMessageBytesMax = size_t{64} << 10;
// A get's or scan's value up to this size comes with the reply; a larger one is fetched by messages of its own.
inline constexpr size_t kInlineValueBytesMax = 4096;
inline constexpr size_t kUploadPartBytesMax = kMessageBytesMax - 64;
inline constexpr uint32_t kScanLimitMax = 4096;

enum class MessageKind : uint16_t {
  kSearch = 1,  // Is a key stored? And which leaf is its place?
  kGet = 2,
  kPut = 3,
  kDelete = 4,
  kScan = 5,
  kFetch = 6,    // A piece of a value that was too large for a reply.
  kUpload = 7,   // A piece of a value that is too large for a put.
  kStatus = 8,   // The server's state, as JSON.
  kCheck = 9,    // Runs the tree check of a region; its report, as JSON.
  kReport = 10,  // A client's own counters, for `cellctl top`, as JSON.

  // Between servers.
  kAddRoute = 16,   // A meganode's root becomes known to the tier above.
  kMigration = 17,  // The steps of a region's move (cell/server/change/migrator.h).
  kWeigh = 18,      // How much a worker holds.

  // In replies alone, to any request that names a meganode: it is not there, the key is another meganode's.
  kRoute = 32,
};

struct MessageHeader {
  MessageKind kind;
  uint16_t version;
  uint32_t bytes;  // Of the whole message.
};

struct ReplyHeader {
  MessageKind kind;
  uint16_t code;   // An absl::StatusCode. Not 0: the rest of the message is text.
  uint32_t bytes;  // Of the whole message.
  ServiceTimes times = {};
};

// Search, get and delete. Then the key.
struct KeyRequest {
  MessageHeader header;
  Pointer root;  // Of the meganode to search.
  Pointer hint;  // Delete: the leaf that the client found, or null.
  uint16_t key_bytes;
  uint16_t copy;  // Get, not 0: a value that is too large for the reply is copied under this number, to be fetched.
  uint16_t reserved[2];
};
// The numbers of a client's copies go from 1 to this.
inline constexpr uint16_t kCopiesMax = 4;

// Then the key, then the value unless it was uploaded.
struct PutRequest {
  MessageHeader header;
  Pointer root;
  Pointer hint;
  uint64_t crc;  // Of key and value.
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint16_t upload;  // Not 0: the value is what was uploaded under this number.
};

// Then the bytes, which go to the end of the upload. Offset 0 begins it anew.
struct UploadRequest {
  MessageHeader header;
  uint32_t offset;
  uint16_t upload;  // 1 to kUploadsMax, chosen by the client.
  uint16_t reserved;
};
inline constexpr uint16_t kUploadsMax = 4;

// Then `from`, then `to`. Up: from is inclusive, to exclusive. Down, from the greater key: both inclusive. Without
// has_to to the last key, or the first.
struct ScanRequest {
  MessageHeader header;
  Pointer root;
  uint32_t limit;
  uint32_t reply_bytes_max;
  uint16_t from_bytes;
  uint16_t to_bytes;
  uint8_t has_to;
  uint8_t keys_only;
  uint8_t down;
  uint8_t reserved;
};

struct FetchRequest {
  MessageHeader header;
  Pointer from;  // In the extent; 8-byte aligned. In a copy: its offset alone counts.
  uint32_t bytes;
  uint16_t copy;  // Not 0: of the copy with this number. It goes with its last byte.
  uint16_t reserved;
};

// Then the key. Answered by a WriteReply (existed: there was such a route) or a route.
struct AddRouteRequest {
  MessageHeader header;
  Pointer root;   // Of the meganode that is asked.
  Pointer child;  // From `key` on.
  uint16_t key_bytes;
  uint8_t tier;  // Of the meganode that shall hold the route.
  uint8_t reserved[5];
};

enum class MigrationStep : uint8_t {
  kOffer = 1,    // Giver to taker: take this region.
  kBegin = 2,    // Taker to giver: tell me what is written, now...
  kWritten = 3,  // ...and what was written since.
  kFreeze = 4,   // Take no more writes, and tell me the last.
  kSeal = 5,     // I have it all: invalidate all nodes.
  kDone = 6,     // The table says that it is mine.
  kCancel = 7,
};

// Then, of an offer, the name of the giver's server. Answered by a MigrationReply.
struct MigrationRequest {
  MessageHeader header;
  uint64_t epoch;  // Of the region, before the move.
  uint32_t region;
  uint32_t worker;  // Of the giver.
  MigrationStep step;
  uint8_t reserved[7];
};

// Then `runs` runs of written pages.
struct MigrationReply {
  ReplyHeader header;
  uint32_t runs;
  uint32_t more;  // Pages that had no room here.
};
struct PageRun {
  uint32_t first;
  uint32_t pages;
};

enum class RouteKind : uint8_t {
  kChild = 1,    // Go on at `next`, which covers the range, if one is given.
  kRight = 2,    // Go on at `next`: the key is past this meganode's end.
  kLost = 3,     // The key is below this meganode: begin again at the root of the tree.
  kNotHeld = 4,  // This worker does not hold the region: ask the region table again.
  kTooLow = 5,   // AddRoute: this is a meganode of a tier below, and there is none above it.
};

// Then the low key, then the high key, of `next`; left out when the reply has no room.
struct RouteReply {
  ReplyHeader header;
  Pointer next;
  RouteKind route;
  uint8_t has_range;
  uint8_t has_high;
  uint8_t reserved;
  uint16_t low_key_bytes;
  uint16_t high_key_bytes;
};

// A worker's: bytes in use, of the nodes and extents of all its regions.
struct WeighReply {
  ReplyHeader header;
  uint64_t bytes_used;
};

struct SearchReply {
  ReplyHeader header;
  Pointer leaf;
  uint64_t found;
};

// Then the value, if inlined.
struct GetReply {
  ReplyHeader header;
  Pointer extent;
  uint64_t crc;
  uint32_t value_bytes;
  uint8_t found;
  uint8_t inlined;
  uint16_t copied;  // Not 0: the value was copied under this number, and `extent` is null.
};

struct WriteReply {
  ReplyHeader header;
  uint64_t existed;
};

// Then `count` entries, then the key where the next scan starts unless `done`.
struct ScanReply {
  ReplyHeader header;
  Pointer next;  // The root of the meganode with the next key, if it is the right neighbour; else null.
  uint32_t count;
  uint16_t next_key_bytes;
  uint8_t done;
  uint8_t reserved;
};

// Then the key, then the value, or a ScanExtent if `elsewhere`. At any alignment.
struct ScanEntry {
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint16_t elsewhere;
};
struct ScanExtent {
  Pointer extent;
  uint64_t crc;
};

static_assert(sizeof(KeyRequest) == 32 && std::has_unique_object_representations_v<KeyRequest>);
static_assert(sizeof(PutRequest) == 40 && std::has_unique_object_representations_v<PutRequest>);
static_assert(sizeof(UploadRequest) == 16 && std::has_unique_object_representations_v<UploadRequest>);
static_assert(sizeof(ScanRequest) == 32 && std::has_unique_object_representations_v<ScanRequest>);
static_assert(kCopiesMax == kUploadsMax);  // Clients hand out both together.
static_assert(sizeof(FetchRequest) == 24 && std::has_unique_object_representations_v<FetchRequest>);
static_assert(sizeof(SearchReply) == 32 && std::has_unique_object_representations_v<SearchReply>);
static_assert(sizeof(GetReply) == 40 && std::has_unique_object_representations_v<GetReply>);
static_assert(sizeof(WriteReply) == 24 && std::has_unique_object_representations_v<WriteReply>);
static_assert(sizeof(WeighReply) == 24 && std::has_unique_object_representations_v<WeighReply>);
static_assert(sizeof(AddRouteRequest) == 32 && std::has_unique_object_representations_v<AddRouteRequest>);
static_assert(sizeof(MigrationRequest) == 32 && std::has_unique_object_representations_v<MigrationRequest>);
static_assert(sizeof(MigrationReply) == 24 && sizeof(PageRun) == 8);
static_assert(sizeof(RouteReply) == 32 && std::has_unique_object_representations_v<RouteReply>);
static_assert(sizeof(ScanReply) == 32 && std::has_unique_object_representations_v<ScanReply>);
static_assert(sizeof(ScanEntry) == 8 && sizeof(ScanExtent) == 16);

template <typename Fixed>
struct Parsed {
  Fixed fixed;
  std::string_view key;    // KeyRequest, PutRequest, AddRouteRequest; ScanRequest: from; MigrationRequest: the server.
  std::string_view value;  // PutRequest: value, UploadRequest: bytes, ScanRequest: to, GetReply: value.
};

// Requests. InvalidArgument when a message is too short, too long, of another version, or its counts do not add up.
absl::StatusOr<MessageHeader> ParseHeader(ConstBytes message);
absl::StatusOr<Parsed<KeyRequest>> ParseKeyRequest(ConstBytes message);
absl::StatusOr<Parsed<PutRequest>> ParsePutRequest(ConstBytes message);
absl::StatusOr<Parsed<UploadRequest>> ParseUploadRequest(ConstBytes message);
absl::StatusOr<Parsed<ScanRequest>> ParseScanRequest(ConstBytes message);
absl::StatusOr<FetchRequest> ParseFetchRequest(ConstBytes message);
absl::StatusOr<Parsed<AddRouteRequest>> ParseAddRouteRequest(ConstBytes message);

absl::StatusOr<Parsed<MigrationRequest>> ParseMigrationRequest(ConstBytes message);

// Replies. The server's error, if it is one; DataLoss when the bytes are not a reply to a request of this kind.
absl::StatusOr<SearchReply> ParseSearchReply(ConstBytes message);
absl::StatusOr<Parsed<GetReply>> ParseGetReply(ConstBytes message);
absl::StatusOr<WriteReply> ParseWriteReply(ConstBytes message, MessageKind kind);
// The bytes after the header: of a fetch, or JSON text.
absl::StatusOr<ConstBytes> ParseBytesReply(ConstBytes message, MessageKind kind);

absl::StatusOr<WeighReply> ParseWeighReply(ConstBytes message);
absl::StatusOr<MigrationReply> ParseMigrationReply(ConstBytes message, std::vector<PageRun>* runs);
// What a reply says that it took; all 0 of what is no reply.
ServiceTimes TimesOf(ConstBytes message);
// Whether a reply is a route instead of what was asked for.
bool IsRoute(ConstBytes message);
struct RouteView {
  RouteKind kind;
  Pointer next;
  std::string_view low_key;   // With has_range.
  std::string_view high_key;  // With has_high.
  bool has_range;
  bool has_high;
};
absl::StatusOr<RouteView> ParseRouteReply(ConstBytes message);
// What a reply needs room for, for a route to come with its range.
constexpr size_t RouteReplyBytes(size_t key_bytes_max) { return sizeof(RouteReply) + 2 * key_bytes_max; }

struct ScanItem {
  std::string_view key;
  std::string_view value;  // Empty if elsewhere.
  uint32_t value_bytes;
  bool elsewhere;
  ScanExtent extent;
};
struct ScanResult {
  bool done;
  std::string_view next_key;
  Pointer next;
};
// Clears and fills *items.
absl::StatusOr<ScanResult> ParseScanReply(ConstBytes message, std::vector<ScanItem>* items);

// Writes what it took into a reply that is there.
void SetTimes(MutableBytes reply, const ServiceTimes& times);

// A reply without an error, but for what is to be filled in.
template <typename Reply>
Reply ReplyOf(MessageKind kind, size_t bytes = sizeof(Reply)) {
  Reply reply{};
  reply.header = {kind, 0, static_cast<uint32_t>(bytes), {}};
  return reply;
}

// Composes messages. Each returns the bytes of the fixed part and the key; a value follows them on the wire.
std::string MakeKeyRequest(MessageKind kind, Pointer root, Pointer hint, std::string_view key, uint16_t copy = 0);
std::string MakePutRequest(Pointer root, Pointer hint, uint64_t crc, std::string_view key, uint32_t value_bytes,
                           uint16_t upload);
std::string MakeUploadRequest(uint16_t upload, uint32_t offset, uint32_t bytes);
struct ScanTerms {
  uint32_t limit;
  uint32_t reply_bytes_max;
  bool keys_only = false;
  bool down = false;
};
std::string MakeScanRequest(Pointer root, std::string_view from, const std::optional<std::string>& to,
                            const ScanTerms& terms);
std::string MakeFetchRequest(Pointer from, uint32_t bytes, uint16_t copy = 0);
std::string MakeAddRouteRequest(Pointer root, uint8_t tier, std::string_view key, Pointer child);
std::string MakeMigrationRequest(MigrationStep step, uint32_t region, uint64_t epoch, uint32_t worker = 0,
                                 std::string_view server = {});
// A message that is its header and text: status, check, report.
std::string MakeTextRequest(MessageKind kind, std::string_view text = {});

// Writes an error reply into `to`, cutting the text to what fits, and returns its bytes.
size_t WriteErrorReply(MutableBytes to, MessageKind kind, const absl::Status& status);
// Writes a route; its range only if all of it fits.
size_t WriteRouteReply(MutableBytes to, const RouteView& route);
// Writes a reply header and text, cut to what fits.
size_t WriteTextReply(MutableBytes to, MessageKind kind, std::string_view text);

}  // namespace cell

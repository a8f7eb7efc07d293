// Defines the messages between client and server, except those of functions, transactions and snapshots
// (wire_function.h, wire_transaction.h, wire_snapshot.h). Each request and reply is a struct, followed by the bytes
// that it counts.
//
// A received message is untrusted until Parse... has checked every count against its size. The views that Parse returns
// point into the message. Integers are little-endian; reserved fields are zero.
//
// Make... returns the bytes of a request's fixed part and its key; a value follows them on the wire. Parse...Request
// returns InvalidArgument if a message is too short, too long or of another version, or if its counts do not add up.
// Parse...Reply returns the server's error if the reply is one, and DataLoss if the bytes are not a reply to a request
// of this kind.
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
#include "cell/layout/expiry.h"
#include "cell/layout/limits.h"
#include "cell/layout/node.h"
#include "cell/layout/pointer.h"
#include "cell/layout/service_times.h"

namespace cell {

inline constexpr uint16_t kWireVersion = 16;  // 16: gets with the state of a leaf (kFollowsLeaf).

// Limits the values in replies to gets and scans. Larger values are fetched by separate messages.
inline constexpr size_t kInlineValueBytesMax = 4096;
inline constexpr size_t kUploadPartBytesMax = kMessageBytesMax - 64;
inline constexpr uint32_t kScanLimitMax = 4096;

enum class MessageKind : uint16_t {
  kSearch = 1,  // Looks up whether a key is stored, and which leaf covers it.
  kGet = 2,
  kPut = 3,
  kDelete = 4,
  kScan = 5,
  kFetch = 6,    // Fetches a piece of a value that was too large for a reply.
  kUpload = 7,   // Uploads a piece of a value that is too large for a put.
  kStatus = 8,   // Returns the server's state as JSON.
  kCheck = 9,    // Runs the tree check of a region and returns its report as JSON.
  kReport = 10,  // Reports a client's own counters as JSON, for `cellctl top`.
  kCount = 11,   // Counts the pairs of a slice of a range.
  kDeleteRange = 12,
  kTime = 13,          // Returns the worker's cluster time (expiry.h).
  kTableVersion = 14,  // Returns which version of the region table the worker knows, and how old that may be.
  kTablePart = 15,     // Returns a piece of the region table, or of the list of servers.
  kWriteIf = 20,       // A put or a delete, if a condition holds.
  kApply = 21,         // A put of what a function makes of the key's value.
  kEvaluate = 22,      // Returns what a function finds in the key's value.
  kTransact = 23,      // Checks a part of a transaction, and commits or prepares it.
  kDecide = 24,        // Tells what became of a transaction that was prepared, or asks.
  kSnapshot = 25,      // Takes a step of a snapshot.
  kGetSnapshot = 26,   // A get of what a snapshot has.
  kScanSnapshot = 27,  // A scan of what a snapshot has.

  // Sent between servers.
  kAddRoute = 16,     // Tells the tier above about a meganode's root.
  kMigration = 17,    // Takes one step of a region's migration (cell/server/change/migrator.h).
  kWeigh = 18,        // Asks how much a worker holds.
  kRemoveRoute = 19,  // Tells the tier above that a meganode is about to go.

  // Only in replies, to any request that names a meganode: the key belongs to another meganode.
  kRoute = 32,
};

struct MessageHeader {
  MessageKind kind;
  uint16_t version;
  uint32_t bytes;  // Size of the whole message.
};

struct ReplyHeader {
  MessageKind kind;
  uint16_t code;   // An absl::StatusCode. If it is not 0, the rest of the message is text.
  uint32_t bytes;  // Size of the whole message.
  ServiceTimes times = {};
};

// Returns the service times that a reply reports. Returns zeros if the message is not a reply.
ServiceTimes TimesOf(ConstBytes message);
// Writes service times into an existing reply.
void SetTimes(MutableBytes reply, const ServiceTimes& times);

// A request or a reply whose counts were checked, and the texts that follow it.
template <typename Fixed>
struct Parsed {
  Fixed fixed;
  std::string_view key;    // KeyRequest, PutRequest, WriteIfRequest, FunctionRequest, RouteRequest: the key.
                           // ScanRequest, RangeRequest: `from`. MigrationRequest: the server, or the reason of a
                           // cancel.
  std::string_view value;  // PutRequest, WriteIfRequest, GetReply: the value. FunctionRequest: the argument.
                           // FunctionReply: the result. UploadRequest, TablePartReply, OutcomesReply: the bytes.
                           // ScanRequest, RangeRequest: `to`.
};

absl::StatusOr<MessageHeader> ParseHeader(ConstBytes message);

// Makes a message that consists of a header and text: status, check, report.
std::string MakeTextRequest(MessageKind kind, std::string_view text = {});
// Writes a reply header and text, cut to what fits.
size_t WriteTextReply(MutableBytes to, MessageKind kind, std::string_view text);
// Returns the bytes after the header: those of a fetch, or JSON text.
absl::StatusOr<ConstBytes> ParseBytesReply(ConstBytes message, MessageKind kind);

// Makes a reply without an error. The caller fills in the other fields.
template <typename Reply>
Reply ReplyOf(MessageKind kind, size_t bytes = sizeof(Reply)) {
  Reply reply{};
  reply.header = {kind, 0, static_cast<uint32_t>(bytes), {}};
  return reply;
}

// Returns whether a reply to a request of this kind is well-formed and holds the server's error.
bool IsErrorReply(ConstBytes message, MessageKind kind);
// Writes an error reply into `to`, cuts the text to what fits, and returns the reply's size.
size_t WriteErrorReply(MutableBytes to, MessageKind kind, const absl::Status& status);

// --- Search, get and delete of one key ---

// The key follows.
struct KeyRequest {
  MessageHeader header;
  Pointer root;  // Root of the meganode to search.
  Pointer hint;  // Delete: the leaf that the client found, or null.
  uint16_t key_bytes;
  uint16_t copy;  // Get: if not 0, a value that is too large for the reply is copied under this number, to be fetched.
  uint8_t wants_leaf;  // Get: if not 0, the reply has the state of the key's leaf, if there is one that can be trusted.
  uint8_t reserved[3];
};
// Limits the numbers of a client's copies, which start at 1.
inline constexpr uint16_t kCopiesMax = 4;
static_assert(sizeof(KeyRequest) == 32 && std::has_unique_object_representations_v<KeyRequest>);

std::string MakeKeyRequest(MessageKind kind, Pointer root, Pointer hint, std::string_view key, uint16_t copy = 0,
                           bool wants_leaf = false);
absl::StatusOr<Parsed<KeyRequest>> ParseKeyRequest(ConstBytes message);

// A PairLife follows if the pair that was found has an expiry.
struct SearchReply {
  ReplyHeader header;
  Pointer leaf;
  uint64_t found;
};
struct PairLife {
  Expiry expiry = kNeverExpires;
  uint64_t time_ns = 0;  // Cluster time.
};
static_assert(sizeof(SearchReply) == 32 && std::has_unique_object_representations_v<SearchReply>);
static_assert(sizeof(PairLife) == 16 && std::has_unique_object_representations_v<PairLife>);

struct SearchResult {
  bool found;
  PairLife life = {};
};
absl::StatusOr<SearchResult> ParseSearchReply(ConstBytes message);

// Flags of the parts that follow a GetReply. The parts come in the order of their flags.
inline constexpr uint8_t kFollowsValue = 1;
inline constexpr uint8_t kFollowsExpiry = 2;  // The pair's Expiry. Clear: it has none.
// The NodeState of the key's leaf. As long as the leaf has it, the key has what the reply says. Clear: the client has
// not asked for it, or may not read memory; a transaction may write in the leaf; the pair has an expiry; the reply has
// no room; or the key is one of a table.
inline constexpr uint8_t kFollowsLeaf = 4;

struct GetReply {
  ReplyHeader header;
  Pointer extent;
  uint64_t crc;
  uint64_t stamp;  // The pair's (node.h). 0: it has none.
  uint32_t value_bytes;
  uint8_t found;
  uint8_t follows;
  uint16_t copied;  // If not 0, the value was copied under this number, and `extent` is null.
};
static_assert(sizeof(GetReply) == 48 && std::has_unique_object_representations_v<GetReply>);
struct GetResult : Parsed<GetReply> {
  Expiry expiry = kNeverExpires;
  std::optional<NodeState> leaf = {};
};
// `kind`: that of the request, kGet or kGetSnapshot.
absl::StatusOr<GetResult> ParseGetReply(ConstBytes message, MessageKind kind = MessageKind::kGet);

// The reply to a delete, a put and an added route.
struct WriteReply {
  ReplyHeader header;
  uint64_t existed;
};
static_assert(sizeof(WriteReply) == 24 && std::has_unique_object_representations_v<WriteReply>);
absl::StatusOr<WriteReply> ParseWriteReply(ConstBytes message, MessageKind kind);

// --- Put ---

// The key follows, then the value unless it was uploaded.
struct PutRequest {
  MessageHeader header;
  Pointer root;
  Pointer hint;
  uint64_t crc;      // CRC64 of key and value.
  uint64_t expires;  // An Expiry, or kExpiresAfter and the nanoseconds from when the server tries the put.
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint16_t upload;  // If not 0, the value is the upload with this number.
};
inline constexpr uint64_t kExpiresAfter = kExpiryMax + 1;
static_assert(sizeof(PutRequest) == 48 && std::has_unique_object_representations_v<PutRequest>);

std::string MakePutRequest(Pointer root, Pointer hint, uint64_t crc, std::string_view key, uint32_t value_bytes,
                           uint16_t upload, uint64_t expires = kNeverExpires);
// Returns the expiry of a put that is tried at `now_ns` of cluster time. Returns InvalidArgument if it is not behind
// that, or is beyond the clock's range.
absl::StatusOr<Expiry> ExpiryOf(uint64_t expires, uint64_t now_ns);
absl::StatusOr<Parsed<PutRequest>> ParsePutRequest(ConstBytes message);

// --- Put or delete if ---

// The kinds of conditions that a write can have.
enum class ConditionKind : uint8_t {
  kAbsent = 1,   // The key is not stored.
  kPresent = 2,  // It is.
  kStamp = 3,    // It is, and its pair has this stamp.
  kValue = 4,    // It is, and its value is this one.
};
struct WriteCondition {
  ConditionKind kind;
  uint64_t stamp = 0;           // Of kStamp.
  std::string_view value = {};  // Of kValue.
};
inline constexpr size_t kConditionValueBytesMax = 4096;

// The key follows, then the condition's value, then the value to be put unless it was uploaded.
struct WriteIfRequest {
  MessageHeader header;
  Pointer root;
  Pointer hint;
  uint64_t crc;  // Put: as in PutRequest, and so are the next three that it has.
  uint64_t expires;
  uint64_t stamp;
  uint32_t value_bytes;
  uint32_t condition_bytes;  // Size of the condition's value.
  uint16_t key_bytes;
  uint16_t upload;
  ConditionKind condition;
  uint8_t deletes;  // It is a delete. It has no value, and no expiry.
  uint16_t reserved;
};
static_assert(sizeof(WriteIfRequest) == 64 && std::has_unique_object_representations_v<WriteIfRequest>);

// A put without its value, or a delete if `value_bytes` is nullopt.
struct ConditionalWrite {
  std::string_view key;
  WriteCondition condition;
  std::optional<uint32_t> value_bytes = {};
  uint64_t crc = 0;
  uint64_t expires = kNeverExpires;
  uint16_t upload = 0;
};
std::string MakeWriteIfRequest(Pointer root, Pointer hint, const ConditionalWrite& write);
struct ParsedWriteIf : Parsed<WriteIfRequest> {
  std::string_view condition_value;
};
absl::StatusOr<ParsedWriteIf> ParseWriteIfRequest(ConstBytes message);

struct WriteIfReply {
  ReplyHeader header;
  uint64_t stamp;   // Of the pair that the key has now. 0: it has none, or one without a stamp.
  uint8_t applied;  // The condition held.
  uint8_t existed;  // The key was stored before.
  uint8_t reserved[6];
};
static_assert(sizeof(WriteIfReply) == 32 && std::has_unique_object_representations_v<WriteIfReply>);
absl::StatusOr<WriteIfReply> ParseWriteIfReply(ConstBytes message);

// --- Pieces of large values ---

// The bytes follow, which are appended to the upload. Offset 0 starts the upload over.
struct UploadRequest {
  MessageHeader header;
  uint32_t offset;
  uint16_t upload;  // 1 to kUploadsMax, chosen by the client.
  uint16_t reserved;
};
inline constexpr uint16_t kUploadsMax = 4;
static_assert(kCopiesMax == kUploadsMax);  // Clients allocate both numbers together.
static_assert(sizeof(UploadRequest) == 16 && std::has_unique_object_representations_v<UploadRequest>);

std::string MakeUploadRequest(uint16_t upload, uint32_t offset, uint32_t bytes);
absl::StatusOr<Parsed<UploadRequest>> ParseUploadRequest(ConstBytes message);

// The reply is the bytes (ParseBytesReply).
struct FetchRequest {
  MessageHeader header;
  Pointer from;  // Position in the extent, 8-byte aligned. For a copy only the offset counts.
  uint32_t bytes;
  uint16_t copy;  // If not 0, fetches from the copy with this number. The copy is dropped after its last byte.
  uint16_t reserved;
};
static_assert(sizeof(FetchRequest) == 24 && std::has_unique_object_representations_v<FetchRequest>);

std::string MakeFetchRequest(Pointer from, uint32_t bytes, uint16_t copy = 0);
absl::StatusOr<FetchRequest> ParseFetchRequest(ConstBytes message);

// --- Scan ---

// `from` and `to` follow. Upwards, `from` is inclusive and `to` exclusive. Downwards, `from` is the greater key and
// both are inclusive. Without has_to the scan goes to the last key, or downwards to the first.
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
static_assert(sizeof(ScanRequest) == 32 && std::has_unique_object_representations_v<ScanRequest>);

struct ScanTerms {
  uint32_t limit;
  uint32_t reply_bytes_max;
  bool keys_only = false;
  bool down = false;
};
std::string MakeScanRequest(Pointer root, std::string_view from, const std::optional<std::string>& to,
                            const ScanTerms& terms);
absl::StatusOr<Parsed<ScanRequest>> ParseScanRequest(ConstBytes message);

// `count` entries follow, then the key where the next scan starts unless `done`.
struct ScanReply {
  ReplyHeader header;
  Pointer next;  // The root of the meganode with the next key if that is the right neighbour, else null.
  uint32_t count;
  uint16_t next_key_bytes;
  uint8_t done;
  uint8_t reserved;
};

// The pair's Expiry follows if it has one, then the key, and directly behind it the value, or a ScanExtent if that is
// elsewhere. Not aligned.
struct ScanEntry {
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint16_t flags;  // kScanElsewhere, kScanExpires; other bits are zero.
};
inline constexpr uint16_t kScanElsewhere = 1;
inline constexpr uint16_t kScanExpires = 2;
struct ScanExtent {
  Pointer extent;
  uint64_t crc;
};
static_assert(sizeof(ScanReply) == 32 && std::has_unique_object_representations_v<ScanReply>);
static_assert(sizeof(ScanEntry) == 8 && sizeof(ScanExtent) == 16);

struct ScanItem {
  std::string_view key;
  std::string_view value;  // Empty if elsewhere.
  uint32_t value_bytes;
  bool elsewhere;
  ScanExtent extent;
  Expiry expiry;
};
struct ScanResult {
  bool done;
  std::string_view next_key;
  Pointer next;
};
// Replaces the content of *items. `kind`: that of the request, kScan or kScanSnapshot.
absl::StatusOr<ScanResult> ParseScanReply(ConstBytes message, std::vector<ScanItem>* items,
                                          MessageKind kind = MessageKind::kScan);

// --- Count and delete a range, slice by slice ---

// `from` (inclusive) and `to` (exclusive) follow. An empty `to` is the end of the tree. The server counts or deletes a
// slice of the range: what of it is in the first leaves from `from` on, in one meganode.
struct RangeRequest {
  MessageHeader header;
  Pointer root;
  uint16_t from_bytes;
  uint16_t to_bytes;
  uint32_t reserved;
};
static_assert(sizeof(RangeRequest) == 24 && std::has_unique_object_representations_v<RangeRequest>);

std::string MakeRangeRequest(MessageKind kind, Pointer root, std::string_view from, std::string_view to);
absl::StatusOr<Parsed<RangeRequest>> ParseRangeRequest(ConstBytes message);

// The key where the next slice begins follows unless `done`.
struct RangeReply {
  ReplyHeader header;
  uint64_t pairs;  // Number of pairs that the slice counted or deleted.
  uint16_t next_key_bytes;
  uint8_t done;  // The slice reached the range's end.
  uint8_t reserved[5];
};
static_assert(sizeof(RangeReply) == 32 && std::has_unique_object_representations_v<RangeReply>);

struct RangeResult {
  uint64_t pairs;
  bool done;
  std::string_view next_key;  // Empty if done.
};
absl::StatusOr<RangeResult> ParseRangeReply(ConstBytes message, MessageKind kind);
// Returns the room that a reply needs whose next key has this size.
constexpr size_t RangeReplyBytes(size_t key_bytes_max) { return sizeof(RangeReply) + key_bytes_max; }
// Writes a reply and returns its size. REQUIRES: there is room for it.
size_t WriteRangeReply(MutableBytes to, MessageKind kind, const RangeResult& result);

// --- Routes: replies to any request whose key belongs to another meganode ---

enum class RouteKind : uint8_t {
  kChild = 1,    // Continue at `next`, which covers the range if one is given.
  kRight = 2,    // Continue at `next`: the key is past this meganode's end.
  kRestart = 3,  // The key is below this meganode: start again at the root of the tree.
  kNotHeld = 4,  // This worker does not hold the region: read the region table again.
  kTooLow = 5,   // RouteRequest: this meganode belongs to a lower tier, and there is no tier above it.
  kLocked = 6,   // A transaction that has not ended holds the key: ask again here, a little later.
};

// The low key and the high key of `next` follow, unless the reply has no room for them.
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
static_assert(sizeof(RouteReply) == 32 && std::has_unique_object_representations_v<RouteReply>);

struct RouteView {
  RouteKind kind;
  Pointer next;
  std::string_view low_key;   // Set with has_range.
  std::string_view high_key;  // Set with has_high.
  bool has_range;
  bool has_high;
};
// Returns whether a reply is a route instead of the expected reply.
bool IsRoute(ConstBytes message);
absl::StatusOr<RouteView> ParseRouteReply(ConstBytes message);
// Returns the room that a reply needs for a route with its range.
constexpr size_t RouteReplyBytes(size_t key_bytes_max) { return sizeof(RouteReply) + 2 * key_bytes_max; }
// Writes a route. Includes its range only if all of it fits.
size_t WriteRouteReply(MutableBytes to, const RouteView& route);

// --- Between servers: routes of the tier above, migrations, weights ---

// For kAddRoute and kRemoveRoute. The key follows. The reply is a WriteReply (`existed`: the route was there) or a
// route.
struct RouteRequest {
  MessageHeader header;
  Pointer root;    // Root of the meganode that is asked.
  Pointer child;   // The child from `key` on.
  uint64_t order;  // Grows with each request for this child: a request that comes late must not undo a later one.
  uint16_t key_bytes;
  uint8_t tier;  // Tier of the meganode that holds the route, or is to hold it.
  uint8_t reserved[5];
};
static_assert(sizeof(RouteRequest) == 40 && std::has_unique_object_representations_v<RouteRequest>);

std::string MakeRouteRequest(MessageKind kind, Pointer root, uint8_t tier, std::string_view key, Pointer child,
                             uint64_t order);
// Returns the order of a request about a child that its owner holds at `epoch`, and that is its `number`th request.
constexpr uint64_t RouteOrder(uint64_t epoch, uint32_t number) { return epoch << 32 | number; }
absl::StatusOr<Parsed<RouteRequest>> ParseRouteRequest(ConstBytes message);

enum class MigrationStep : uint8_t {
  kOffer = 1,    // Source to target: take this region.
  kBegin = 2,    // Target to source: list the pages that are written now...
  kWritten = 3,  // ...and those written since.
  kFreeze = 4,   // Target to source: accept no more writes, and list the last pages.
  kSeal = 5,     // Target to source: I have everything; invalidate all nodes.
  kDone = 6,     // Target to source: the region table names me as the owner.
  kCancel = 7,
  kOutcomes = 8,  // Target to source, when the last pages are there: list the outcomes (outcome.h) from a byte on.
};

// Text follows: the name of the source's server if this is an offer, and the target's reason if it is a cancel. The
// reply is a MigrationReply.
struct MigrationRequest {
  MessageHeader header;
  uint64_t epoch;  // The region's epoch before the migration.
  uint32_t region;
  uint32_t worker;  // Offer, cancel: the sender's worker. Outcomes: number of the first byte that is wanted.
  MigrationStep step;
  uint8_t reserved[7];
};
static_assert(sizeof(MigrationRequest) == 32 && std::has_unique_object_representations_v<MigrationRequest>);

std::string MakeMigrationRequest(MigrationStep step, uint32_t region, uint64_t epoch, uint32_t worker = 0,
                                 std::string_view server = {});
absl::StatusOr<Parsed<MigrationRequest>> ParseMigrationRequest(ConstBytes message);

// `runs` runs of written pages follow.
struct MigrationReply {
  ReplyHeader header;
  uint32_t runs;
  uint32_t more;  // Number of pages that did not fit into this reply.
};
struct PageRun {
  uint32_t first;
  uint32_t pages;
};
static_assert(sizeof(MigrationReply) == 24 && sizeof(PageRun) == 8);
absl::StatusOr<MigrationReply> ParseMigrationReply(ConstBytes message, std::vector<PageRun>* runs);

// Encoded outcomes follow, or a piece of them.
struct OutcomesReply {
  ReplyHeader header;
  uint32_t left;  // Number of bytes that did not fit into this reply.
  uint32_t reserved;
};
static_assert(sizeof(OutcomesReply) == 24 && std::has_unique_object_representations_v<OutcomesReply>);
absl::StatusOr<Parsed<OutcomesReply>> ParseOutcomesReply(ConstBytes message);
// Writes a reply with as many of the bytes as fit, and returns its size.
size_t WriteOutcomesReply(MutableBytes to, std::string_view bytes);

// The request is a header alone.
struct TimeReply {
  ReplyHeader header;
  uint64_t time_ns;  // Cluster time. 0: the worker has no clock, and nothing expires there.
};
static_assert(sizeof(TimeReply) == 24 && std::has_unique_object_representations_v<TimeReply>);
absl::StatusOr<TimeReply> ParseTimeReply(ConstBytes message);

struct TableVersionRequest {
  MessageHeader header;
  uint64_t
      age_ns;  // If what the worker knows is older than this, it reads the region table again, for later questions.
};
static_assert(sizeof(TableVersionRequest) == 16 && std::has_unique_object_representations_v<TableVersionRequest>);
std::string MakeTableVersionRequest(uint64_t age_ns);
absl::StatusOr<TableVersionRequest> ParseTableVersionRequest(ConstBytes message);

struct TableVersionReply {
  ReplyHeader header;
  uint64_t cluster;          // CRC64 of the cluster's uuid.
  uint64_t version;          // Version of the region table as the worker knows it.
  uint64_t servers_version;  // The same for the list of servers (ClusterState).
  uint64_t
      age_ns;  // Those were the newest versions at a time no longer ago than this. UINT64_MAX: the worker cannot say.
};
static_assert(sizeof(TableVersionReply) == 48 && std::has_unique_object_representations_v<TableVersionReply>);
absl::StatusOr<TableVersionReply> ParseTableVersionReply(ConstBytes message);

enum class TablePartKind : uint32_t {
  kServers = 0,  // ParseServersText
  kRoot = 1,     // ParseTableRoot
  kShard = 2,    // ParseTableShard
};
struct TablePart {
  TablePartKind kind;
  uint32_t first;    // First id of the shard; 0 for the others.
  uint64_t version;  // Version of the servers, of the table, or of the shard.
  bool operator==(const TablePart&) const = default;
};
struct TablePartRequest {
  MessageHeader header;
  TablePart part;
  uint64_t offset;
};
static_assert(sizeof(TablePartRequest) == 32 && std::has_unique_object_representations_v<TablePartRequest>);
std::string MakeTablePartRequest(const TablePart& part, uint64_t offset);
absl::StatusOr<TablePartRequest> ParseTablePartRequest(ConstBytes message);

// As many bytes of the part as there is room for follow, from the offset on.
struct TablePartReply {
  ReplyHeader header;
  uint64_t bytes;  // Size of the whole part.
};
static_assert(sizeof(TablePartReply) == 24 && std::has_unique_object_representations_v<TablePartReply>);
absl::StatusOr<Parsed<TablePartReply>> ParseTablePartReply(ConstBytes message);

// Reports the bytes that the nodes and extents of all of a worker's regions use.
struct WeighReply {
  ReplyHeader header;
  uint64_t bytes_used;
};
static_assert(sizeof(WeighReply) == 24 && std::has_unique_object_representations_v<WeighReply>);
absl::StatusOr<WeighReply> ParseWeighReply(ConstBytes message);

}  // namespace cell

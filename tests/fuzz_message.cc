// libFuzzer: parses any bytes as any request or reply. The parser refuses, or everything that it returns is inside the
// message.
#include <cstdlib>
#include <memory>

#include "cell/layout/limits.h"
#include "cell/layout/transaction.h"
#include "cell/layout/wire.h"
#include "cell/layout/wire_function.h"
#include "cell/layout/wire_snapshot.h"
#include "cell/layout/wire_transaction.h"

namespace {

cell::ConstBytes whole;

void Inside(std::string_view view) {
  const auto* begin = reinterpret_cast<const char*>(whole.data());
  if (!view.empty() && (view.data() < begin || view.data() + view.size() > begin + whole.size())) std::abort();
}

template <typename T>
void Inside(const absl::StatusOr<cell::Parsed<T>>& parsed) {
  if (!parsed.ok()) return;
  Inside(parsed->key);
  Inside(parsed->value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cell;
  const std::unique_ptr<std::byte[]> copy(new std::byte[size + 1]);  // A heap block of its own, for the sanitizer.
  std::memcpy(copy.get(), data, size);
  whole = ConstBytes(copy.get(), size);
  // Correct the length field, so that the other fields are tested.
  if (size >= sizeof(MessageHeader)) Store(copy.get() + 4, static_cast<uint32_t>(size));
  (void)ParseHeader(whole);
  Inside(ParseKeyRequest(whole));
  Inside(ParsePutRequest(whole));
  Inside(ParseScanRequest(whole));
  Inside(ParseRangeRequest(whole));
  (void)ParseFetchRequest(whole);
  Inside(ParseRouteRequest(whole));
  Inside(ParseMigrationRequest(whole));
  if (const auto transact = ParseTransactRequest(whole); transact.ok()) {
    Inside(transact->key);
    Inside(transact->value);
    Inside(transact->others);
  }
  (void)ParseDecideRequest(whole);
  Inside(ParseSnapshotRequest(whole));
  Inside(ParseGetSnapshotRequest(whole));
  if (const auto scan = ParseScanSnapshotRequest(whole); scan.ok()) {
    Inside(scan->scan.key);
    Inside(scan->scan.value);
  }
  for (const MessageKind kind : {MessageKind::kApply, MessageKind::kEvaluate}) {
    const auto function = ParseFunctionRequest(whole, kind);
    if (!function.ok()) continue;
    Inside(function->key);
    Inside(function->name);
    Inside(function->value);
  }
  if (const auto operations = ParseOperations(AsText(whole)); operations.ok()) {
    for (const PartOperation& operation : *operations) {
      Inside(operation.key);
      Inside(operation.value);
    }
  }
  if (const auto upload = ParseUploadRequest(whole); upload.ok()) {
    Inside(upload->value);
    if (upload->fixed.offset + upload->value.size() > kValueBytesMax) std::abort();
  }
  for (const MessageKind kind :
       {MessageKind::kSearch, MessageKind::kGet, MessageKind::kPut, MessageKind::kScan, MessageKind::kFetch,
        MessageKind::kRoute, MessageKind::kMigration, MessageKind::kAddRoute, MessageKind::kCount, MessageKind::kApply,
        MessageKind::kTransact, MessageKind::kDecide, MessageKind::kSnapshot}) {
    if (size >= sizeof(ReplyHeader)) Store(copy.get(), static_cast<uint16_t>(kind));
    (void)ParseSearchReply(whole);
    if (const auto get = ParseGetReply(whole); get.ok()) Inside(get->value);
    (void)ParseTimeReply(whole);
    (void)ParseWriteReply(whole, kind);
    if (const auto bytes = ParseBytesReply(whole, kind); bytes.ok()) Inside(AsText(*bytes));
    if (const auto route = ParseRouteReply(whole); route.ok()) {
      Inside(route->low_key);
      Inside(route->high_key);
    }
    if (const auto range = ParseRangeReply(whole, kind); range.ok()) Inside(range->next_key);
    Inside(ParseFunctionReply(whole, kind));
    Inside(ParseTransactReply(whole, kind));
    Inside(ParseSnapshotReply(whole));
    std::vector<PageRun> runs;
    (void)ParseMigrationReply(whole, &runs);
    std::vector<ScanItem> items;
    const auto result = ParseScanReply(whole, &items);
    for (const ScanItem& item : items) {
      Inside(item.key);
      Inside(item.value);
    }
    if (result.ok()) Inside(result->next_key);
  }
  return 0;
}

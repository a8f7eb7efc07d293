// cellctl: what reads and writes keys.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/pair_map.h"
#include "tools/progress.h"

namespace cell {
namespace {

bool IsUtf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto c = static_cast<unsigned char>(bytes[i]);
    const int more = c < 0x80                ? 0
                     : c >= 0xc2 && c < 0xe0 ? 1
                     : c >= 0xe0 && c < 0xf0 ? 2
                     : c >= 0xf0 && c < 0xf5 ? 3
                                             : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= bytes.size()) return false;
    uint32_t point = more == 0 ? c : c & (0x3f >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(bytes[i + static_cast<size_t>(k)]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3f);
    }
    if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) ||
        (more == 3 && (point < 0x10000 || point > 0x10ffff))) {
      return false;
    }
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

// Text as a JSON string; bytes that are not UTF-8 as {"hex": "..."}.
nlohmann::json BytesAsJson(std::string_view bytes) {
  if (IsUtf8(bytes)) return std::string(bytes);
  std::string hex;
  for (unsigned char c : bytes) hex += fmt::format("{:02x}", c);
  return {{"hex", hex}};
}

absl::StatusOr<std::string> ReadAll(std::istream& in) {
  std::string value;
  std::vector<char> piece(1 << 16);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0) {
    value.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (value.size() > kValueBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("the value on standard input is larger than {} bytes", kValueBytesMax));
    }
  }
  return value;
}

struct Loading {
  std::istream* in;
  PairMap* map;
  Progress* progress;
  uint64_t lines = 0, records = 0, bytes = 0;
  absl::Status status;
};

Task<bool> LoadLane(Loading* loading) {
  std::string line;
  while (loading->status.ok() && std::getline(*loading->in, line)) {
    const uint64_t number = ++loading->lines;
    loading->bytes += line.size() + 1;
    if (line.empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab == 0) {
      loading->status = absl::InvalidArgumentError(fmt::format("line {} is not \"key TAB value\"", number));
      break;
    }
    const std::string_view text = line;
    const absl::StatusOr<bool> put = co_await loading->map->AsyncPut(text.substr(0, tab), text.substr(tab + 1));
    if (!put.ok()) {
      if (loading->status.ok()) {
        loading->status =
            absl::Status(put.status().code(), fmt::format("line {}: {}", number, std::string(put.status().message())));
      }
      break;
    }
    ++loading->records;
  }
  co_return true;
}

}  // namespace

int Put(Client* client, const CtlFlags& flags) {
  std::string value = flags.value;
  if (value == "-") {
    absl::StatusOr<std::string> read = ReadAll(std::cin);
    if (!read.ok()) return Fail(read.status());
    value = *std::move(read);
  }
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<bool> existed = client->Run(map->AsyncPut(flags.key, value));
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"replaced", *existed}}.dump());
  return kDone;
}

int Get(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const auto value = client->Run(map->AsyncGet(flags.key));
  if (!value.ok()) return Fail(value.status());
  if (flags.json()) {
    nlohmann::json json = {{"key", BytesAsJson(flags.key)}, {"found", value->has_value()}};
    if (value->has_value()) json["value"] = BytesAsJson(**value);
    fmt::print("{}\n", json.dump());
  } else if (value->has_value()) {
    std::fwrite((*value)->data(), 1, (*value)->size(), stdout);
    if (::isatty(STDOUT_FILENO) != 0) fmt::print("\n");
  }
  return value->has_value() ? kDone : kAbsent;
}

int Has(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<bool> found = client->Run(map->AsyncContains(flags.key));
  if (!found.ok()) return Fail(found.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"found", *found}}.dump());
  return *found ? kDone : kAbsent;
}

int Del(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<bool> existed = client->Run(map->AsyncDelete(flags.key));
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"deleted", *existed}}.dump());
  return *existed ? kDone : kAbsent;
}

int RunScan(Client* client, const CtlFlags& flags) {
  ScanOptions options;
  if (flags.has_prefix) {
    options = PrefixScan(flags.prefix);
  } else {
    options.from = flags.from;
    if (flags.has_to) options.to = flags.to;
  }
  options.limit = flags.limit;
  options.reverse = flags.reverse;
  options.keys_only = flags.keys_only;
  Scan scan = client->NewScan(std::move(options));
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    if (flags.json()) {
      nlohmann::json json = {{"key", BytesAsJson(scan.key())}};
      if (!flags.keys_only) json["value"] = BytesAsJson(scan.value());
      fmt::print("{}\n", json.dump());
      continue;
    }
    std::fwrite(scan.key().data(), 1, scan.key().size(), stdout);
    if (!flags.keys_only) {
      std::fputc('\t', stdout);
      std::fwrite(scan.value().data(), 1, scan.value().size(), stdout);
    }
    std::fputc('\n', stdout);
    if (std::ferror(stdout) != 0) return kError;  // Nobody reads any more.
  }
  return more.ok() ? kDone : Fail(more.status());
}

int Load(Client* client, const CtlFlags& flags) {
  std::ifstream file;
  uint64_t total = 0;
  if (flags.file != "-") {
    file.open(flags.file, std::ios::binary);
    if (!file) return Fail(absl::NotFoundError(fmt::format("cannot read \"{}\"", flags.file)));
    struct stat info;
    if (::stat(flags.file.c_str(), &info) == 0) total = static_cast<uint64_t>(info.st_size);
  }
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  absl::Status status;
  uint64_t records = 0;
  const int64_t start_ns = client->NowNs();
  {
    Progress progress(total);
    Loading loading{flags.file == "-" ? &std::cin : &file, &*map, &progress, 0, 0, 0, {}};
    std::vector<Task<bool>> lanes;
    for (int i = 0; i < 32; ++i) lanes.push_back(LoadLane(&loading));
    for (Task<bool>& lane : lanes) lane.Start();
    for (const Task<bool>& lane : lanes) {
      while (!lane.done()) {
        client->Poll(INT64_MAX);
        progress.Show(loading.bytes, loading.records);
      }
    }
    status = loading.status;
    records = loading.records;
  }
  const double seconds = static_cast<double>(client->NowNs() - start_ns) / 1e9;
  if (!status.ok()) {
    fmt::print(stderr, "cellctl: {} records were loaded before the error\n", records);
    return Fail(status);
  }
  if (flags.json()) {
    fmt::print("{}\n", nlohmann::json{{"records", records}, {"seconds", seconds}}.dump());
  } else {
    fmt::print("{} records loaded in {:.2f} s\n", records, seconds);
  }
  return kDone;
}

}  // namespace cell

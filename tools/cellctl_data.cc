// cellctl: commands that read and write keys.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <vector>

#include "cell/base/status_macros.h"
#include "cell/layout/limits.h"
#include "fmt/format.h"
#include "tools/cellctl_commands.h"
#include "tools/pair_map.h"
#include "tools/pair_text.h"
#include "tools/progress.h"

namespace cell {
namespace {

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

// No line of a pair is longer: each byte of the largest value may be escaped by four.
constexpr size_t kLineBytesMax = 4 * (kValueBytesMax + kNodeBytesMax) + 1024;

// Reads lines.
class LineReader {
 public:
  explicit LineReader(std::istream* in) : in_(in), buffer_(kLineBytesMax) {}

  // Returns the next line without its end, valid until the next call. Returns nullopt after the last one.
  absl::StatusOr<std::optional<std::string_view>> Next() {
    in_->getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto bytes = static_cast<size_t>(in_->gcount());
    if (in_->bad()) return absl::DataLossError("the input cannot be read");
    if (in_->eof() && bytes == 0) return std::nullopt;
    if (in_->fail()) return absl::InvalidArgumentError(fmt::format("it is longer than {} bytes", kLineBytesMax));
    return std::string_view(buffer_.data(), in_->eof() ? bytes : bytes - 1);
  }

 private:
  std::istream* const in_;
  std::vector<char> buffer_;
};

struct Loading {
  LineReader* in;
  PairMap* map;
  bool raw;
  bool done = false;
  uint64_t lines = 0, records = 0, bytes = 0;
  absl::Status status = {};

  void Fail(uint64_t line, const absl::Status& why) {
    done = true;
    if (!status.ok()) return;
    status = absl::Status(why.code(), fmt::format("line {}: {}", line, std::string(why.message())));
  }
};

Task<bool> LoadLane(Loading* loading) {
  while (!loading->done) {
    const uint64_t number = ++loading->lines;
    const auto line = loading->in->Next();
    if (!line.ok()) {
      loading->Fail(number, line.status());
      break;
    }
    loading->done |= !line->has_value();
    if (!line->has_value()) break;
    loading->bytes += (*line)->size() + 1;
    if ((*line)->empty()) continue;
    const auto pair = ParsePair(**line, loading->raw);
    if (!pair.ok()) {
      loading->Fail(number, pair.status());
      break;
    }
    const absl::StatusOr<bool> put = co_await loading->map->AsyncPut(pair->first, pair->second);
    if (!put.ok()) {
      loading->Fail(number, put.status());
      break;
    }
    ++loading->records;
  }
  co_return true;
}

// Opens a file of lines. Returns InvalidArgument if it is a directory.
absl::Status OpenLines(const std::string& path, std::ifstream* file, uint64_t* bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return absl::InvalidArgumentError(fmt::format("\"{}\" is a directory: load reads a file of lines", path));
    }
    *bytes = static_cast<uint64_t>(info.st_size);
    file->open(path, std::ios::binary);
  }
  if (file->is_open()) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("cannot read \"{}\": {}", path, std::strerror(errno)));
}

absl::StatusOr<Expires> ExpiresOf(std::optional<double> ttl_us) {
  if (!ttl_us.has_value()) return Expires::Never();
  if (!(*ttl_us >= 1)) return absl::InvalidArgumentError("--ttl must be at least 0.001 ms");
  if (*ttl_us > 9.2e15) return absl::InvalidArgumentError("--ttl is beyond the servers' clocks, which end in 2262");
  return Expires::AfterUs(static_cast<int64_t>(*ttl_us));
}

// Returns the condition that was given, or nullopt.
std::optional<Condition> ConditionOf(const CtlFlags& flags) {
  if (flags.if_absent) return Condition::Absent();
  if (flags.if_present) return Condition::Present();
  if (flags.if_stamp.has_value()) return Condition::StampIs(*flags.if_stamp);
  if (flags.if_value.has_value()) return Condition::ValueIs(*flags.if_value);
  return std::nullopt;
}

// Reports what has become of a conditional write. `done` names what it does in JSON if there was a pair before.
int Report(const absl::StatusOr<WriteIfResult>& written, const char* done, const CtlFlags& flags) {
  if (!written.ok()) return Fail(written.status());
  if (flags.json()) {
    nlohmann::json json = {{"applied", written->applied}, {done, written->applied && written->existed}};
    json["stamp"] = written->stamp;
    fmt::print("{}\n", json.dump());
  } else if (!written->applied) {
    const std::string stamp = written->stamp == 0 ? std::string() : fmt::format(", with stamp {}", written->stamp);
    const std::string what = written->existed ? "the key is there" + stamp : std::string("there is no such key");
    fmt::print(flags.prompt ? stdout : stderr, "nothing was written: {}\n", what);
  }
  return written->applied ? kDone : kAbsent;
}

}  // namespace

int Absent(const CtlFlags& flags) {
  if (flags.prompt && !flags.json()) fmt::print("there is no such key\n");
  return kAbsent;
}

int Put(Client* client, const CtlFlags& flags) {
  std::string value = flags.value;
  if (value == "-") {
    absl::StatusOr<std::string> read = ReadAll(std::cin);
    if (!read.ok()) return Fail(read.status());
    value = *std::move(read);
  }
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<Expires> expires = ExpiresOf(flags.ttl_us);
  if (!expires.ok()) return Fail(expires.status());
  if (const std::optional<Condition> condition = ConditionOf(flags); condition.has_value()) {
    return Report(client->Run(map->AsyncPutIf(flags.key, value, *expires, *condition)), "replaced", flags);
  }
  const absl::StatusOr<bool> existed = client->Run(map->AsyncPut(flags.key, value, *expires));
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"replaced", *existed}}.dump());
  return kDone;
}

int TimeToLive(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<std::optional<int64_t>> left_ns = client->Run(map->AsyncTimeLeftNs(flags.key));
  if (!left_ns.ok()) return Fail(left_ns.status());
  const bool expires = left_ns->has_value() && **left_ns != INT64_MAX;
  if (flags.json()) {
    nlohmann::json json = {{"found", left_ns->has_value()}, {"expires", expires}};
    if (expires) json["ttl_s"] = static_cast<double>(**left_ns) / 1e9;
    fmt::print("{}\n", json.dump());
  } else if (expires) {
    fmt::print("{:.3f} s\n", static_cast<double>(**left_ns) / 1e9);
  } else if (left_ns->has_value()) {
    fmt::print("it does not expire\n");
  }
  return left_ns->has_value() ? kDone : Absent(flags);
}

int GetStamp(Client* client, const CtlFlags& flags) {
  if (const absl::Status connected = client->Connect(); !connected.ok()) return Fail(connected);
  const absl::StatusOr<std::optional<StampedValue>> found = client->GetWithStamp(flags.key);
  if (!found.ok()) return Fail(found.status());
  if (flags.json()) {
    nlohmann::json json = {{"key", BytesAsJson(flags.key)}, {"found", found->has_value()}};
    if (found->has_value()) json["value"] = BytesAsJson((*found)->value), json["stamp"] = (*found)->stamp;
    fmt::print("{}\n", json.dump());
  } else if (found->has_value()) {
    fmt::print("{}\n", (*found)->stamp);
  }
  return found->has_value() ? kDone : Absent(flags);
}

int Get(Client* client, const CtlFlags& flags) {
  if (flags.stamp) return GetStamp(client, flags);
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const auto value = client->Run(map->AsyncGet(flags.key));
  if (!value.ok()) return Fail(value.status());
  if (flags.json()) {
    nlohmann::json json = {{"key", BytesAsJson(flags.key)}, {"found", value->has_value()}};
    if (value->has_value()) json["value"] = BytesAsJson(**value);
    fmt::print("{}\n", json.dump());
  } else if (value->has_value()) {
    const bool terminal = ::isatty(STDOUT_FILENO) != 0;
    const bool raw = !terminal || IsPrintable(**value);  // A terminal may interpret bytes that are not text.
    const std::string text = raw ? std::string() : EscapeText(**value);
    const std::string& shown = raw ? **value : text;
    fmt::print("{}", shown);
    if (terminal || flags.prompt) fmt::print("\n");
  }
  if (!value->has_value()) return Absent(flags);
  return kDone;
}

int Has(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  const absl::StatusOr<bool> found = client->Run(map->AsyncContains(flags.key));
  if (!found.ok()) return Fail(found.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"found", *found}}.dump());
  if (!*found) return Absent(flags);
  if (flags.prompt && !flags.json()) fmt::print("there is one\n");
  return kDone;
}

int Del(Client* client, const CtlFlags& flags) {
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  if (const std::optional<Condition> condition = ConditionOf(flags); condition.has_value()) {
    return Report(client->Run(map->AsyncDeleteIf(flags.key, *condition)), "deleted", flags);
  }
  const absl::StatusOr<bool> existed = client->Run(map->AsyncDelete(flags.key));
  if (!existed.ok()) return Fail(existed.status());
  if (flags.json()) fmt::print("{}\n", nlohmann::json{{"deleted", *existed}}.dump());
  return *existed ? kDone : Absent(flags);
}

int Load(Client* client, const CtlFlags& flags) {
  std::ifstream file;
  uint64_t total = 0;
  if (flags.file != "-") {
    if (const absl::Status opened = OpenLines(flags.file, &file, &total); !opened.ok()) return Fail(opened);
  }
  auto map = PairMap::Open(client, flags.table);
  if (!map.ok()) return Fail(map.status());
  absl::Status status;
  uint64_t records = 0;
  const int64_t start_ns = client->NowNs();
  {
    Progress progress("loading", total);
    LineReader lines(flags.file == "-" ? &std::cin : &file);
    Loading loading{&lines, &*map, flags.raw};
    std::vector<Task<bool>> lanes;
    lanes.reserve(32);
    for (int i = 0; i < 32; ++i) lanes.push_back(LoadLane(&loading));
    for (Task<bool>& lane : lanes) lane.Start();
    for (const Task<bool>& lane : lanes) {
      while (!lane.done()) {
        client->Poll(INT64_MAX);
        progress.Show(loading.bytes, [&] { return fmt::format("{} records", loading.records); });
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

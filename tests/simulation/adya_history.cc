#include "tests/simulation/adya_history.h"

#include <algorithm>
#include <optional>
#include <set>

#include "cell/base/check.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace cell {
namespace {

using Json = nlohmann::ordered_json;

struct Version {
  uint64_t stamp;
  size_t writer;
  bool deletes;
};

std::map<int, std::vector<Version>> VersionsByStamp(const std::vector<TransactionRecord>& history) {
  std::map<int, std::vector<Version>> versions;
  for (size_t i = 0; i < history.size(); ++i) {
    for (const TransactionRecord::Write& write : history[i].writes) {
      versions[write.key].push_back({history[i].stamp, i, write.deletes});
    }
  }
  for (auto& [key, its] : versions) {
    std::sort(its.begin(), its.end(), [](const Version& a, const Version& b) { return a.stamp < b.stamp; });
  }
  return versions;
}

// Returns the absences that a read of an absent key may have seen.
std::vector<uint64_t> CandidatesFor(size_t reader, const std::vector<Version>& versions) {
  std::vector<uint64_t> candidates = {0};
  uint64_t before = 0;
  for (const Version& version : versions) {
    // A put right before the reader's own write contradicts the read. Then adya objects to 0, too, since a version
    // lies between it and that of the reader.
    if (version.writer == reader) return {before};
    before = version.deletes ? version.stamp : 0;
    if (version.deletes) candidates.push_back(version.stamp);
  }
  return candidates;
}

Json ValueOf(uint64_t stamp, bool deletes) { return deletes ? Json(fmt::format("deleted at {}", stamp)) : Json(stamp); }

class Writer {
 public:
  Writer(const std::vector<TransactionRecord>& history, const SeenAbsences& absences)
      : history_(history), absences_(absences) {}

  AdyaHistory Write() {
    for (size_t i = 0; i < history_.size(); ++i) CollectValues(i);
    for (size_t i = 0; i < history_.size(); ++i) AddReadsOfNothing(i);
    // What ends when others begin may have taken effect after they did.
    struct Event {
      int64_t at_ns;
      bool ends;
      size_t transaction;
    };
    std::vector<Event> events;
    for (size_t i = 0; i < history_.size(); ++i) {
      events.push_back({history_[i].begin_ns, false, i});
      events.push_back({history_[i].end_ns, true, i});
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::pair(a.at_ns, a.ends) < std::pair(b.at_ns, b.ends);
    });
    for (const Event& event : events) {
      const TransactionRecord& one = history_[event.transaction];
      CELL_CHECK(one.stamp <= uint64_t{INT64_MAX});
      if (event.ends && !one.writes.empty()) order_[std::to_string(index_)] = one.stamp;
      Json line = {{"type", event.ends ? "ok" : "invoke"}, {"process", event.transaction}};
      if (event.at_ns != TransactionRecord::kNever) line["time"] = event.at_ns;
      if (!one.name.empty()) line["name"] = one.name;
      line["value"] = Operations(event.transaction, event.ends);
      AddLine(std::move(line));
    }
    return {std::move(operations_), order_.dump()};
  }

 private:
  void CollectValues(size_t i) {
    for (const TransactionRecord::Write& write : history_[i].writes) {
      if (!write.deletes) writers_[{write.key, history_[i].stamp}] = i;
    }
  }

  // Returns the value that a transaction read, if it has one that may be written.
  std::optional<Json> ValueRead(size_t reader, const TransactionRecord::Read& read) const {
    if (read.stamp == 0) {
      const auto seen = absences_.find({reader, read.key});
      if (seen == absences_.end()) return std::nullopt;
      return seen->second == 0 ? Json(nullptr) : ValueOf(seen->second, /*deletes=*/true);
    }
    const auto writer = writers_.find({read.key, read.stamp});
    // A transaction reads before it writes.
    const bool written = writer != writers_.end() && writer->second != reader;
    return written ? ValueOf(read.stamp, /*deletes=*/false) : Json(fmt::format("not written: {}", read.stamp));
  }

  // Writes the values that a transaction has read and that no other has written.
  void AddReadsOfNothing(size_t reader) {
    for (const TransactionRecord::Read& read : history_[reader].reads) {
      const std::optional<Json> value = ValueRead(reader, read);
      if (!value.has_value() || !value->is_string() || read.stamp == 0) continue;
      if (!not_written_.insert({read.key, value->get<std::string>()}).second) continue;
      const Json write = Json::array({Json::array({"w", read.key, *value})});
      for (const char* const type : {"invoke", "fail"}) {
        AddLine({{"type", type}, {"process", history_.size()}, {"value", write}});
      }
    }
  }

  Json Operations(size_t i, bool ends) const {
    Json operations = Json::array();
    for (const TransactionRecord::Read& read : history_[i].reads) {
      const std::optional<Json> value = ValueRead(i, read);
      if (value.has_value()) operations.push_back(Json::array({"r", read.key, ends ? *value : Json(nullptr)}));
    }
    for (const TransactionRecord::Write& write : history_[i].writes) {
      operations.push_back(Json::array({"w", write.key, ValueOf(history_[i].stamp, write.deletes)}));
    }
    return operations;
  }

  void AddLine(Json line) {
    line["index"] = index_++;
    operations_ += line.dump() + '\n';
  }

  const std::vector<TransactionRecord>& history_;
  const SeenAbsences& absences_;
  std::map<std::pair<int, uint64_t>, size_t> writers_;  // By key and stamp of what was put.
  std::set<std::pair<int, std::string>> not_written_;
  std::string operations_;
  Json order_ = Json::object();
  size_t index_ = 0;
};

}  // namespace

SeenAbsences AbsencesInOrder(const std::vector<TransactionRecord>& history, const std::vector<size_t>& order) {
  std::map<int, uint64_t> deleted;  // By key: the stamp of the last write, which is a delete if the key is absent.
  SeenAbsences absences;
  for (const size_t i : order) {
    for (const TransactionRecord::Read& read : history[i].reads) {
      if (read.stamp == 0) absences[{i, read.key}] = deleted[read.key];
    }
    for (const TransactionRecord::Write& write : history[i].writes) deleted[write.key] = history[i].stamp;
  }
  return absences;
}

SeenAbsences CertainAbsences(const std::vector<TransactionRecord>& history) {
  std::map<int, std::vector<Version>> versions = VersionsByStamp(history);
  SeenAbsences absences;
  for (size_t i = 0; i < history.size(); ++i) {
    for (const TransactionRecord::Read& read : history[i].reads) {
      if (read.stamp != 0) continue;
      const std::vector<uint64_t> candidates = CandidatesFor(i, versions[read.key]);
      if (candidates.size() == 1) absences[{i, read.key}] = candidates[0];
    }
  }
  return absences;
}

std::vector<SeenAbsences> AllAbsences(const std::vector<TransactionRecord>& history, size_t choices_max) {
  std::map<int, std::vector<Version>> versions = VersionsByStamp(history);
  std::vector<SeenAbsences> all = {{}};
  for (size_t i = 0; i < history.size(); ++i) {
    for (const TransactionRecord::Read& read : history[i].reads) {
      if (read.stamp != 0) continue;
      std::vector<SeenAbsences> longer;
      for (const uint64_t candidate : CandidatesFor(i, versions[read.key])) {
        for (SeenAbsences absences : all) {
          absences[{i, read.key}] = candidate;
          longer.push_back(std::move(absences));
        }
        if (longer.size() > choices_max) return {};
      }
      all = std::move(longer);
    }
  }
  return all;
}

AdyaHistory WriteForAdya(const std::vector<TransactionRecord>& history, const SeenAbsences& absences) {
  return Writer(history, absences).Write();
}

}  // namespace cell

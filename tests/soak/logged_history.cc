#include "tests/soak/logged_history.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fmt/format.h"

namespace cell {
namespace {

using Outcome = LoggedTransaction::Outcome;

class Reader {
 public:
  LoggedHistory Read(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) ReadLog(path);
    for (const LoggedTransaction& one : history_.transactions) {
      history_.unknown += one.outcome == Outcome::kUnknown;
    }
    FindWriters();
    TakeStamps();
    RemoveBadReads();
    return std::move(history_);
  }

 private:
  struct Stamp {
    LoggedPair pair;
    uint64_t stamp;
  };

  void ReadLog(const std::string& path) {
    std::unordered_map<uint64_t, size_t> by_number;
    std::ifstream file(path);
    if (!file.is_open()) history_.violations.push_back(fmt::format("{} cannot be read", path));
    std::string line;
    while (std::getline(file, line)) {
      if (file.eof()) break;
      std::istringstream fields(line);
      char what = 0;
      uint64_t number = 0;
      fields >> what;
      if (what == 'S') {
        Stamp stamp{};
        fields >> stamp.pair.key >> stamp.pair.value >> stamp.stamp;
        stamps_.push_back(stamp);
      } else if (what == 'C') {
        fields >> number;
        by_number[number] = history_.transactions.size();
        history_.transactions.push_back(ParseCommit(
            &fields, fmt::format("transaction {} of {}", number, std::filesystem::path(path).filename().string())));
      } else if (what == 'E') {
        fields >> number;
        End(&fields, &history_.transactions[by_number.at(number)]);
      } else if (what == 'F') {
        fields >> number;
        history_.transactions[by_number.at(number)].outcome = Outcome::kFailed;
      } else {
        history_.violations.push_back(fmt::format("{}: {}", path, line));
      }
    }
  }

  static LoggedTransaction ParseCommit(std::istringstream* fields, std::string name) {
    LoggedTransaction one{.name = std::move(name)};
    std::string word;
    *fields >> one.begin_ns >> word;
    std::vector<LoggedPair>* pairs = &one.reads;
    while (*fields >> word) {
      if (word == "W") {
        pairs = &one.writes;
        continue;
      }
      LoggedPair pair{std::stoul(word), 0};
      *fields >> pair.value;
      pairs->push_back(pair);
    }
    return one;
  }

  static void End(std::istringstream* fields, LoggedTransaction* one) {
    int existed = -1;
    *fields >> one->stamp >> existed >> one->end_ns;
    one->outcome = Outcome::kDone;
    if (existed != 0) return;
    const LoggedPair write = one->writes.at(0);
    one->reads.push_back({write.key, 0});
    if (write.value == 0) one->writes.clear();
  }

  void FindWriters() {
    for (size_t i = 0; i < history_.transactions.size(); ++i) {
      const LoggedTransaction& one = history_.transactions[i];
      for (const LoggedPair& write : one.writes) {
        if (write.value == 0 || history_.writer_of.emplace(write.value, i).second) continue;
        Violate(fmt::format("{} puts the value {}, which another one puts, too", one.name, write.value));
      }
      const bool no_stamp = one.done() && one.stamp == 0 && one.writes.size() > 1;
      if (no_stamp) Violate(fmt::format("{} has committed without a stamp", one.name));
    }
  }

  // Returns whether somebody puts this value of this key, and has not failed.
  bool Check(const LoggedPair& pair, const std::string& reader) {
    const auto found = history_.writer_of.find(pair.value);
    if (found == history_.writer_of.end()) {
      Violate(fmt::format("{} read key {} as {}, which nobody put", reader, pair.key, pair.value));
      return false;
    }
    const LoggedTransaction& writer = history_.transactions[found->second];
    if (writer.failed()) {
      Violate(fmt::format("{} read key {} as {}, but {}, which put that, has written nothing", reader, pair.key,
                          pair.value, writer.name));
      return false;
    }
    for (const LoggedPair& write : writer.writes) {
      if (write.value == pair.value && write.key == pair.key) return true;
    }
    Violate(fmt::format("{} read key {} as {}, which is of another key", reader, pair.key, pair.value));
    return false;
  }

  void TakeStamps() {
    for (const Stamp& stamp : stamps_) {
      if (!Check(stamp.pair, "a get with a stamp")) continue;
      LoggedTransaction& writer = history_.transactions[history_.writer_of.at(stamp.pair.value)];
      if (writer.stamp == 0) writer.stamp = stamp.stamp;
      if (writer.stamp == stamp.stamp) continue;
      Violate(fmt::format("key {} as {} has stamp {}, but {}, which put that, has {}", stamp.pair.key, stamp.pair.value,
                          stamp.stamp, writer.name, writer.stamp));
    }
  }

  void RemoveBadReads() {
    for (LoggedTransaction& one : history_.transactions) {
      std::erase_if(one.reads, [&](const LoggedPair& read) { return read.value != 0 && !Check(read, one.name); });
    }
  }

  void Violate(std::string text) { history_.violations.push_back(std::move(text)); }

  LoggedHistory history_;
  std::vector<Stamp> stamps_;
};

}  // namespace

LoggedHistory ReadTransactionLogs(const std::vector<std::string>& paths) { return Reader().Read(paths); }

}  // namespace cell

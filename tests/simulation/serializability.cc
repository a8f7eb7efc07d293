#include "tests/simulation/serializability.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <utility>

#include "cell/base/check.h"
#include "fmt/format.h"
#include "tests/simulation/precedence_graph.h"

namespace cell {
namespace {

using Reason = Precedence::Reason;
using Kind = SerializabilityResult::Kind;

// Limits of a report, since what it tells about one choice may be of others in turn.
constexpr size_t kNotesMax = 8;
constexpr size_t kReportBytesMax = 4096;

class Checker {
 public:
  Checker(const std::vector<TransactionRecord>& history, uint64_t steps_max)
      : history_(history), steps_max_(steps_max) {}

  SerializabilityResult Run() {
    CollectVersions();
    if (why_.empty()) AddTimes();
    if (why_.empty()) AddDependencies();
    if (!why_.empty()) return {Kind::kNo, why_};
    if (!graph_->Sort(moments_)) {
      return {Kind::kNo, "Each comes before the next:" + Describe(graph_->FindCycle())};
    }
    certain_edges_ = graph_->edges();
    return Search();
  }

 private:
  struct Version {
    uint64_t stamp;
    int writer;
    bool deletes;
  };
  // A stretch of a key's versions in which it is present.
  struct Presence {
    int put,
        deletion;  // Transactions: the one that ended its absence, and the one that deleted it, which may be kNobody.
  };
  struct Key {
    std::vector<Version> versions;    // In the order of their stamps.
    std::vector<Presence> presences;  // In that order.
  };
  // A read of a key as absent. It must come before the put or after the deletion of each of the key's presences.
  struct AbsentRead {
    int reader, key;
  };
  // A choice that was made without need. Its number is its place among all choices that stand.
  struct Choice {
    AbsentRead read;
    Presence presence;
    bool before;
    size_t edges;  // In the graph before it.
  };
  // Tells about an edge that was added by the search.
  struct Cause {
    std::vector<size_t> choices{};  // It follows from these. They are in ascending order.
    bool chosen = false;            // It is itself the last of them.
    std::string refuted{};          // Why the contrary choice fails, if that needs no other choice.
  };
  static constexpr int kNobody = -1;

  const TransactionRecord& at(int transaction) const { return history_[static_cast<size_t>(transaction)]; }
  int position(int transaction) const { return graph_->position(transaction); }
  std::string NameOf(int transaction) const {
    return at(transaction).name.empty() ? fmt::format("transaction {}", transaction) : at(transaction).name;
  }

  void CollectVersions() {
    for (size_t i = 0; i < history_.size(); ++i) {
      const TransactionRecord& one = history_[i];
      CELL_CHECK(one.begin_ns <= one.end_ns);
      CELL_CHECK(one.writes.empty() || one.stamp != 0);
      for (const TransactionRecord::Read& read : one.reads) KeyOf(read.key);
      for (const TransactionRecord::Write& write : one.writes) {
        KeyOf(write.key).versions.push_back({one.stamp, static_cast<int>(i), write.deletes});
      }
    }
    for (size_t k = 0; k < keys_.size(); ++k) {
      Key& key = keys_[k];
      std::sort(key.versions.begin(), key.versions.end(),
                [](const Version& a, const Version& b) { return a.stamp < b.stamp; });
      for (size_t i = 0; i < key.versions.size(); ++i) {
        const Version& version = key.versions[i];
        if (i > 0 && key.versions[i - 1].stamp == version.stamp) {
          CELL_CHECK(key.versions[i - 1].writer != version.writer);
          why_ = fmt::format("{} and {} both wrote key {} at stamp {}.", NameOf(key.versions[i - 1].writer),
                             NameOf(version.writer), k, version.stamp);
          return;
        }
        const bool present = !key.presences.empty() && key.presences.back().deletion == kNobody;
        if (!version.deletes && !present) key.presences.push_back({version.writer, kNobody});
        if (version.deletes && present) key.presences.back().deletion = version.writer;
      }
    }
  }

  Key& KeyOf(int key) {
    CELL_CHECK(key >= 0);
    if (keys_.size() <= static_cast<size_t>(key)) keys_.resize(static_cast<size_t>(key) + 1);
    return keys_[static_cast<size_t>(key)];
  }

  // Adds the edges of real time: from each transaction to the moment of its end, and from there to those that begin
  // later.
  void AddTimes() {
    std::vector<int64_t> ends;
    for (const TransactionRecord& one : history_) {
      if (one.end_ns != TransactionRecord::kNever) ends.push_back(one.end_ns);
      const bool ended = one.end_ns != TransactionRecord::kNever;
      moments_.push_back(ended ? one.begin_ns + (one.end_ns - one.begin_ns) / 2 : one.begin_ns);
    }
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    moments_.insert(moments_.end(), ends.begin(), ends.end());
    graph_.emplace(moments_.size());
    const auto moment_node = [this, &ends](int64_t ns) {  // The first moment that is not before this time.
      const auto moment = std::lower_bound(ends.begin(), ends.end(), ns);
      return static_cast<int>(history_.size()) + static_cast<int>(moment - ends.begin());
    };
    const auto first = static_cast<int>(history_.size());
    for (int node = first + 1; node < static_cast<int>(moments_.size()); ++node) {
      graph_->Add({node - 1, node, Reason::kTime});
    }
    for (int i = 0; i < first; ++i) {
      if (at(i).end_ns != TransactionRecord::kNever) graph_->Add({i, moment_node(at(i).end_ns), Reason::kEnd});
      const int begin = moment_node(at(i).begin_ns);
      if (begin > first) graph_->Add({begin - 1, i, Reason::kBegin});
    }
  }

  // Adds the edges of what transactions read and wrote, and collects the reads that leave a choice.
  void AddDependencies() {
    for (size_t k = 0; k < keys_.size(); ++k) {
      const std::vector<Version>& versions = keys_[k].versions;
      for (size_t i = 1; i < versions.size(); ++i) {
        graph_->Add({versions[i - 1].writer, versions[i].writer, Reason::kOverwrote, static_cast<int>(k)});
      }
    }
    for (int i = 0; i < static_cast<int>(history_.size()) && why_.empty(); ++i) {
      for (const TransactionRecord::Read& read : at(i).reads) {
        if (read.stamp == 0) {
          AddAbsentRead(i, read.key);
        } else {
          AddRead(i, read);
        }
        if (!why_.empty()) return;
      }
    }
  }

  // Returns the first version of this stamp or a later one.
  size_t FindVersion(int key, uint64_t stamp) const {
    const std::vector<Version>& versions = keys_[static_cast<size_t>(key)].versions;
    const auto version = std::lower_bound(versions.begin(), versions.end(), stamp,
                                          [](const Version& a, uint64_t wanted) { return a.stamp < wanted; });
    return static_cast<size_t>(version - versions.begin());
  }

  void AddRead(int reader, const TransactionRecord::Read& read) {
    const std::vector<Version>& versions = keys_[static_cast<size_t>(read.key)].versions;
    const size_t found = FindVersion(read.key, read.stamp);
    const auto refuse = [&](const std::string& reason) {
      why_ = fmt::format("{} read key {} at stamp {}, {}.", NameOf(reader), read.key, read.stamp, reason);
    };
    if (found == versions.size() || versions[found].stamp != read.stamp) {
      return refuse("which no committed transaction wrote");
    }
    const Version& version = versions[found];
    if (version.writer == reader) return refuse("which it wrote itself later");
    if (version.deletes) return refuse(fmt::format("at which {} deleted it", NameOf(version.writer)));
    graph_->Add({version.writer, reader, Reason::kRead, read.key});
    if (found + 1 < versions.size() && versions[found + 1].writer != reader) {
      graph_->Add({reader, versions[found + 1].writer, Reason::kReplaced, read.key});
    }
  }

  void AddAbsentRead(int reader, int key) {
    const auto& [versions, presences] = keys_[static_cast<size_t>(key)];
    // If the reader also writes the key, then it comes between its version and the one before: no choice is left.
    const size_t own = FindVersion(key, at(reader).stamp);
    if (own < versions.size() && versions[own].writer == reader) {
      if (own > 0 && !versions[own - 1].deletes) {
        why_ = fmt::format(
            "{} read key {} as absent and wrote its stamp {}, but {} had put it at stamp {} right before.",
            NameOf(reader), key, versions[own].stamp, NameOf(versions[own - 1].writer), versions[own - 1].stamp);
      }
      return;
    }
    if (presences.empty()) return;
    if (presences.back().deletion == kNobody) {
      graph_->Add({reader, presences.back().put, Reason::kBeforePut, key});
      if (presences.size() == 1) return;
    }
    absent_reads_.push_back({reader, key});
  }

  SerializabilityResult Search() {
    uint64_t looked = 0;
    size_t next = 0;
    for (size_t satisfied = 0; satisfied < absent_reads_.size();) {
      if (graph_->steps() + ++looked > steps_max_) {
        return {Kind::kGaveUp, "The search for the absences that were read took too many steps."};
      }
      const AbsentRead& read = absent_reads_[next];
      if (const Presence* presence = PresenceAround(read); presence != nullptr) {
        satisfied = 0;
        if (!MoveOut(read, *presence)) return {Kind::kNo, why_};
        continue;
      }
      ++satisfied;
      next = (next + 1) % absent_reads_.size();
    }
    return {.kind = Kind::kYes, .order = Order()};
  }

  std::vector<size_t> Order() const {
    std::vector<size_t> order(history_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [this](size_t a, size_t b) { return position(static_cast<int>(a)) < position(static_cast<int>(b)); });
    return order;
  }

  // Returns the presence during which a read of absence is in the current order, or null.
  const Presence* PresenceAround(const AbsentRead& read) const {
    const std::vector<Presence>& presences = keys_[static_cast<size_t>(read.key)].presences;
    auto after = std::partition_point(presences.begin(), presences.end(), [this, &read](const Presence& presence) {
      return position(presence.put) < position(read.reader);
    });
    if (after == presences.begin()) return nullptr;
    --after;
    return position(after->deletion) > position(read.reader) ? &*after : nullptr;
  }

  // Makes a read come before a presence or after it, as far as the graph leaves a choice. Returns false, and sets
  // `why_`, if the history is refuted.
  bool MoveOut(const AbsentRead& read, const Presence& presence) {
    const std::vector<size_t> from_put = graph_->FindPath(presence.put, read.reader);
    const std::vector<size_t> to_deletion = graph_->FindPath(read.reader, presence.deletion);
    if (!from_put.empty() && !to_deletion.empty()) return GoBack(read, presence, from_put, to_deletion);
    if (!from_put.empty()) {
      AddChosen(read, presence, false, {.choices = CausesOf({&from_put})});
    } else if (!to_deletion.empty()) {
      AddChosen(read, presence, true, {.choices = CausesOf({&to_deletion})});
    } else {
      // Try the nearer one first, which changes less of the order.
      const int at = position(read.reader);
      const bool before = at - position(presence.put) < position(presence.deletion) - at;
      choices_.push_back({read, presence, before, graph_->edges()});
      AddChosen(read, presence, before, {.choices = {choices_.size() - 1}, .chosen = true});
    }
    return true;
  }

  void AddChosen(const AbsentRead& read, const Presence& presence, bool before, Cause cause) {
    causes_.push_back(std::move(cause));
    if (before) {
      graph_->Add({read.reader, presence.put, Reason::kBeforePut, read.key});
    } else {
      graph_->Add({presence.deletion, read.reader, Reason::kAfterDelete, read.key});
    }
  }

  // Returns the choices on which these paths depend.
  std::vector<size_t> CausesOf(std::initializer_list<const std::vector<size_t>*> paths) const {
    std::vector<size_t> choices;
    for (const std::vector<size_t>* path : paths) {
      for (const size_t edge : *path) {
        if (edge < certain_edges_) continue;
        const std::vector<size_t>& more = causes_[edge - certain_edges_].choices;
        choices.insert(choices.end(), more.begin(), more.end());
      }
    }
    std::sort(choices.begin(), choices.end());
    choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
    return choices;
  }

  // Handles a read that has no place. Reverts the last of the choices from which that follows, and drops all choices
  // that were made after the last but one of these. Returns false, and sets `why_`, if it follows from no choice.
  bool GoBack(const AbsentRead& read, const Presence& presence, const std::vector<size_t>& from_put,
              const std::vector<size_t>& to_deletion) {
    Cause cause{.choices = CausesOf({&from_put, &to_deletion})};
    if (cause.choices.empty()) {
      why_ = DescribeContradiction(read, presence, from_put, to_deletion);
      return false;
    }
    const Choice last = choices_[cause.choices.back()];
    cause.choices.pop_back();
    if (cause.choices.empty()) cause.refuted = DescribeContradiction(read, presence, from_put, to_deletion);
    const size_t kept = cause.choices.empty() ? 0 : cause.choices.back() + 1;
    graph_->Truncate(choices_[kept].edges);
    causes_.resize(graph_->edges() - certain_edges_);
    choices_.resize(kept);
    AddChosen(last.read, last.presence, !last.before, std::move(cause));
    return true;
  }

  std::string DescribeContradiction(const AbsentRead& read, const Presence& presence,
                                    const std::vector<size_t>& from_put, const std::vector<size_t>& to_deletion) {
    std::vector<size_t> path = from_put;
    path.insert(path.end(), to_deletion.begin(), to_deletion.end());
    return fmt::format(
        "{} read key {} as absent, but it comes after {}, which put it, and before {}, which deleted it:{}",
        NameOf(read.reader), read.key, NameOf(presence.put), NameOf(presence.deletion), Describe(path));
  }

  // Returns a line for each step of a path or a cycle, and notes about those that the search has chosen.
  std::string Describe(const std::vector<size_t>& path) {
    std::vector<size_t> notes;  // Edges.
    std::string text = DescribeSteps(path, &notes);
    for (size_t i = 0; i < notes.size(); ++i) {
      const Precedence edge = graph_->edge(notes[i]);
      const Cause& cause = causes_[notes[i] - certain_edges_];
      text += fmt::format("\n  ({}) ", i + 1);
      if (cause.chosen) {
        text += "This is assumed.";
      } else if (!cause.refuted.empty() && text.size() + cause.refuted.size() < kReportBytesMax) {
        text += "Otherwise: " + Indent(cause.refuted);
      } else {
        // If the contrary was not tried, then a path of earlier edges excludes it.
        const Presence presence = PresenceOf(edge);
        const std::vector<size_t> excluding = edge.reason == Reason::kBeforePut
                                                  ? graph_->FindPath(edge.from, presence.deletion, notes[i])
                                                  : graph_->FindPath(presence.put, edge.to, notes[i]);
        text += excluding.empty() ? "The contrary was refuted." : Indent("Because:" + DescribeSteps(excluding, &notes));
      }
    }
    return text;
  }

  static std::string Indent(const std::string& text) {
    std::string indented;
    for (const char c : text) {
      indented += c;
      if (c == '\n') indented += "    ";
    }
    return indented;
  }

  Presence PresenceOf(const Precedence& edge) const {
    for (const Presence& presence : keys_[static_cast<size_t>(edge.key)].presences) {
      if ((edge.reason == Reason::kBeforePut ? presence.put : presence.deletion) ==
          (edge.reason == Reason::kBeforePut ? edge.to : edge.from)) {
        return presence;
      }
    }
    CELL_CHECK(false);
  }

  // Describes the steps of a path, those by moments as one. Adds the chosen ones that are new to the notes.
  std::string DescribeSteps(const std::vector<size_t>& path, std::vector<size_t>* notes) {
    std::string text;
    int ended = kNobody;  // The last transaction whose end the path has passed.
    // A cycle may begin among the moments. Begin with the transaction after them.
    const auto begin = std::find_if(path.begin(), path.end(), [this](size_t number) {
      return graph_->edge(number).from < static_cast<int>(history_.size());
    });
    std::vector<size_t> turned(begin, path.end());
    turned.insert(turned.end(), path.begin(), begin);
    for (const size_t number : turned) {
      const Precedence& edge = graph_->edge(number);
      if (edge.reason == Reason::kEnd) ended = edge.from;
      if (edge.reason == Reason::kEnd || edge.reason == Reason::kTime) continue;
      const int from = edge.reason == Reason::kBegin ? ended : edge.from;
      text += fmt::format("\n  {} comes before {}: {}", NameOf(from), NameOf(edge.to), ReasonOf(edge, from));
      if (number >= certain_edges_) {
        const auto note = std::find(notes->begin(), notes->end(), number);
        const size_t index = static_cast<size_t>(note - notes->begin());
        if (index < kNotesMax) text += fmt::format(" ({})", index + 1);
        if (note == notes->end() && index < kNotesMax) notes->push_back(number);
      }
      text += '.';
    }
    return text;
  }

  std::string ReasonOf(const Precedence& edge, int from_node) const {
    const std::string from = NameOf(from_node), to = NameOf(edge.to);
    const int key = edge.key;
    switch (edge.reason) {
      case Reason::kEnd:
      case Reason::kTime:
        break;
      case Reason::kBegin:
        return fmt::format("{} began after {} had ended", to, from);
      case Reason::kRead:
        return fmt::format("{} read key {} at stamp {}, which {} wrote", to, key, at(edge.from).stamp, from);
      case Reason::kOverwrote:
        return fmt::format("{} wrote key {} at stamp {}, after stamp {} of {}", to, key, at(edge.to).stamp,
                           at(edge.from).stamp, from);
      case Reason::kReplaced: {
        const size_t version = FindVersion(key, at(edge.to).stamp);
        return fmt::format("{} wrote key {} at stamp {}, over stamp {}, which {} read", to, key, at(edge.to).stamp,
                           keys_[static_cast<size_t>(key)].versions[version - 1].stamp, from);
      }
      case Reason::kBeforePut:
        return fmt::format("{} put key {} at stamp {}, and {} had read it as absent", to, key, at(edge.to).stamp, from);
      case Reason::kAfterDelete:
        return fmt::format("{} read key {} as absent, and {} had deleted it at stamp {}", to, key, from,
                           at(edge.from).stamp);
    }
    return "";
  }

  const std::vector<TransactionRecord>& history_;
  const uint64_t steps_max_;
  std::vector<Key> keys_;
  // The nodes are the transactions, by index, and then the moments at which one or several end, in their order.
  std::optional<PrecedenceGraph> graph_;
  std::vector<int64_t> moments_;  // By node: about when it took place.
  std::vector<AbsentRead> absent_reads_;
  std::string why_;

  size_t certain_edges_ = SIZE_MAX;  // The edges from this number on were added by the search.
  std::vector<Cause> causes_;        // By edge of the search.
  std::vector<Choice> choices_;
};

}  // namespace

SerializabilityResult CheckSerializable(const std::vector<TransactionRecord>& history, uint64_t steps_max) {
  return Checker(history, steps_max).Run();
}

}  // namespace cell

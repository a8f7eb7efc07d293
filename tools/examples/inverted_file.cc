// Keeps documents, and an inverted file that finds them by the words in them. The documents may be the packages of a
// Debian system:
//
//   dpkg-query -W -f '${Package}\t${binary:Summary}\n' | inverted_file load
//   inverted_file search python library
//
// Shows how a sorted store answers a search for several words: it merges the sorted lists of the documents that have
// each word, and skips what cannot match.
//
// Keys:
//   inverted/doc/NAME        has the text of the document NAME
//   inverted/word/WORD/NAME  has nothing; it says that the word is in the name or the text of the document
//
// A word is a run of letters and digits, in lower case, of which the first 64 bytes count. Bytes outside of ASCII are
// letters. The documents of a word are neighbours in the order of their names, so a scan lists them, and a scan that
// begins in their middle skips what comes before. The words that begin with a prefix are neighbours as well.
//
// Why transactions: a document has an entry for each of its words, in many regions. With single puts a program that
// ends in between would leave a document that some words find and others do not, and of two programs that update the
// same document at the same time, each could leave entries that the other's text does not have.
//
// What to look at:
// - Add writes the entries that the new text has and the old one had not, and deletes the others. An entry of a word
//   that stays is never gone, not even for a moment.
// - Search needs no transaction for that reason. A document that has all of the words throughout is found, and each
//   document that was found is read, and left out if it has not all of them any more. A transaction that had scanned
//   all these entries would be aborted by each document that is added.
// - WordEntries::Seek reads a batch of entries, and begins a new scan at the document that another word has reached if
//   that is not in the batch. `search --stats` shows how few entries are read for a rare and a frequent word.
//
// A transaction writes to up to 17 regions, so this layout suits some millions of entries: a document whose words are
// in more regions is refused. A larger collection would be divided by document, as inverted/PART/..., and a search
// would ask each part.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/client/snapshot.h"
#include "cell/client/transaction.h"
#include "cell/cmd/number_flags.h"
#include "fmt/format.h"
#include "tools/examples/example.h"

namespace cell {
namespace {

constexpr std::string_view kDocuments = "inverted/doc/";
constexpr std::string_view kWords = "inverted/word/";
constexpr size_t kWordBytesMax = 64;
constexpr size_t kBatch = 64;

struct Flags {
  ClientOptions client;
  std::string name;
  std::string text;
  std::string file = "-";
  std::vector<std::string> words;
  std::string prefix;
  uint64_t clients = 4;
  uint64_t limit = UINT64_MAX;
  bool stats = false;
};

struct Document {
  std::string name;
  std::string text;
};

std::string DocumentKey(std::string_view name) { return fmt::format("{}{}", kDocuments, name); }
std::string EntryKey(std::string_view word, std::string_view name) {
  return fmt::format("{}{}/{}", kWords, word, name);
}

std::set<std::string> WordsOf(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (!word.empty()) words.insert(word.substr(0, kWordBytesMax));
    word.clear();
  };
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (static_cast<unsigned char>(c) & 0x80) != 0) {
      word += c;
    } else if (c >= 'A' && c <= 'Z') {
      word += static_cast<char>(c - 'A' + 'a');
    } else {
      finish();
    }
  }
  finish();
  return words;
}

std::set<std::string> WordsOf(const Document& document) { return WordsOf(document.name + " " + document.text); }

// Replaces the text of a document, or removes the document if there is no text. Returns whether it was there before.
absl::StatusOr<bool> Replace(Client* client, const std::string& name, const std::optional<std::string>& text) {
  const std::set<std::string> after = text.has_value() ? WordsOf({name, *text}) : std::set<std::string>();
  bool existed = false;
  const auto body = [&](Transaction* tx) -> absl::Status {
    ASSIGN_OR_RETURN(const std::optional<std::string> old, tx->Get(DocumentKey(name)));
    existed = old.has_value();
    const std::set<std::string> before = existed ? WordsOf({name, *old}) : std::set<std::string>();
    for (const std::string& word : before) {
      if (!after.contains(word)) RETURN_IF_ERROR(tx->Delete(EntryKey(word, name)));
    }
    for (const std::string& word : after) {
      if (!before.contains(word)) RETURN_IF_ERROR(tx->Put(EntryKey(word, name), ""));
    }
    if (text.has_value()) return tx->Put(DocumentKey(name), *text);
    return existed ? tx->Delete(DocumentKey(name)) : absl::OkStatus();
  };
  const absl::Status status = client->RunTransaction(body).status();
  if (status.ok()) return existed;
  return absl::Status(status.code(), fmt::format("document {}: {}", ForMessage(name), std::string(status.message())));
}

absl::StatusOr<int> Add(Client* client, const Flags& flags) {
  RETURN_IF_ERROR(Replace(client, flags.name, flags.text).status());
  return kDone;
}

absl::StatusOr<int> Remove(Client* client, const Flags& flags) {
  ASSIGN_OR_RETURN(const bool existed, Replace(client, flags.name, std::nullopt));
  if (!existed) fmt::print("there is no document {}\n", ForMessage(flags.name));
  return existed ? kDone : kWrong;
}

absl::StatusOr<std::vector<Document>> ReadDocuments(std::istream& from) {
  std::vector<Document> documents;
  std::string line;
  while (std::getline(from, line)) {
    const size_t tab = line.find('\t');
    Document document{line.substr(0, tab), tab == std::string::npos ? "" : line.substr(tab + 1)};
    if (tab == std::string::npos || document.name.empty() || document.name.find_first_of("/ ") != std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("line {}: {} is not NAME TAB TEXT", documents.size() + 1, ForMessage(line)));
    }
    if (document.name.size() > kPartBytesMax) {
      return absl::InvalidArgumentError(fmt::format("line {}: the name {} has more than {} bytes", documents.size() + 1,
                                                    ForMessage(document.name), kPartBytesMax));
    }
    documents.push_back(std::move(document));
  }
  if (from.bad() || std::ferror(stdin) != 0) return absl::DataLossError("the documents cannot be read to their end");
  return documents;
}

// Adds documents from several threads, each with a client of its own and one transaction for each document.
absl::StatusOr<int> Load(Client*, const Flags& flags) {
  absl::StatusOr<std::vector<Document>> documents;
  if (flags.file == "-") {
    documents = ReadDocuments(std::cin);
  } else {
    std::ifstream file(flags.file);
    if (!file) return absl::NotFoundError(fmt::format("cannot open {}", ForMessage(flags.file)));
    documents = ReadDocuments(file);
  }
  RETURN_IF_ERROR(documents.status());
  std::atomic<size_t> next = 0;
  std::vector<std::future<absl::Status>> threads;
  for (uint64_t i = 0; i < flags.clients; ++i) {
    threads.push_back(std::async(std::launch::async, [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(flags.client));
      for (size_t at = next++; at < documents->size(); at = next++) {
        absl::Status added = Replace(client.get(), (*documents)[at].name, (*documents)[at].text).status();
        if (added.ok()) continue;
        next = documents->size();  // The other threads end as well.
        return added;
      }
      client->FinishTransactions();
      return absl::OkStatus();
    }));
  }
  absl::Status status;
  for (auto& thread : threads) status.Update(thread.get());
  RETURN_IF_ERROR(status);
  fmt::print("{} documents were loaded\n", documents->size());
  return kDone;
}

// Counts the reads of searches.
struct Stats {
  uint64_t entries = 0;
  uint64_t scans = 0;
};

// The documents that have a word, in the order of their names. They are read in batches.
class WordEntries {
 public:
  WordEntries(Client* client, std::string_view word, Stats* stats)
      : client_(client), prefix_(EntryKey(word, "")), stats_(stats) {}

  // Returns the first document whose name is not below `name`, or nullopt if all are below it. REQUIRES: `name` is not
  // below that of an earlier call.
  absl::StatusOr<std::optional<std::string>> Seek(const std::string& name) {
    at_ = static_cast<size_t>(std::lower_bound(names_.begin(), names_.end(), name) - names_.begin());
    if (at_ == names_.size() && !complete_) RETURN_IF_ERROR(Fetch(name));
    if (at_ == names_.size()) return std::nullopt;
    return names_[at_];
  }

 private:
  // Reads the batch that begins at `name`.
  absl::Status Fetch(const std::string& name) {
    ScanOptions options = PrefixScan(prefix_);
    options.from = prefix_ + name;
    options.limit = kBatch;
    options.batch = kBatch;
    options.keys_only = true;
    names_.clear();
    at_ = 0;
    Scan scan = client_->NewScan(options);
    absl::StatusOr<bool> more = scan.Next();
    for (; more.ok() && *more; more = scan.Next()) names_.emplace_back(scan.key().substr(prefix_.size()));
    complete_ = names_.size() < kBatch;
    stats_->entries += names_.size();
    ++stats_->scans;
    return more.status();
  }

  Client* client_;
  std::string prefix_;
  Stats* stats_;
  std::vector<std::string> names_;
  size_t at_ = 0;
  bool complete_ = false;  // No document comes after those in names_.
};

// Reads the documents, and writes those that `matches` accepts.
absl::Status WriteMatches(Client* client, const std::vector<std::string>& names,
                          const std::function<bool(const Document&)>& matches) {
  for (size_t first = 0; first < names.size(); first += kBatch) {
    const size_t end = std::min(first + kBatch, names.size());
    std::vector<std::string> keys;
    for (size_t i = first; i < end; ++i) keys.push_back(DocumentKey(names[i]));
    ASSIGN_OR_RETURN(const std::vector<std::optional<std::string>> texts,
                     client->MultiGet(std::vector<std::string_view>(keys.begin(), keys.end())));
    for (size_t i = first; i < end; ++i) {
      if (!texts[i - first].has_value()) continue;  // It was removed after its entries were read.
      const Document document{names[i], *texts[i - first]};
      if (matches(document)) fmt::print("{}\t{}\n", document.name, document.text);
    }
  }
  return absl::OkStatus();
}

void WriteStats(const Flags& flags, const Stats& stats) {
  if (flags.stats) std::fputs(fmt::format("{} entries in {} scans\n", stats.entries, stats.scans).c_str(), stderr);
}

// Lists the documents that have all words. Each list is asked in turn for the first document from `name` on. If it
// returns a later one, that is the next to ask for. If all return `name`, it is a match.
absl::StatusOr<int> Search(Client* client, const Flags& flags) {
  std::set<std::string> words;
  for (const std::string& argument : flags.words) words.merge(WordsOf(argument));
  if (words.empty()) return absl::InvalidArgumentError("there is no letter and no digit in what is searched for");
  Stats stats;
  std::vector<WordEntries> lists;
  lists.reserve(words.size());
  for (const std::string& word : words) lists.emplace_back(client, word, &stats);
  std::vector<std::string> found;
  std::string name;
  size_t agreed = 0;
  for (size_t i = 0; found.size() < flags.limit; i = (i + 1) % lists.size()) {
    ASSIGN_OR_RETURN(const std::optional<std::string> first, lists[i].Seek(name));
    if (!first.has_value()) break;
    agreed = *first == name ? agreed + 1 : 1;
    name = *first;
    if (agreed < lists.size()) continue;
    found.push_back(name);
    name += '\0';  // The lowest name above it.
    agreed = 0;
  }
  const auto has_all = [&words](const Document& document) {
    const std::set<std::string> has = WordsOf(document);
    return std::includes(has.begin(), has.end(), words.begin(), words.end());
  };
  RETURN_IF_ERROR(WriteMatches(client, found, has_all));
  WriteStats(flags, stats);
  return kDone;
}

// Lists the documents that have a word that begins with a prefix. Entries come in the order of the words, so the names
// are sorted first.
absl::StatusOr<int> Prefix(Client* client, const Flags& flags) {
  const std::set<std::string> words = WordsOf(flags.prefix);
  if (words.size() != 1) {
    return absl::InvalidArgumentError(fmt::format("{} is not the beginning of one word", ForMessage(flags.prefix)));
  }
  const std::string& prefix = *words.begin();
  Stats stats{.scans = 1};
  std::set<std::string> names;
  ScanOptions options = PrefixScan(fmt::format("{}{}", kWords, prefix));
  options.keys_only = true;
  Scan scan = client->NewScan(options);
  absl::StatusOr<bool> more = scan.Next();
  for (; more.ok() && *more; more = scan.Next()) {
    ++stats.entries;
    names.emplace(scan.key().substr(scan.key().rfind('/') + 1));
  }
  RETURN_IF_ERROR(more.status());
  const auto has_one = [&prefix](const Document& document) {
    const std::set<std::string> has = WordsOf(document);
    const auto at = has.lower_bound(prefix);
    return at != has.end() && at->starts_with(prefix);
  };
  RETURN_IF_ERROR(WriteMatches(client, {names.begin(), names.end()}, has_one));
  WriteStats(flags, stats);
  return kDone;
}

// Compares the entries with all documents, as of one moment: in a snapshot, which may be as large as the cluster.
absl::StatusOr<int> Check(Client* client, const Flags&) {
  const std::string end = *PrefixScan(kWords).to;
  ASSIGN_OR_RETURN(Snapshot snapshot, client->TakeSnapshot({.from = std::string(kDocuments), .to = end}));
  std::set<std::string> wanted, found;
  size_t documents = 0;
  Scan texts = snapshot.NewScan(PrefixScan(kDocuments));
  absl::StatusOr<bool> more = texts.Next();
  for (; more.ok() && *more; more = texts.Next()) {
    const Document document{std::string(texts.key().substr(kDocuments.size())), std::string(texts.value())};
    for (const std::string& word : WordsOf(document)) wanted.insert(EntryKey(word, document.name));
    ++documents;
  }
  RETURN_IF_ERROR(more.status());
  Scan entries = snapshot.NewScan(PrefixScan(kWords));
  for (more = entries.Next(); more.ok() && *more; more = entries.Next()) found.emplace(entries.key());
  RETURN_IF_ERROR(more.status());
  snapshot.Forget();
  std::vector<std::string> missing, extra;
  std::set_difference(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), wanted.begin(), wanted.end(), std::back_inserter(extra));
  for (const std::string& key : missing) fmt::print("{} is missing\n", ForMessage(key));
  for (const std::string& key : extra) fmt::print("{} is there, and no document has this word\n", ForMessage(key));
  if (!missing.empty() || !extra.empty()) return kWrong;
  fmt::print("{} documents with {} entries, and all are right\n", documents, found.size());
  return kDone;
}

int Main(int argc, char** argv) {
  Flags flags;
  std::function<absl::StatusOr<int>(Client*, const Flags&)> command;
  CLI::App app("Keep documents, and find them by the words in them");
  DeclareCluster(&app, &flags.client);
  app.require_subcommand(1);
  CLI::App* const add = app.add_subcommand("add", "Store the document NAME with TEXT, in the place of an earlier one");
  CLI::App* const remove = app.add_subcommand("remove", "Remove the document NAME: exit status 1 if it does not exist");
  CLI::App* const load = app.add_subcommand("load", "Store many documents, each a line NAME TAB TEXT");
  CLI::App* const search = app.add_subcommand("search", "List the documents that have all words, as NAME TAB TEXT");
  CLI::App* const prefix = app.add_subcommand("prefix", "List the documents that have a word that begins with PREFIX");
  CLI::App* const check =
      app.add_subcommand("check", "Compare the entries with the texts of all documents: exit status 1 if they differ");
  for (CLI::App* const sub : {add, remove}) sub->add_option("name", flags.name)->required()->check(PartOfKey());
  add->add_option("text", flags.text)->required();
  load->add_option("file", flags.file, "A file; -: standard input")->capture_default_str();
  load->add_option("--clients", flags.clients, "Number of threads")->check(WholeNumber(1, 64))->capture_default_str();
  search->add_option("word", flags.words)->required();
  search->add_option("--limit", flags.limit, "How many documents at most; by default all")
      ->check(WholeNumber(1, UINT64_MAX));
  prefix->add_option("prefix", flags.prefix)->required();
  for (CLI::App* const sub : {search, prefix}) {
    sub->add_flag("--stats", flags.stats, "Write to standard error how many entries were read");
  }
  add->callback([&command] { command = Add; });
  remove->callback([&command] { command = Remove; });
  load->callback([&command] { command = Load; });
  search->callback([&command] { command = Search; });
  prefix->callback([&command] { command = Prefix; });
  check->callback([&command] { command = Check; });
  return RunTransactions("inverted_file", &app, argc, argv, flags.client,
                         [&](Client* client) { return command(client, flags); });
}

}  // namespace
}  // namespace cell

int main(int argc, char** argv) { return cell::Main(argc, argv); }

#include "cell/gateway/connection.h"

#include <algorithm>
#include <utility>

#include "cell/base/check.h"
#include "cell/gateway/space.h"
#include "fmt/format.h"

namespace cell::gateway {
namespace {

constexpr size_t kRequestsMax = 1024;               // Requests that are parsed and not answered.
constexpr size_t kInFlightMax = 64;                 // Commands that run, each weighted by how many values it can have.
constexpr size_t kThreadInFlightMax = 512;          // Likewise, of all connections of a thread.
constexpr size_t kFreeMax = 64;                     // Requests that are kept for reuse.
constexpr size_t kKeysMax = 64;                     // A command with more runs alone.
constexpr size_t kHeldBytesMax = size_t{4} << 20;   // Requests and replies, before no more requests are taken.
constexpr size_t kMultiBytesMax = size_t{2} << 20;  // A transaction cannot write more than half of it.
constexpr size_t kMultiRequestsMax = 10'000;
constexpr size_t kMultisMax = 8;                 // Transactions that wait for their turn.
constexpr size_t kUntrustedBytesMax = 32 << 10;  // Before a client has authenticated.
constexpr int64_t kRetryNs = 15'000'000'000;     // For this long a command is tried again that others disturb.
constexpr int64_t kPauseNs = 250'000;
constexpr int kPauseDoublings = 8;
constexpr int kTurnDoublings = 3;                   // During a turn, only other gateways and clients disturb a command.
constexpr size_t kWordBytes = sizeof(std::string);  // Memory for a word, beside its bytes.
constexpr size_t kWatchedMax = 1000;
constexpr size_t kKeptBytes = 4096;  // Larger buffers of a request are not used again.
constexpr size_t kKeptWords = 64;
constexpr size_t kLargeBytes = 64 << 10;  // Longer replies are errors while all buffers together are full.
constexpr std::string_view kNoAuth = "NOAUTH Authentication required.";

}  // namespace

Connection::Connection(Shared* shared, uint64_t id, std::string peer)
    : shared_(shared), id_(id), peer_(std::move(peer)), client_(shared->anybody), random_(id) {
  parser_.set_trusted(client_ != nullptr);
}

Connection::~Connection() {
  CELL_CHECK(!busy() && !ready_);
  if (blocked_) std::erase(shared_->blocked, this);
}

bool Connection::takes_input() const {
  if (client_ == nullptr && parser_.buffered() > kUntrustedBytesMax) return false;
  return !closes_ && !stalled_ && waiting_.size() < kRequestsMax && held_bytes_ < kHeldBytesMax &&
         to_run_.size() < kMultisMax;
}

void Connection::BecomeUser(const User& user) {
  client_ = user.client;
  parser_.set_trusted(true);
}

void Connection::Reset() {
  Unwatch();
  name_.clear();
  version_ = 2;
  if (client_ != nullptr) unknown_since_ns_ = client_->NowNs();
  client_ = shared_->anybody;
  parser_.set_trusted(client_ != nullptr);
  if (client_ == nullptr && multi_.has_value()) {  // It came behind RESET, from a client that had not authenticated.
    noted_bytes_ -= multi_->bytes;
    multi_.reset();
  }
}

void Connection::Unwatch() {
  watched_.clear();
  watch_failed_ = false;
}

void Connection::Quit() {
  closes_ = true;
  DropNotBegun();
}

void Connection::Refuse(std::string_view error) {
  DropNotBegun();
  closes_ = true;
  std::unique_ptr<Request> request = NewRequest();
  request->writer->Error(error);
  request->begun = request->done = true;
  held_bytes_ += request->reply.size();
  waiting_.push_back(std::move(request));
}

void Connection::Abandon() {
  closes_ = true;
  DropNotBegun();
  if (std::exchange(blocked_, false)) std::erase(shared_->blocked, this);
}

void Connection::DropNotBegun() {
  while (!waiting_.empty()) {
    const Request& last = *waiting_.back();
    // One that runs, and those before it, stay. What was refused at once has begun, and is dropped as well.
    if (last.begun && last.command != nullptr) break;
    held_bytes_ -= last.word_bytes + (last.done ? last.reply.size() : 0);
    waiting_.pop_back();
  }
  begun_ = std::min(begun_, waiting_.size());
}

void Connection::Advance() {
  advancing_ = true;
  do {
    TakeReplies();
    ParseAll();
    BeginAll();
  } while (!waiting_.empty() && waiting_.front()->done);
  advancing_ = false;
}

void Connection::TakeReplies() {
  while (!waiting_.empty() && waiting_.front()->done) {
    std::unique_ptr<Request> done = std::move(waiting_.front());
    waiting_.pop_front();
    if (begun_ > 0) --begun_;
    out_ += done->reply;
    held_bytes_ -= done->word_bytes + done->reply.size();
    const bool small =
        done->word_bytes <= kKeptBytes && done->words.size() <= kKeptWords && done->reply.capacity() <= kKeptBytes;
    if (small && free_.size() < kFreeMax) free_.push_back(std::move(done));
  }
}

std::unique_ptr<Connection::Request> Connection::NewRequest() {
  auto request = std::make_unique<Request>();
  if (!free_.empty()) {
    request = std::move(free_.back());
    free_.pop_back();
    request->task.reset();
    request->words.clear();
    request->word_bytes = 0;
    request->reply.clear();
    request->begun = request->done = false;
    request->command = nullptr;
  }
  request->writer.emplace(&request->reply);
  request->writer->set_version(version_);
  return request;
}

void Connection::ParseAll() {
  stalled_ = out_.size() >= kHeldBytesMax;
  while (!closes_ && !stalled_ && waiting_.size() < kRequestsMax && held_bytes_ < kHeldBytesMax &&
         to_run_.size() < kMultisMax) {
    if (client_ == nullptr && !waiting_.empty()) return;  // The one that waits may be AUTH.
    const RequestParser::Outcome outcome = parser_.Next();
    if (outcome == RequestParser::Outcome::kIncomplete) return;
    if (outcome == RequestParser::Outcome::kRequest && parser_.arguments().empty()) continue;
    std::unique_ptr<Request> request = NewRequest();
    if (outcome == RequestParser::Outcome::kError) {
      request->writer->Error(fmt::format("ERR {}", parser_.error()));
      request->begun = request->done = true;
      closes_ = true;  // The rest of the stream cannot be understood.
    } else {
      for (const std::string_view word : parser_.arguments()) {
        request->words.emplace_back(word);
        request->word_bytes += word.size() + kWordBytes;
      }
      Classify(request.get());
    }
    held_bytes_ += request->word_bytes + (request->done ? request->reply.size() : 0);
    waiting_.push_back(std::move(request));
  }
}

void Connection::Classify(Request* request) {
  const std::vector<std::string>& words = request->words;
  const auto refuse = [&](const std::string& error) {
    request->writer->Error(error);
    request->begun = request->done = true;
    if (multi_.has_value()) multi_->wrong = true;
  };
  const Command* const command = FindCommand(words[0]);
  if (IsOption(words[0], "POST") || IsOption(words[0], "HOST:")) {  // A web page tries to send commands, as in Redis.
    request->begun = request->done = true;
    closes_ = true;
    return;
  }
  if (command == nullptr) {
    std::string arguments;
    for (size_t i = 1; i < words.size() && arguments.size() < 128; ++i) {
      arguments += fmt::format("'{}' ", std::string_view(words[i]).substr(0, 128 - arguments.size()));
    }
    return refuse(fmt::format("ERR unknown command '{}', with args beginning with: {}",
                              std::string_view(words[0]).substr(0, 128), arguments));
  }
  const auto count = static_cast<int>(words.size());
  if (command->arity >= 0 ? count != command->arity : count < -command->arity) {
    return refuse(fmt::format("ERR wrong number of arguments for '{}' command", command->name));
  }
  if (client_ == nullptr && !command->before_auth) return refuse(std::string(kNoAuth));
  request->command = command;
  if (command->multi != Command::Multi::kPlain || multi_.has_value()) NoteForExec(request);
  if (request->done) request->command = nullptr;
}

void Connection::NoteForExec(Request* request) {
  const Command& command = *request->command;
  const auto reply = [&](std::string_view text) {
    text.starts_with("ERR") ? request->writer->Error(text) : request->writer->Simple(text);
    request->begun = request->done = true;
  };
  const auto refuse = [&](std::string_view error) {
    multi_->wrong = true;
    reply(error);
  };
  switch (command.multi) {
    case Command::Multi::kMulti:
      if (multi_.has_value()) return reply("ERR MULTI calls can not be nested");
      multi_.emplace();
      return reply("OK");
    case Command::Multi::kExec:
      if (!multi_.has_value()) return reply("ERR EXEC without MULTI");
      to_run_.push_back(*std::move(multi_));
      multi_.reset();
      return;
    case Command::Multi::kDiscard:
      if (!multi_.has_value()) return reply("ERR DISCARD without MULTI");
      noted_bytes_ -= multi_->bytes;
      multi_.reset();
      return;
    case Command::Multi::kEnds:
      noted_bytes_ -= multi_.has_value() ? multi_->bytes : 0;
      multi_.reset();
      return;
    case Command::Multi::kNotInside:
      if (multi_.has_value()) reply("ERR WATCH inside MULTI is not allowed");
      return;
    case Command::Multi::kPlain:
      break;
  }
  if (command.within == nullptr) {
    return refuse(fmt::format("ERR '{}' is not possible between MULTI and EXEC here", command.name));
  }
  if (multi_->bytes + request->word_bytes > kMultiBytesMax || multi_->requests.size() == kMultiRequestsMax) {
    return refuse("ERR the transaction has more than 2 MB or 10,000 commands");
  }
  multi_->bytes += request->word_bytes;
  noted_bytes_ += request->word_bytes;
  multi_->requests.push_back(request->words);
  reply("QUEUED");
}

bool Connection::RunsAlone(const Request& request) {
  return request.command->about != nullptr || request.words.size() > kKeysMax;
}

size_t Connection::WeightOf(const Request& request) {
  const size_t arguments = request.words.size() - 1;
  return std::clamp<size_t>(request.command->kind == Command::kOther ? 1 : arguments, 1, kInFlightMax);
}

bool Connection::MayBegin(const Request& request) {
  const size_t weight = WeightOf(request);
  if (shared_->weight > 0 && shared_->weight + weight > kThreadInFlightMax) {
    if (!std::exchange(blocked_, true)) shared_->blocked.push_back(this);
    return false;
  }
  if (in_flight_ == 0) return true;
  if (exclusive_ || weight_ + weight > kInFlightMax || RunsAlone(request)) return false;
  if (held_bytes_ >= kHeldBytesMax) return false;
  if (shared_->totals->buffered_bytes.load(std::memory_order_relaxed) > shared_->totals->buffer_bytes_max) return false;
  const bool writes = request.command->kind != Command::kRead;
  bool free = true;
  ForEachKey(*request.command, request.words, [&](const std::string& key) {
    const KeyUse& use = in_use_[SlotOf(key)];
    free &= use.writers == 0 && !(writes && use.readers > 0);
  });
  return free;
}

void Connection::UseKeys(const Request& request, bool begins) {
  if (RunsAlone(request)) {
    exclusive_ = begins;
    return;
  }
  const bool writes = request.command->kind != Command::kRead;
  ForEachKey(*request.command, request.words, [&](const std::string& key) {
    KeyUse& use = in_use_[SlotOf(key)];
    uint16_t& count = writes ? use.writers : use.readers;
    begins ? ++count : --count;
  });
}

void Connection::BeginAll() {
  for (; begun_ < waiting_.size(); ++begun_) {
    Request* const request = waiting_[begun_].get();
    if (request->begun) continue;
    if (stalled_ || !MayBegin(*request)) return;
    request->begun = true;
    request->writer->set_version(version_);  // HELLO may have changed it since.
    ++in_flight_;
    weight_ += WeightOf(*request);
    shared_->weight += WeightOf(*request);
    UseKeys(*request, true);
    shared_->totals->commands.fetch_add(1, std::memory_order_relaxed);
    request->task.emplace(Run(request));
    request->task->Start();
  }
}

Task<bool> Connection::Run(Request* request) {
  const Command& command = *request->command;
  ReplyWriter* const reply = &*request->writer;
  bool ran = false;
  if (client_ == nullptr && !command.before_auth) {  // RESET came before it.
    reply->Error(kNoAuth);
    ran = true;
    if (command.multi == Command::Multi::kExec) TakeNoted();
  } else if (command.about != nullptr) {
    ran = co_await command.about(this, request->words, reply);
  } else if (command.alone != nullptr) {
    ran = co_await command.alone(client_, request->words, reply);
  }
  if (!ran && command.first_key == command.last_key) {
    co_await RunOnPair(request->words, reply);
  } else if (!ran) {
    std::vector<Words> commands{Words(request->words)};
    std::map<std::string, uint64_t> none;
    co_await Transact(std::move(commands), std::move(none), /*as_array=*/false, reply);
  }
  const Totals& totals = *shared_->totals;
  if (request->reply.size() > kLargeBytes && totals.buffered_bytes.load() + held_bytes_ > totals.buffer_bytes_max) {
    std::string().swap(request->reply);
    reply->Error(kBuffersFull);
  }
  request->done = true;
  held_bytes_ += request->reply.size();
  --in_flight_;
  weight_ -= WeightOf(*request);
  shared_->weight -= WeightOf(*request);
  UseKeys(*request, false);
  if (!advancing_ && !ready_) {
    ready_ = true;
    shared_->ready.push_back(this);
  }
  co_return true;
}

Task<bool> Connection::Pause(int tries, int64_t until_ns) {
  const int64_t now_ns = client_->NowNs();
  if (now_ns >= until_ns) co_return false;
  const int64_t most_ns = kPauseNs << std::min(tries, kPauseDoublings);
  const auto random_ns = static_cast<int64_t>(random_.Below(static_cast<uint64_t>(most_ns / 2)));
  co_await client_->AsyncSleepUntil(now_ns + most_ns / 2 + random_ns);  // Others that pause go on at other moments.
  co_return true;
}

Task<bool> Connection::RunOnPair(Words words, ReplyWriter* reply) {
  const int64_t until_ns = client_->NowNs() + kRetryNs;
  const auto within = FindCommand(words[0])->within;
  co_await shared_->turns.Enter(words[1]);
  for (int tries = 0;; ++tries) {
    if (tries == 0 && client_->NowNs() >= until_ns) {
      WriteError(absl::AbortedError("others change the key all the time, or its server does not answer"), reply);
      break;
    }
    PairSpace space(client_);
    std::string text;
    ReplyWriter writer(&text);
    writer.set_version(reply->version());
    absl::Status status = co_await within(&space, words, &writer);
    if (status.ok()) status = co_await space.Commit();
    if (status.ok()) {
      reply->Raw(text);
      break;
    }
    bool again = absl::IsAborted(status) && !IsMaybeApplied(status);
    if (again) again = co_await Pause(std::min(tries, kTurnDoublings), until_ns);
    if (!again) {
      WriteError(status, reply);
      break;
    }
  }
  shared_->turns.Leave(words[1]);
  co_return true;
}

Task<absl::Status> Connection::CheckWatched(const std::map<std::string, uint64_t>* watched, Transaction* transaction) {
  for (const auto& [key, stamp] : *watched) {
    const absl::StatusOr<std::optional<std::string>> read = co_await transaction->AsyncGet(key);
    if (!read.ok()) co_return read.status();
    // No stamp is used again: if the pair still has this one, it had it when the transaction read it.
    const absl::StatusOr<std::optional<StampedValue>> now = co_await client_->AsyncGetWithStamp(key);
    if (!now.ok()) co_return now.status();
    if ((now->has_value() ? (*now)->stamp : 0) != stamp || read->has_value() != (stamp != 0)) {
      co_return absl::AbortedError("a watched key has changed");
    }
  }
  co_return absl::OkStatus();
}

Task<bool> Connection::Transact(std::vector<Words> commands, std::map<std::string, uint64_t> watched, bool as_array,
                                ReplyWriter* reply) {
  const bool once = !watched.empty();
  const int64_t until_ns = client_->NowNs() + kRetryNs;
  for (int tries = 0;; ++tries) {
    Transaction transaction = client_->Begin();
    TransactionSpace space(client_, &transaction);
    std::string replies;
    ReplyWriter writer(&replies);
    writer.set_version(reply->version());
    if (as_array) writer.Array(commands.size());
    absl::Status status = co_await CheckWatched(&watched, &transaction);
    for (size_t i = 0; status.ok() && i < commands.size(); ++i) {
      status = co_await FindCommand(commands[i][0])->within(&space, commands[i], &writer);
      if (replies.size() > kReplyBytesMax) status = absl::InvalidArgumentError("the replies have more than 64 MB");
    }
    if (status.ok()) status = co_await space.Commit();
    if (status.ok()) {
      reply->Raw(replies);
      co_return true;
    }
    bool again = absl::IsAborted(status) && !IsMaybeApplied(status);
    if (again && once) {
      reply->NullArray();
      co_return true;
    }
    if (again) again = co_await Pause(tries, until_ns);
    if (!again) {
      WriteError(status, reply);
      co_return true;
    }
  }
}

Task<bool> Connection::Watch(Words keys, ReplyWriter* reply) {
  for (const std::string& key : keys) {
    if (watched_.contains(key)) continue;  // The first look counts.
    absl::StatusOr<std::optional<StampedValue>> found = absl::ResourceExhaustedError("too many keys are watched");
    if (watched_.size() < kWatchedMax) found = co_await client_->AsyncGetWithStamp(key);
    if (!found.ok()) {
      watch_failed_ = true;
      WriteError(found.status(), reply);
      co_return true;
    }
    watched_.emplace(key, found->has_value() ? (*found)->stamp : 0);
  }
  reply->Simple("OK");
  co_return true;
}

Multi Connection::TakeNoted() {
  Multi multi = std::move(to_run_.front());
  to_run_.pop_front();
  noted_bytes_ -= multi.bytes;
  return multi;
}

Task<bool> Connection::Exec(ReplyWriter* reply) {
  const Multi multi = TakeNoted();
  std::map<std::string, uint64_t> watched;
  watched.swap(watched_);
  const bool watch_failed = std::exchange(watch_failed_, false);
  if (multi.wrong) {
    reply->Error("EXECABORT Transaction discarded because of previous errors.");
    co_return true;
  }
  if (watch_failed) {
    reply->NullArray();
    co_return true;
  }
  std::vector<Words> commands(multi.requests.begin(), multi.requests.end());
  co_return co_await Transact(std::move(commands), std::move(watched), /*as_array=*/true, reply);
}

}  // namespace cell::gateway

// Space is what the commands of Redis read and write: pairs of the tree, each a string or a hash (hash_record.h), with
// an expiry. What a command has read must not have changed when its writes take effect.
//
//   PairSpace         for a command with one key: one conditional write, by the stamp of what was read
//   TransactionSpace  for several keys, and for MULTI: a transaction of Cell
//
// Not thread-safe. Keys and values that are passed must live until the space has ended.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cell/base/task.h"
#include "cell/client/client.h"
#include "cell/client/transaction.h"

namespace cell::gateway {

inline constexpr int64_t kNeverExpires = INT64_MAX;

// Returns nanoseconds since the Unix epoch, by this machine's clock.
int64_t UnixNs();

// When a pair expires.
class Expiry {
 public:
  static Expiry Never() { return {false, kNeverExpires}; }
  // So long after its server has taken the pair.
  static Expiry After(int64_t ns) { return {false, ns}; }
  // At this moment since the Unix epoch, by its server's clock.
  static Expiry At(int64_t unix_ns) { return {true, unix_ns}; }

  bool never() const { return ns_ == kNeverExpires; }
  // Returns how long it is from now on; 0 or less: it has passed. If it is a moment, that is by this machine's clock.
  int64_t LeftNs() const { return moment_ ? ns_ - UnixNs() : ns_; }
  Expires expires() const;

 private:
  Expiry(bool moment, int64_t ns) : moment_(moment), ns_(ns) {}
  bool moment_;
  int64_t ns_;
};

class Space {
 public:
  struct Found {
    std::optional<std::string> value = {};
    Expiry expiry = Expiry::Never();
  };

  virtual ~Space() = default;
  // Return Aborted if the command must begin again.
  virtual Task<absl::StatusOr<std::optional<std::string>>> Get(std::string_view key) = 0;
  // Reads a pair with its expiry, for a command that keeps it.
  Task<absl::StatusOr<Found>> Read(std::string_view key);
  // Returns the nanoseconds until a pair that was found expires.
  Task<absl::StatusOr<int64_t>> LeftNs(std::string_view key);
  // Notes a write. Returns an error that the command is to reply with if the pair cannot be stored; then it changes
  // nothing.
  absl::Status Put(std::string_view key, std::string_view value, Expiry expiry);
  void Delete(std::string_view key);
  // Writes. Returns Aborted if something that was read has changed: nothing was written.
  virtual Task<absl::Status> Commit() = 0;

 protected:
  explicit Space(Client* client) : client_(client) {}
  virtual absl::Status NotePut(std::string_view key, std::string_view value, Expiry expiry) = 0;
  virtual void NoteDelete(std::string_view key) = 0;

  Client* const client_;

 private:
  std::map<std::string, Expiry, std::less<>> put_;  // Keys that were put here.
};

class PairSpace : public Space {
 public:
  // `client` must outlive it.
  explicit PairSpace(Client* client) : Space(client) {}
  Task<absl::StatusOr<std::optional<std::string>>> Get(std::string_view key) override;
  Task<absl::Status> Commit() override;

 private:
  absl::Status NotePut(std::string_view key, std::string_view value, Expiry expiry) override;
  void NoteDelete(std::string_view key) override;

  bool read_ = false, written_ = false;
  std::string key_;
  std::optional<StampedValue> found_;  // The pair that was read.
  std::optional<std::string> value_;   // The value to write; nullopt: the key is deleted.
  Expires expires_ = Expires::Never();
};

class TransactionSpace : public Space {
 public:
  // Both must outlive it.
  TransactionSpace(Client* client, Transaction* transaction) : Space(client), transaction_(transaction) {}
  Task<absl::StatusOr<std::optional<std::string>>> Get(std::string_view key) override;
  Task<absl::Status> Commit() override;

 private:
  absl::Status NotePut(std::string_view key, std::string_view value, Expiry expiry) override;
  void NoteDelete(std::string_view key) override;

  Transaction* const transaction_;
  size_t bytes_ = 0, writes_ = 0;  // Noted.
};

}  // namespace cell::gateway

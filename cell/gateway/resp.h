// The wire format of Redis (RESP2 and RESP3): parses what clients send, and writes replies. Pure; not thread-safe.
//
// A request is an array of bulk strings,
//
//   *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n
//
// or a line of words, as people type it into telnet ("inline"). Clients may send anything: sizes are checked before
// memory is reserved by them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace cell::gateway {

// Limits of a request, those of Redis unless smaller ones do here.
inline constexpr size_t kArgumentsMax = 1 << 16;           // Redis: 1M.
inline constexpr size_t kArgumentBytesMax = 2 << 20;       // Larger than any value. Redis: 512 MB.
inline constexpr size_t kRequestBytesMax = 16 << 20;       // All arguments together. Redis: 1 GB.
inline constexpr size_t kInlineBytesMax = 64 << 10;        // As Redis.
inline constexpr size_t kArgumentsBeforeAuth = 10;         // As Redis: what a stranger can make us keep.
inline constexpr size_t kArgumentBytesBeforeAuth = 16384;  // As Redis.

// Parses a stream of requests. Feed it what arrives; it keeps what is not complete.
class RequestParser {
 public:
  enum class Outcome {
    kRequest,     // `arguments()` is the next one. May be empty: an empty line or array, which has no reply.
    kIncomplete,  // More bytes are needed.
    kError,       // `error()` says why. The connection cannot go on.
  };

  // Appends bytes that have arrived.
  void Feed(std::string_view bytes);
  // Takes the next request out of what was fed.
  Outcome Next();

  // Valid until the next call of Feed or Next.
  absl::Span<const std::string_view> arguments() const { return arguments_; }
  // A text such as "Protocol error: invalid multibulk length".
  const std::string& error() const { return error_; }
  // Bytes that were fed and not taken out yet.
  size_t buffered() const { return buffer_.size() - begin_; }
  // Memory that it holds for bytes that were fed.
  size_t capacity() const { return buffer_.capacity(); }
  // Whether the client has proved who it is. If not, requests are limited more tightly.
  void set_trusted(bool trusted) { trusted_ = trusted; }

 private:
  Outcome Fail(std::string error);
  Outcome NextInline();
  // Parses a line "TYPE number\r\n" at `*at`, and moves `*at` behind it.
  enum class Line { kNumber, kIncomplete, kWrong };
  Line ParseNumber(size_t* at, int64_t* number) const;

  std::string buffer_;
  size_t begin_ = 0;  // Where the next request begins.
  // The state of a request that is not whole, so that it is not parsed from its beginning for every packet.
  int64_t left_ = -1;  // Arguments to come; -1: its first line has not come.
  size_t at_ = 0;      // Where the next argument begins.
  size_t bytes_ = 0;   // The size of its arguments.
  struct Range {
    size_t begin, bytes;
  };
  std::vector<Range> ranges_;  // Its arguments, in the buffer.
  std::vector<std::string_view> arguments_;
  std::string error_;
  bool trusted_ = true;
};

// Appends replies to a buffer, in the protocol's version that the client has asked for.
class ReplyWriter {
 public:
  explicit ReplyWriter(std::string* out) : out_(out) {}
  // 2 or 3.
  void set_version(int version) { version_ = version; }
  int version() const { return version_; }

  void Raw(std::string_view replies) { out_->append(replies); }  // Appends replies that were written before.
  void Simple(std::string_view text);                            // "+OK".
  // `text` begins with a code, such as "ERR" or "WRONGTYPE". Line ends in it become blanks.
  void Error(std::string_view text);
  void Integer(int64_t number);
  void Bulk(std::string_view bytes);
  void Null();       // No such value.
  void NullArray();  // No such array: of a transaction that was not run.
  // Begin an aggregate. That many replies follow, for a map that many pairs. RESP2 has arrays instead of maps and sets.
  void Array(size_t size);
  void Map(size_t pairs);
  void Set(size_t size);

 private:
  void Header(char type, int64_t number);

  std::string* const out_;
  int version_ = 2;
};

}  // namespace cell::gateway

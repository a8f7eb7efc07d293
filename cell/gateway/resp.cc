#include "cell/gateway/resp.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "fmt/format.h"

namespace cell::gateway {
namespace {

constexpr size_t kCompactBytes = 64 << 10;  // The buffer's parsed bytes are removed once they are that many.
constexpr size_t kKeptBytes = 256 << 10;    // An empty buffer keeps at most that much memory.
constexpr size_t kNumberBytesMax = 32;      // The longest line with a number.

// Splits an inline request into words, as a shell does: "..." with \n, \r, \t, \b, \a, \xHH and \", and '...' with \'.
// Returns false if a quotation mark is not closed.
bool SplitInline(std::string_view line, std::vector<std::string>* words) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0'; };
  size_t i = 0;
  while (true) {
    while (i < line.size() && blank(line[i])) ++i;
    if (i == line.size()) return true;
    std::string word;
    while (i < line.size() && !blank(line[i])) {
      const char quote = line[i];
      if (quote != '"' && quote != '\'') {
        word += line[i++];
        continue;
      }
      for (++i;; ++i) {
        if (i >= line.size()) return false;
        if (line[i] == quote) break;
        if (line[i] != '\\' || i + 1 == line.size()) {
          word += line[i];
          continue;
        }
        const char next = line[++i];
        if (quote == '\'') {
          if (next != '\'') word += '\\';
          word += next;
          continue;
        }
        if (next == 'x' && i + 2 < line.size() && hex(line[i + 1]) >= 0 && hex(line[i + 2]) >= 0) {
          word += static_cast<char>(hex(line[i + 1]) * 16 + hex(line[i + 2]));
          i += 2;
          continue;
        }
        constexpr std::string_view kNames = "nrtba", kMeant = "\n\r\t\b\a";
        const size_t known = kNames.find(next);
        word += known == std::string_view::npos ? next : kMeant[known];
      }
      ++i;
      if (i < line.size() && !blank(line[i])) return false;
    }
    words->push_back(std::move(word));
  }
}

}  // namespace

void RequestParser::Feed(std::string_view bytes) {
  arguments_.clear();  // They point into the buffer.
  if (begin_ > 0 && (begin_ == buffer_.size() || begin_ >= kCompactBytes)) {
    buffer_.erase(0, begin_);
    at_ -= std::min(at_, begin_);
    for (Range& range : ranges_) range.begin -= begin_;
    begin_ = 0;
  }
  buffer_.append(bytes);
}

RequestParser::Outcome RequestParser::Fail(std::string error) {
  error_ = std::move(error);
  return Outcome::kError;
}

RequestParser::Line RequestParser::ParseNumber(size_t* at, int64_t* number) const {
  const size_t from = *at + 1;
  const size_t end = buffer_.find('\r', from);
  if (end == std::string::npos) return buffer_.size() - from > kNumberBytesMax ? Line::kWrong : Line::kIncomplete;
  if (end - from > kNumberBytesMax) return Line::kWrong;
  if (end + 1 >= buffer_.size()) return Line::kIncomplete;
  const char* const last = buffer_.data() + end;
  const auto [stop, wrong] = std::from_chars(buffer_.data() + from, last, *number);
  if (wrong != std::errc() || stop != last || buffer_[end + 1] != '\n') return Line::kWrong;
  *at = end + 2;
  return Line::kNumber;
}

RequestParser::Outcome RequestParser::Next() {
  arguments_.clear();
  if (!error_.empty()) return Outcome::kError;
  if (begin_ == buffer_.size()) {
    if (buffer_.capacity() > kKeptBytes && left_ < 0) {
      std::string().swap(buffer_);
      begin_ = 0;
    }
    return Outcome::kIncomplete;
  }
  if (left_ < 0) {
    if (buffer_[begin_] != '*') return NextInline();
    at_ = begin_;
    int64_t count = 0;
    switch (ParseNumber(&at_, &count)) {
      case Line::kIncomplete:
        return Outcome::kIncomplete;
      case Line::kWrong:
        return Fail("Protocol error: invalid multibulk length");
      case Line::kNumber:
        break;
    }
    if (!trusted_ && count > static_cast<int64_t>(kArgumentsBeforeAuth)) {
      return Fail("Protocol error: unauthenticated multibulk length");
    }
    if (count > static_cast<int64_t>(kArgumentsMax)) return Fail("Protocol error: invalid multibulk length");
    left_ = std::max<int64_t>(count, 0);
    bytes_ = 0;
    ranges_.clear();
  }
  while (left_ > 0) {
    if (at_ >= buffer_.size()) return Outcome::kIncomplete;
    if (buffer_[at_] != '$') return Fail(fmt::format("Protocol error: expected '$', got '{}'", buffer_[at_]));
    size_t at = at_;
    int64_t bytes = 0;
    switch (ParseNumber(&at, &bytes)) {
      case Line::kIncomplete:
        return Outcome::kIncomplete;
      case Line::kWrong:
        return Fail("Protocol error: invalid bulk length");
      case Line::kNumber:
        break;
    }
    if (!trusted_ && bytes > static_cast<int64_t>(kArgumentBytesBeforeAuth)) {
      return Fail("Protocol error: unauthenticated bulk length");
    }
    if (bytes < 0 || bytes > static_cast<int64_t>(kArgumentBytesMax) ||
        bytes_ + static_cast<size_t>(bytes) > kRequestBytesMax) {
      return Fail("Protocol error: invalid bulk length");
    }
    const auto size = static_cast<size_t>(bytes);
    if (buffer_.size() - at < size + 2) return Outcome::kIncomplete;
    if (buffer_[at + size] != '\r' || buffer_[at + size + 1] != '\n') {
      return Fail("Protocol error: an argument does not end with \\r\\n");
    }
    ranges_.push_back({at, size});
    bytes_ += size;
    at_ = at + size + 2;
    --left_;
  }
  for (const Range& range : ranges_) arguments_.emplace_back(buffer_.data() + range.begin, range.bytes);
  begin_ = at_;
  ranges_.clear();
  left_ = -1;
  return Outcome::kRequest;
}

RequestParser::Outcome RequestParser::NextInline() {
  const size_t end = buffer_.find('\n', begin_);
  if (end == std::string::npos) {
    return buffered() > kInlineBytesMax ? Fail("Protocol error: too big inline request") : Outcome::kIncomplete;
  }
  if (end - begin_ > kInlineBytesMax) return Fail("Protocol error: too big inline request");
  std::vector<std::string> words;
  if (!SplitInline(std::string_view(buffer_).substr(begin_, end - begin_), &words)) {
    return Fail("Protocol error: unbalanced quotes in request");
  }
  // The words are written over the line, which is not shorter than they are.
  size_t at = begin_;
  for (const std::string& word : words) {
    std::copy(word.begin(), word.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(at));
    arguments_.emplace_back(buffer_.data() + at, word.size());
    at += word.size();
  }
  begin_ = end + 1;
  return Outcome::kRequest;
}

void ReplyWriter::Header(char type, int64_t number) {
  char text[24];
  text[0] = type;
  char* end = std::to_chars(text + 1, text + sizeof(text) - 2, number).ptr;
  *end++ = '\r';
  *end++ = '\n';
  out_->append(text, static_cast<size_t>(end - text));
}

void ReplyWriter::Simple(std::string_view text) { out_->append("+").append(text).append("\r\n"); }

void ReplyWriter::Error(std::string_view text) {
  const size_t from = out_->size();
  out_->append("-").append(text);
  std::replace_if(
      out_->begin() + static_cast<std::ptrdiff_t>(from), out_->end(), [](char c) { return c == '\r' || c == '\n'; },
      ' ');
  out_->append("\r\n");
}

void ReplyWriter::Integer(int64_t number) { Header(':', number); }

void ReplyWriter::Bulk(std::string_view bytes) {
  Header('$', static_cast<int64_t>(bytes.size()));
  out_->append(bytes).append("\r\n");
}

void ReplyWriter::Null() { out_->append(version_ >= 3 ? "_\r\n" : "$-1\r\n"); }
void ReplyWriter::NullArray() { out_->append(version_ >= 3 ? "_\r\n" : "*-1\r\n"); }

void ReplyWriter::Array(size_t size) { Header('*', static_cast<int64_t>(size)); }
void ReplyWriter::Map(size_t pairs) {
  Header(version_ >= 3 ? '%' : '*', static_cast<int64_t>(version_ >= 3 ? pairs : pairs * 2));
}
void ReplyWriter::Set(size_t size) { Header(version_ >= 3 ? '~' : '*', static_cast<int64_t>(size)); }

}  // namespace cell::gateway

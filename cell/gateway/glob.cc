#include "cell/gateway/glob.h"

#include <cstddef>
#include <utility>

namespace cell::gateway {
namespace {

// Matches one byte with the element of the pattern at `*at`, which is not *, and moves `*at` behind the element.
bool MatchesOne(std::string_view pattern, size_t* at, char byte) {
  const auto unsigned_of = [](char c) { return static_cast<unsigned char>(c); };
  const char first = pattern[(*at)++];
  if (first == '?') return true;
  if (first == '\\' && *at < pattern.size()) return pattern[(*at)++] == byte;
  if (first != '[') return first == byte;
  const bool inverted = *at < pattern.size() && pattern[*at] == '^';
  if (inverted) ++*at;
  bool found = false;
  while (*at < pattern.size() && pattern[*at] != ']') {  // As in Redis, a set that is not closed ends with the pattern.
    if (pattern[*at] == '\\' && *at + 1 < pattern.size()) {
      found |= pattern[*at + 1] == byte;
      *at += 2;
    } else if (*at + 2 < pattern.size() && pattern[*at + 1] == '-') {
      unsigned char low = unsigned_of(pattern[*at]), high = unsigned_of(pattern[*at + 2]);
      if (low > high) std::swap(low, high);
      found |= low <= unsigned_of(byte) && unsigned_of(byte) <= high;
      *at += 3;
    } else {
      found |= pattern[(*at)++] == byte;
    }
  }
  if (*at < pattern.size()) ++*at;
  return found != inverted;
}

}  // namespace

bool MatchesGlob(std::string_view pattern, std::string_view text) {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0, i = 0;
  size_t star = kNone, star_text = 0;  // The last *, and where the bytes that it stands for end.
  while (i < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      star_text = i;
      continue;
    }
    if (at < pattern.size()) {
      size_t next = at;
      if (MatchesOne(pattern, &next, text[i])) {
        at = next;
        ++i;
        continue;
      }
    }
    if (star == kNone) return false;
    at = star;
    i = ++star_text;
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

std::string GlobPrefix(std::string_view pattern) {
  std::string prefix;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*' || c == '?' || c == '[') break;
    if (c == '\\' && i + 1 < pattern.size()) ++i;
    prefix += pattern[i];
  }
  return prefix;
}

}  // namespace cell::gateway

// libFuzzer: parses any bytes as a line for `cellctl load`. It is refused, or gives the same pair when it is written
// again as text and as JSON.
#include <cstdlib>
#include <string>

#include "tools/pair_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cell;
  const std::string line(reinterpret_cast<const char*>(data), size);
  (void)IsPrintable(line);
  (void)ParsePair(line, true);
  const auto pair = ParsePair(line, false);
  if (!pair.ok()) return 0;
  const std::string text = EscapeText(pair->first) + "\t" + EscapeText(pair->second);
  const std::string json =
      nlohmann::json{{"key", BytesAsJson(pair->first)}, {"value", BytesAsJson(pair->second)}}.dump();
  if (!IsPrintable(text) || !IsPrintable(json)) std::abort();
  for (const std::string& again : {text, json}) {
    const auto parsed = ParsePair(again, false);
    // A line of text has a key, because a leading tab is refused.
    if (pair->first.empty() && again == text) continue;
    if (!parsed.ok() || *parsed != *pair) std::abort();
  }
  return 0;
}

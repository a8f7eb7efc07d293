// Scripted tests with golden output, in the manner of etcd raft's testdata: a text file has commands, each followed by
// what it printed. A test reads as a story, and a change of behaviour shows as a change of text.
//
//   # A comment.
//   move 1 epoch=1 to=b.0
//   ----
//   ok
//
// A command is one line: a name and arguments, separated by spaces. Its output is what follows the line of dashes, up
// to an empty line. With CELL_REWRITE_SCENARIOS=1 in its environment, a test writes the outputs it gets into the file
// instead of comparing; run its program from the top of the tree then, and read the difference.
//
// For tests alone. Not thread-safe.
#pragma once

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace cell {

struct ScenarioCommand {
  std::string name;
  std::vector<std::string> words;            // Arguments without a name, in their order.
  std::map<std::string, std::string> named;  // Arguments of the form NAME=VALUE.

  // Returns a word as a number. 0 if there is no such word.
  uint32_t Number(size_t i) const {
    return i < words.size() ? static_cast<uint32_t>(std::strtoul(words[i].c_str(), nullptr, 10)) : 0;
  }
  uint32_t Number(const std::string& argument) const {
    const auto it = named.find(argument);
    return it == named.end() ? 0 : static_cast<uint32_t>(std::strtoul(it->second.c_str(), nullptr, 10));
  }
};

// Runs the commands of the file at `path` and returns what differs from it, a paragraph for each command; empty if
// nothing does. `run` returns a command's output, one or more lines without an empty one.
inline std::string RunScenario(const std::string& path, const std::function<std::string(const ScenarioCommand&)>& run) {
  std::ifstream file(path);
  if (!file) return "cannot read " + path;
  std::string line, written, difference;
  int commands = 0;
  while (std::getline(file, line)) {
    written += line + "\n";
    if (line.empty() || line[0] == '#') continue;
    ScenarioCommand command;
    std::istringstream words(line);
    words >> command.name;
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        command.words.push_back(word);
      } else {
        command.named[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
    const std::string asked = line;
    std::string expected;
    if (file.peek() == '-') {
      std::getline(file, line);
      while (std::getline(file, line) && !line.empty()) expected += line + "\n";
    }
    ++commands;
    std::string got = run(command);
    if (got.empty() || got.back() != '\n') got += '\n';
    if (got != expected) difference += path + ": " + asked + "\nexpected:\n" + expected + "got:\n" + got;
    written += "----\n" + got + "\n";
  }
  if (commands == 0) return path + " has no command";
  const char* const rewrite = std::getenv("CELL_REWRITE_SCENARIOS");
  if (rewrite == nullptr || std::string(rewrite) != "1") return difference;
  while (written.size() > 1 && written.ends_with("\n\n")) written.pop_back();
  std::ofstream(path, std::ios::trunc) << written;
  return "";
}

}  // namespace cell

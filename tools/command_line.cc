#include "tools/command_line.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <numeric>
#include <utility>

#include "fmt/format.h"

namespace cell {
namespace {

// Returns the Levenshtein distance.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, diagonal + 1, changed});
    }
  }
  return row.back();
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!sub->get_name().empty()) names.push_back(sub->get_name());  // Groups of flags have none.
  }
  return names;
}

// Returns the flags of a command and of its parents.
std::vector<std::string> FlagsOf(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
      for (const std::string& name : option->get_fnames()) names.push_back("--" + name);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Returns the innermost command that was named.
const CLI::App* Named(const CLI::App& app) {
  const CLI::App* at = &app;
  for (auto subs = at->get_subcommands(); !subs.empty(); subs = at->get_subcommands()) at = subs.back();
  return at;
}

std::string Meant(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? std::string() : fmt::format(": did you mean {}?", nearest);
}

const CLI::App* CommandNamed(const CLI::App& app, const std::string& name) {
  const auto subs = app.get_subcommands([&name](const CLI::App* sub) { return sub->get_name() == name; });
  return subs.empty() ? nullptr : subs.front();
}

const CLI::Option* FlagNamed(const CLI::App* app, const std::string& word) {
  for (; app != nullptr; app = app->get_parent()) {
    if (const CLI::Option* option = app->get_option_no_throw(word)) return option;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitWords(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && std::isspace(static_cast<unsigned char>(c))) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && i + 1 < line.size() &&
               (quote == 0 || (quote == '"' && (line[i + 1] == '"' || line[i + 1] == '\\')))) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return absl::InvalidArgumentError(fmt::format("a quotation mark ({}) is not closed", quote));
  return words;
}

std::string Nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t least = SIZE_MAX;
  const size_t most = std::max<size_t>(1, word.size() / 3);
  for (const std::string& one : known) {
    size_t distance = EditDistance(word, one);
    const size_t common = std::min(word.size(), one.size());
    if (common >= 3 && word.substr(0, common) == std::string_view(one).substr(0, common)) distance = 1;
    if (distance > most || distance >= least) continue;
    least = distance;
    nearest = one;
  }
  return nearest;
}

std::string ParseMessage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* const at = Named(app);
  const std::string command = at == &app ? "" : at->get_name() + ": ";
  const std::vector<std::string> left = app.remaining(true);
  const bool extra = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (!left.empty() && (extra || error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))) {
    const std::string& word = left.front();
    if (word.size() > 1 && word[0] == '-') {
      const std::string flag = word.substr(0, word.find('='));
      return fmt::format("{}there is no flag {}{}", command, flag, Meant(flag, FlagsOf(at)));
    }
    if (const std::vector<std::string> commands = CommandsOf(*at); !commands.empty()) {
      return fmt::format("{}there is no command \"{}\"{}", command, word, Meant(word, commands));
    }
    if (extra) return fmt::format("{}unexpected argument \"{}\"", command, word);
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return command + message;
}

int EndOfParse(const char* program, const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::string message;
  for (const char c : ParseMessage(app, error)) {  // It has words that the user may have copied from anywhere.
    message += std::iscntrl(static_cast<unsigned char>(c)) == 0
                   ? std::string(1, c)
                   : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  std::fputs(fmt::format("{}: {}\n", program, message).c_str(), stderr);
  return 2;
}

std::vector<std::string> Completions(const CLI::App& app, const std::vector<std::string>& words,
                                     const std::function<std::vector<std::string>(std::string_view name)>& values) {
  const CLI::App* at = &app;
  const CLI::Option* flag = nullptr;  // The flag whose value is next.
  size_t arguments = 0;               // Number of arguments of the command so far.
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (flag != nullptr) {
      flag = nullptr;
    } else if (word.size() > 1 && word[0] == '-') {
      const CLI::Option* named = FlagNamed(at, word);
      if (named != nullptr && named->get_expected_min() > 0) flag = named;
    } else if (const CLI::App* sub = CommandNamed(*at, word); sub != nullptr) {
      at = sub;
      arguments = 0;
    } else {
      ++arguments;
    }
  }
  const std::string& begun = words.back();
  std::vector<std::string> all;
  if (flag != nullptr) {
    all = values(flag->get_lnames().empty() ? "" : flag->get_lnames().front());
  } else if (!begun.empty() && begun[0] == '-') {
    all = FlagsOf(at);
  } else if (all = CommandsOf(*at); all.empty()) {
    for (const CLI::Option* option : at->get_options()) {
      if (!option->get_positional() || arguments-- != 0) continue;
      all = values(option->get_name(true));
      break;
    }
  }
  std::erase_if(all, [&begun](const std::string& one) { return !one.starts_with(begun); });
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace cell

// cellctl: the prompt.
#include "tools/cellctl_prompt.h"

#include <histedit.h>
#include <langinfo.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <vector>

#include "fmt/format.h"
#include "tools/command_line.h"

namespace cell {
namespace {

// The declarations for one line.
struct Line {
  Line(const CtlFlags& given) : flags(given) {
    flags.prompt = true;
    app.fallthrough();
    AddOutputFlag(&app, &flags);
    Declare(&app, &flags, &command);
  }

  CtlFlags flags;
  Command command;
  CLI::App app{"", "cell>"};
};

int RunLine(Client* client, const CtlFlags& given, const std::string& text) {
  absl::StatusOr<std::vector<std::string>> words = SplitWords(text);
  if (!words.ok()) return Fail(words.status());
  if (words->front() == "help") {
    words->erase(words->begin());
    words->emplace_back("--help");
  }
  std::reverse(words->begin(), words->end());  // CLI11 expects this order.
  Line line(given);
  try {
    line.app.parse(*std::move(words));
  } catch (const CLI::ParseError& error) {
    return EndOfParse("cellctl", line.app, error);
  }
  return line.command ? RunCommand(line.command, client, line.flags) : kError;
}

volatile std::sig_atomic_t interrupted = 0;

// Makes SIGINT interrupt the reading of a line, instead of ending the program, during this object's lifetime.
class InterruptsReading {
 public:
  InterruptsReading() {
    interrupted = 0;
    struct sigaction action {};  // Without SA_RESTART.
    action.sa_handler = [](int) { interrupted = 1; };
    ::sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  }
  InterruptsReading(const InterruptsReading&) = delete;
  InterruptsReading& operator=(const InterruptsReading&) = delete;
  ~InterruptsReading() { ::sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// Reads lines from a terminal.
class Editor {
 public:
  Editor(Client* client, const CtlFlags& given) : client_(client), given_(given) {
    // The editor drops characters that the locale does not have; keys and values are UTF-8 in any locale.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = el_init("cellctl", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    el_set(
        edit_, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("cell> "); });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, ::history, history_);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_ADDFN, "complete", "Complete the word", &Editor::OnTab);
    el_set(edit_, EL_BIND, "^I", "complete", nullptr);
    if (const char* home = std::getenv("HOME")) file_ = std::string(home) + "/.cellctl_history";
    if (!file_.empty()) history(history_, &event, H_LOAD, file_.c_str());
  }
  ~Editor() {
    HistEvent event;
    if (!file_.empty()) history(history_, &event, H_SAVE, file_.c_str());
    history_end(history_);
    el_end(edit_);
  }

  // Reads the next line. Returns false if the user ends the input, with Ctrl-D, or with Ctrl-C on an empty line after
  // another Ctrl-C.
  bool Next(std::string* line) {
    const InterruptsReading interrupts;
    int bytes = 0;
    const char* text = el_gets(edit_, &bytes);
    for (bool again = false; text == nullptr && bytes < 0 && interrupted != 0; again = true) {
      interrupted = 0;
      const LineInfo* const info = el_line(edit_);
      const bool empty = info->lastchar == info->buffer;
      el_reset(edit_);
      fmt::print("^C{}", !empty || again ? "" : "  (press Ctrl-C again or Ctrl-D to exit)");
      if (empty && again) break;
      fmt::print("\n");
      std::fflush(stdout);
      bytes = -1;
      text = interrupted == 0 ? el_gets(edit_, &bytes) : nullptr;  // The next one may have come already.
    }
    if (text == nullptr || bytes <= 0) {
      fmt::print("\n");
      return false;
    }
    *line = text;
    HistEvent event;
    if (line->find_first_not_of(" \t\r\n") != std::string::npos) history(history_, &event, H_ENTER, text);
    return true;
  }

 private:
  static unsigned char OnTab(EditLine* edit, int) {
    Editor* editor = nullptr;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor->Complete();
  }

  unsigned char Complete() {
    const LineInfo* const info = el_line(edit_);
    const std::string_view before(info->buffer, static_cast<size_t>(info->cursor - info->buffer));
    absl::StatusOr<std::vector<std::string>> words = SplitWords(before);
    if (!words.ok()) return CC_ERROR;
    if (before.empty() || before.back() == ' ') words->emplace_back();
    Line line(given_);
    const auto values = [this](std::string_view name) { return Values(name); };
    const std::vector<std::string> all = Completions(line.app, *words, values);
    if (all.empty()) return CC_ERROR;
    std::string common = all.front();
    for (const std::string& one : all) {
      const auto end = std::mismatch(common.begin(), common.end(), one.begin(), one.end()).first;
      common.erase(end, common.end());
    }
    if (all.size() == 1) common += " ";
    if (common.size() > words->back().size()) {
      el_insertstr(edit_, common.c_str() + words->back().size());
      return CC_REFRESH;
    }
    fmt::print("\n{}\n", fmt::join(all, "  "));
    std::fflush(stdout);
    return CC_REDISPLAY;
  }

  std::vector<std::string> Values(std::string_view name) {
    std::vector<std::string> values;
    if (name == "server") {
      for (const auto& server : client_->Servers()) values.push_back(server.name);
    } else if (name == "table") {
      for (const auto& table : client_->Tables()) values.push_back(table.name);
    } else if (name == "output") {
      values = {"text", "json"};
    }
    return values;
  }

  Client* const client_;
  const CtlFlags& given_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string file_;
};

}  // namespace

int RunPrompt(Client* client, const CtlFlags& given) {
  std::unique_ptr<Editor> editor;
  if (::isatty(STDIN_FILENO) != 0) {
    editor = std::make_unique<Editor>(client, given);
    std::string names;
    const Line line(given);
    for (const CLI::App* sub : line.app.get_subcommands([](const CLI::App*) { return true; })) {
      names += " " + sub->get_name();
    }
    fmt::print("Commands:{}\nhelp [COMMAND], exit; Tab completes words, Ctrl-C discards the line, Ctrl-D exits.\n",
               names);
  }
  int last = kDone;
  for (std::string text; editor != nullptr ? editor->Next(&text) : static_cast<bool>(std::getline(std::cin, text));) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
    if (text.find_first_not_of(" \t") == std::string::npos) continue;
    if (text == "exit" || text == "quit") break;
    last = RunLine(client, given, text);
    std::fflush(stdout);
  }
  return last;
}

}  // namespace cell

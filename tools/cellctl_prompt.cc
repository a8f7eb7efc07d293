// cellctl: the prompt.
#include "tools/cellctl_prompt.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
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

// Makes SIGINT interrupt the reading of a line, instead of ending the program, during this object's lifetime.
class InterruptsReading {
 public:
  InterruptsReading() {
    if (event_ < 0) event_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    Take();
    struct sigaction action {};
    action.sa_handler = [](int) {
      const int error = errno;
      ::eventfd_write(event_, 1);
      errno = error;
    };
    action.sa_flags = SA_RESTART;  // Writing the prompt must not fail.
    ::sigaction(SIGINT, nullptr, &before_);
    // Without a descriptor an interrupt ends the program.
    if (before_.sa_handler != SIG_IGN && event_ >= 0) ::sigaction(SIGINT, &action, nullptr);
  }
  InterruptsReading(const InterruptsReading&) = delete;
  InterruptsReading& operator=(const InterruptsReading&) = delete;
  ~InterruptsReading() { ::sigaction(SIGINT, &before_, nullptr); }

  // Waits for input or an interrupt. Returns false, and leaves the interrupt, if there is one.
  static bool Wait() {
    std::array<pollfd, 2> ready{{{STDIN_FILENO, POLLIN, 0}, {event_, POLLIN, 0}}};
    while (::poll(ready.data(), ready.size(), -1) < 0 && errno == EINTR) {
    }
    // Its handler may have run just now: what was typed before and behind it is there at the same time.
    return ::poll(&ready[1], 1, 0) <= 0;
  }

  // Returns whether there were interrupts since the last call, or since the object was made.
  static bool Take() {
    eventfd_t count = 0;
    return ::eventfd_read(event_, &count) == 0;
  }

 private:
  static inline int event_ = -1;  // Readable from an interrupt on until it is taken, so that none is missed.
  struct sigaction before_ {};
};

// Reads a character for the editor. Returns 1, 0 at the end of the input, or -1 after an error or an interrupt.
int ReadCharacter(EditLine*, wchar_t* character) {
  std::mbstate_t state{};
  for (char byte = 0; InterruptsReading::Wait();) {
    const ssize_t read = ::read(STDIN_FILENO, &byte, 1);
    if (read <= 0) return static_cast<int>(read);
    size_t bytes = std::mbrtowc(character, &byte, 1, &state);
    if (bytes == static_cast<size_t>(-1)) {  // Not UTF-8. What was before this byte is dropped.
      state = {};
      bytes = std::mbrtowc(character, &byte, 1, &state);
    }
    if (bytes == static_cast<size_t>(-1)) state = {};
    if (bytes <= 1) return 1;
  }
  return -1;
}

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
    el_set(edit_, EL_GETCFN, &ReadCharacter);
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
    // In the middle of a search of the history, the end of it looks like the end of the input.
    for (bool again = false; text == nullptr && InterruptsReading::Take(); again = true) {
      const LineInfo* const info = el_line(edit_);
      const bool empty = info->lastchar == info->buffer;
      el_reset(edit_);
      fmt::print("^C{}", !empty || again ? "" : "  (press Ctrl-C again or Ctrl-D to exit)");
      if (empty && again) break;
      fmt::print("\n");
      std::fflush(stdout);
      text = el_gets(edit_, &bytes);
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
    text.erase(0, text.find_first_not_of(" \t"));
    if (text.empty()) continue;
    if (text == "exit" || text == "quit") break;
    last = RunLine(client, given, text);
    std::fflush(stdout);
  }
  return last;
}

}  // namespace cell

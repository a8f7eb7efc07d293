// SimProcess runs one simulation in a process of its own, so that one that crashes or never ends counts as a failure.
#pragma once

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace cell {

class SimProcess {
 public:
  // How it ended: with a text, or with what the system reports.
  struct Outcome {
    std::optional<std::string> text;
    std::string died;
    bool stopped = false;  // By the limit of CPU time or by a kill, which says nothing about the run.
  };

  // Begins `run` in a process with a limit of CPU time in seconds.
  static SimProcess Begin(const std::function<std::string()>& run, unsigned cpu_seconds_max) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("cannot create a pipe");
    std::fflush(nullptr);
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("cannot create a process");
    if (process == 0) {
      ::close(ends[0]);
      (void)std::signal(SIGXCPU, SIG_DFL);  // Were it ignored, the process would end with SIGKILL.
      const rlimit limit{cpu_seconds_max, cpu_seconds_max + 1};
      (void)::setrlimit(RLIMIT_CPU, &limit);
      const std::string text = run();
      for (size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(ends[1], text.data() + at, text.size() - at);
        if (written <= 0) ::_exit(3);
        at += static_cast<size_t>(written);
      }
      ::_exit(0);  // Its objects need no cleanup.
    }
    ::close(ends[1]);
    return SimProcess(process, ends[0]);
  }

  int from() const { return from_; }
  // Reads after poll() has reported something at from(). Returns the outcome if the process has ended.
  std::optional<Outcome> Hear() {
    char buffer[65536];
    const ssize_t got = ::read(from_, buffer, sizeof(buffer));
    if (got > 0) {
      text_.append(buffer, static_cast<size_t>(got));
      return std::nullopt;
    }
    ::close(from_);
    int status = 0;
    ::waitpid(process_, &status, 0);
    if (status == 0) return Outcome{std::move(text_), "", false};
    const bool signal = WIFSIGNALED(status);
    const int number = signal ? WTERMSIG(status) : WEXITSTATUS(status);
    const bool late = signal && number == SIGXCPU, killed = signal && number == SIGKILL;
    const char* const why = late     ? ": it used more CPU time than allowed"
                            : killed ? ": something killed it: a user, or the kernel if memory ran out (see dmesg)"
                                     : "";
    return Outcome{std::nullopt,
                   fmt::format("the process ended with {} {}{}", signal ? "signal" : "status", number, why),
                   late || killed};
  }
  // Ends a process that is not needed any more.
  void End() {
    ::kill(process_, SIGKILL);
    while (!Hear().has_value()) {
    }
  }

 private:
  SimProcess(pid_t process, int from) : process_(process), from_(from) {}

  pid_t process_;
  int from_;
  std::string text_;
};

// Waits until some of them have something to read, up to a second.
template <typename Item, typename ProcessOf>
std::vector<size_t> WaitForAny(const std::vector<Item>& items, const ProcessOf& process_of) {
  std::vector<pollfd> ends;
  for (const Item& item : items) ends.push_back({process_of(item).from(), POLLIN, 0});
  (void)::poll(ends.data(), ends.size(), 1'000);
  std::vector<size_t> ready;
  for (size_t i = ends.size(); i-- > 0;) {
    if (ends[i].revents != 0) ready.push_back(i);
  }
  return ready;  // From the last to the first, so that items can be erased.
}

}  // namespace cell

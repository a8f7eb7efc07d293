// LineFile is a log of one client process of the soak. Each line is passed to the system before anything follows from
// it, so the log of a killed process is complete, except that its last line may be cut off.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "cell/base/check.h"
#include "cell/io/net/fd.h"

namespace cell {

class LineFile {
 public:
  // REQUIRES: there is no file at `path` yet, and one can be made.
  explicit LineFile(const std::string& path)
      : file_(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_APPEND | O_CLOEXEC, 0644)) {
    CELL_CHECK(file_.valid());
  }

  // Writes a line, which ends with a newline.
  void Write(const std::string& line) {
    CELL_CHECK_EQ(::write(file_.get(), line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  // Writes "V TEXT", which the check reports as a violation.
  void Violation(std::string text) {
    for (char& c : text) {
      if (c == '\n') c = ' ';
    }
    Write("V " + text + "\n");
  }

 private:
  const Fd file_;
};

}  // namespace cell

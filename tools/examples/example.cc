#include "tools/examples/example.h"

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <system_error>

#include "cell/base/bytes.h"
#include "cell/base/status_macros.h"
#include "cell/cmd/help_text.h"
#include "cell/cmd/number_flags.h"
#include "cell/io/exec/invocation.h"
#include "fmt/format.h"
#include "tools/client_flags.h"
#include "tools/command_line.h"

namespace cell {
namespace {

// Calls `run`, and has its output written before its exit status is returned.
absl::StatusOr<int> RunAndFlush(const std::function<absl::StatusOr<int>()>& run) {
  try {
    absl::StatusOr<int> result = run();
    if (!result.ok()) return result;
    const absl::Status written = FlushOutput();
    if (!written.ok()) return written;
    return result;
  } catch (const std::system_error& error) {  // fmt::print throws it when a write fails.
    return OutputError(error.code().value());
  }
}

}  // namespace

void DeclareCluster(CLI::App* app, ClientOptions* options) {
  app->formatter(HelpText());  // Commands that are added later inherit it.
  AddClientFlags(app, options);
  app->fallthrough();
  app->footer("Exit status: 0 done, 1 not there or not as it should be, 2 error (one line on standard error).");
}

CLI::Validator PartOfKey() {
  return CLI::Validator(
      [](std::string& text) {
        if (text.empty() || text.find_first_of("/ ") != std::string::npos) {
          return fmt::format("{} is empty, or has a space or a slash", ForMessage(text));
        }
        if (text.size() <= kPartBytesMax) return std::string();
        return fmt::format("{} has {} bytes, and the most is {}", ForMessage(text), text.size(), kPartBytesMax);
      },
      "WORD");
}

int RunExample(const char* program, CLI::App* app, int argc, char** argv,
               const std::function<absl::StatusOr<int>()>& run) {
  HoldStandardStreams();
  EnterCallersDirectory();
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return EndOfParse(program, *app, error);
  }
  ::signal(SIGPIPE, SIG_DFL);
  const absl::StatusOr<int> result = RunAndFlush(run);
  if (result.ok()) return *result;
  std::fputs(fmt::format("{}: {}\n", program, std::string(result.status().message())).c_str(), stderr);
  return kError;
}

int RunTransactions(const char* program, CLI::App* app, int argc, char** argv, const ClientOptions& options,
                    const std::function<absl::StatusOr<int>(Client*)>& run) {
  return RunExample(program, app, argc, argv, [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, OpenClient(options));
    absl::StatusOr<int> status = run(client.get());
    client->FinishTransactions();
    return status;
  });
}

absl::StatusOr<std::unique_ptr<Client>> OpenClient(const ClientOptions& options) {
  if (options.cluster.empty()) {
    return absl::InvalidArgumentError("no cluster was given: use --cluster DIR, or set CELL_CLUSTER=DIR");
  }
  return Client::Open(options);
}

uint64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::string TimeDigits(uint64_t time_us) { return fmt::format("{:016}", time_us); }

std::optional<uint64_t> ParseTime(std::string_view text) {
  uint64_t time_us = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, time_us);
  if (error != std::errc() || at != end || time_us > kTimeMaxUs) return std::nullopt;
  return time_us;
}

CLI::Validator TimeInUs() {
  return CLI::Validator(
      [](std::string& text) {
        const std::optional<uint64_t> time_us = ParseTime(text);
        if (!time_us.has_value()) return fmt::format("{} is not a whole number from 0 to {}", text, kTimeMaxUs);
        text = fmt::format("{}", *time_us);  // Keys show it with zeros in front, which would make it octal.
        return std::string();
      },
      "MICROSECONDS");
}

absl::StatusOr<uint64_t> NumberIn(std::string_view key, std::string_view text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && at == end) return number;
  return absl::DataLossError(fmt::format("{}: {} is not a decimal number", ForMessage(key), ForMessage(text)));
}

}  // namespace cell

// The commands of cellctl as words, and its prompt.
#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "tools/cellctl_commands.h"

namespace cell {

using Command = std::function<int(Client*, const CtlFlags&)>;

// Declares the commands on `app`. *chosen is set to the one that is parsed.
void Declare(CLI::App* app, CtlFlags* flags, Command* chosen);
void AddOutputFlag(CLI::App* app, CtlFlags* flags);

// Runs a command. Reports an error if a server's answer is not valid.
int RunCommand(const Command& command, Client* client, const CtlFlags& flags);

// Reads commands and runs them until there are no more. On a terminal it has history and completion. Returns the exit
// status of the last command.
int RunPrompt(Client* client, const CtlFlags& given);

}  // namespace cell

// The commands of cellctl as words, and its prompt.
#pragma once

#include <functional>

#include "CLI/CLI.hpp"
#include "tools/cellctl_commands.h"

namespace cell {

using Command = std::function<int(Client*, const CtlFlags&)>;

// Declares the commands on `app`; the one that is parsed is left in *chosen.
void Declare(CLI::App* app, CtlFlags* flags, Command* chosen);
void AddOutputFlag(CLI::App* app, CtlFlags* flags);

// Runs a command; an answer of a server that makes no sense is an error.
int RunCommand(const Command& command, Client* client, const CtlFlags& flags);

// Reads commands and runs them until there are no more: on a terminal with history and completion. Returns the exit
// status of the last one.
int RunPrompt(Client* client, const CtlFlags& given);

}  // namespace cell

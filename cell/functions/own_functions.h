// Declares where whoever builds a server registers functions of their own. README.md shows how, without a change to
// this tree. own_functions.cc, which is used by default, adds none.
#pragma once

#include "cell/functions/function_table.h"

namespace cell {

// Adds own functions to the table, after the built-in ones. A server calls it once. A wrong or used name ends the
// server when it starts.
//
// Functions run on the worker's thread, so they must not block or take long, and they must be pure (function.h).
void AddOwnFunctions(FunctionTable* table);

}  // namespace cell

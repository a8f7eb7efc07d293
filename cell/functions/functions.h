// Gives the functions that this process has.
#pragma once

#include "cell/functions/function_table.h"

namespace cell {

// Returns the table of the built-in and the own functions. The first call makes it, and ends the process if a name is
// wrong or used twice, so a server calls it when it starts. Any thread may call it.
const FunctionTable& Functions();

}  // namespace cell

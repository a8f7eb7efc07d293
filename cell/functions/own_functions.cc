#include "cell/functions/own_functions.h"

namespace cell {

void AddOwnFunctions(FunctionTable*) {}

}  // namespace cell

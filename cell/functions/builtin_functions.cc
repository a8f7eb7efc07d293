#include "cell/functions/builtin_functions.h"

namespace cell {

void AddBuiltinFunctions(FunctionTable* table) {
  AddNumberFunctions(table);
  AddTextFunctions(table);
  AddReadingFunctions(table);
}

}  // namespace cell

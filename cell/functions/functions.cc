#include "cell/functions/functions.h"

#include "cell/base/check.h"
#include "cell/functions/builtin_functions.h"
#include "cell/functions/own_functions.h"

namespace cell {

const FunctionTable& Functions() {
  static const FunctionTable table = [] {
    FunctionTable made;
    AddBuiltinFunctions(&made);
    AddOwnFunctions(&made);
    CELL_CHECK_EQ(made.status().ToString(), "OK");
    return made;
  }();
  return table;
}

}  // namespace cell

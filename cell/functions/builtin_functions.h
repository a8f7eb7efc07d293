// Adds the functions that every server has. Arguments are coded as in elements.h and arguments.h.
//
// These take a vector of elements as an operand (number_functions.cc):
//
//   add            adds, and wraps around: two's complement, and IEEE for floats
//   add-checked    adds; OutOfRange if a sum overflows, or is not finite
//   min, max       as IEEE fmin and fmax: if one of the two is a NaN, the other one is taken; of 0 and -0, the stored
//   and, or, xor   bit by bit; not for floats
//
//   An operand of one element is applied to each element of the value, and one with as many elements as the value is
//   applied element by element; other operands are InvalidArgument. A key that is not stored gets the operand as its
//   value. A stored value that is no vector of one or more such elements is FailedPrecondition. The value is written,
//   and so gets a new version, even if it is the same as before. The result is the new value if that is one element,
//   and else empty.
//
// These take bytes (text_functions.cc):
//
//   append             appends the argument to the value; OutOfRange beyond 1 MB. The result is the new size, a u64.
//   compare-and-swap   writes `desired` if the key is stored and its value is `expected`. The result is one byte, 1 if
//                      it was written and 0 if not.
//   add-decimal        adds to a value that is a 64-bit number as text. The result is the new number as text.
//
// These only read (reading_functions.cc). The argument is the type of the elements, or a predicate. A NaN is unequal
// to every number.
//
//   sum               i64 or u64, which wraps around, or f64 for floats; 0 if the key is not stored
//   least, greatest   one element, which is a NaN only if all elements are; FailedPrecondition for an empty vector, or
//   if
//                     the key is not stored
//   count             how many elements satisfy the predicate, a u64; 0 if the key is not stored
//   filter            the elements that satisfy it, in their order; empty if the key is not stored
//
// An operand or argument that is not as described is InvalidArgument.
#pragma once

#include "cell/functions/function_table.h"

namespace cell {

// Adds all of them. REQUIRES: the table has no functions with their names.
void AddBuiltinFunctions(FunctionTable* table);

// Add a part of them each.
void AddNumberFunctions(FunctionTable* table);
void AddTextFunctions(FunctionTable* table);
void AddReadingFunctions(FunctionTable* table);

}  // namespace cell

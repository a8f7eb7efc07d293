// CELL_CHECK(condition) ends the process if an invariant is broken, in release builds too. Never use it to validate
// input from outside.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CELL_CHECK(condition)                                                            \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

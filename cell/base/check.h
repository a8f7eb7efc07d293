// CHECK(condition): a broken invariant ends the process, in release builds too. Never for input from outside.
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

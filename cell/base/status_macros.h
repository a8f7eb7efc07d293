// RETURN_IF_ERROR and ASSIGN_OR_RETURN return an absl::Status to the caller if it is an error.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CELL_CONCAT_INNER(a, b) a##b
#define CELL_CONCAT(a, b) CELL_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(CELL_CONCAT(result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.ok()) return std::move(result).status();          \
  declaration = *std::move(result)

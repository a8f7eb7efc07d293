// Reduces and filters vectors of numbers.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "cell/base/check.h"
#include "cell/base/status_macros.h"
#include "cell/functions/arguments.h"
#include "cell/functions/builtin_functions.h"
#include "cell/functions/elements.h"

namespace cell {
namespace {

FunctionOutput Result(std::string result) { return {std::nullopt, std::move(result)}; }

// Returns the value, or a vector without elements if the key is not stored.
absl::StatusOr<std::string_view> StoredVector(const FunctionInput& input, ElementType type) {
  if (!input.value.has_value()) return std::string_view();
  RETURN_IF_ERROR(CheckStoredVector(type, input.value->size()));
  return *input.value;
}

absl::StatusOr<FunctionOutput> Sum(const FunctionInput& input) {
  ASSIGN_OR_RETURN(const ElementType type, ParseTypeArgument(input.argument));
  ASSIGN_OR_RETURN(const std::string_view vector, StoredVector(input, type));
  return VisitElementType(type, [&]<typename T>() {
    // Conversion to uint64_t extends the sign, and unsigned sums wrap around, so this is the sum of an i64, too.
    using Total = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    Total total = 0;
    const size_t count = vector.size() / sizeof(T);
    for (size_t i = 0; i < count; ++i) total += static_cast<Total>(LoadElement<T>(vector.data(), i));
    return Result(ScalarBytes(total));
  });
}

// Returns the element that comes before all others by `Before`. NaNs come last.
template <typename Before>
absl::StatusOr<FunctionOutput> First(const FunctionInput& input) {
  ASSIGN_OR_RETURN(const ElementType type, ParseTypeArgument(input.argument));
  if (!input.value.has_value()) {
    return absl::FailedPreconditionError("the key is not stored, so there is no element to return: put a vector first");
  }
  ASSIGN_OR_RETURN(const std::string_view vector, StoredVector(input, type));
  if (vector.empty()) {
    return absl::FailedPreconditionError("the value has 0 bytes, so there is no element to return: put a vector first");
  }
  return VisitElementType(type, [&]<typename T>() {
    T first = LoadElement<T>(vector.data(), 0);
    const size_t count = vector.size() / sizeof(T);
    for (size_t i = 1; i < count; ++i) {
      const T element = LoadElement<T>(vector.data(), i);
      first = Before()(element, first) || first != first ? element : first;
    }
    return Result(ScalarBytes(first));
  });
}

// Calls `visit` with the comparison as a function object.
template <typename Visit>
auto VisitComparison(Comparison comparison, Visit&& visit) {
  switch (comparison) {
    case Comparison::kEqual:
      return visit(std::equal_to<>());
    case Comparison::kNotEqual:
      return visit(std::not_equal_to<>());
    case Comparison::kLess:
      return visit(std::less<>());
    case Comparison::kLessEqual:
      return visit(std::less_equal<>());
    case Comparison::kGreater:
      return visit(std::greater<>());
    case Comparison::kGreaterEqual:
      return visit(std::greater_equal<>());
  }
  CheckFailed(__FILE__, __LINE__, "the comparison is known", "");
}

struct Counting {
  template <typename T, typename Compare>
  static std::string Run(std::string_view vector, T operand, Compare compare) {
    uint64_t satisfied = 0;
    const size_t count = vector.size() / sizeof(T);
    for (size_t i = 0; i < count; ++i) satisfied += compare(LoadElement<T>(vector.data(), i), operand) ? 1 : 0;
    return ScalarBytes(satisfied);
  }
};

struct Filtering {
  template <typename T, typename Compare>
  static std::string Run(std::string_view vector, T operand, Compare compare) {
    std::string kept(vector.size(), '\0');
    const size_t count = vector.size() / sizeof(T);
    size_t satisfied = 0;
    // Stores each element, and goes on to the next place only if it is kept: no branch to mispredict.
    for (size_t i = 0; i < count; ++i) {
      const T element = LoadElement<T>(vector.data(), i);
      StoreElement<T>(kept.data(), satisfied, element);
      satisfied += compare(element, operand) ? 1 : 0;
    }
    kept.resize(satisfied * sizeof(T));
    return kept;
  }
};

template <typename Reduction>
absl::StatusOr<FunctionOutput> Select(const FunctionInput& input) {
  ASSIGN_OR_RETURN(const Predicate predicate, ParsePredicate(input.argument));
  ASSIGN_OR_RETURN(const std::string_view vector, StoredVector(input, predicate.operand.type));
  return VisitElementType(predicate.operand.type, [&]<typename T>() {
    const T operand = LoadElement<T>(predicate.operand.bytes.data(), 0);
    return VisitComparison(predicate.comparison,
                           [&](auto compare) { return Result(Reduction::Run(vector, operand, compare)); });
  });
}

}  // namespace

void AddReadingFunctions(FunctionTable* table) {
  const Function functions[] = {
      {"sum", "returns the sum of the elements", false, &Sum},
      {"least", "returns the least element", false, &First<std::less<>>},
      {"greatest", "returns the greatest element", false, &First<std::greater<>>},
      {"count", "returns how many elements satisfy a comparison", false, &Select<Counting>},
      {"filter", "returns the elements that satisfy a comparison", false, &Select<Filtering>},
  };
  for (const Function& function : functions) CELL_CHECK_EQ(table->Add(function).ToString(), "OK");
}

}  // namespace cell

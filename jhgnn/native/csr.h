// Checks and prefetching along compressed rows.
#pragma once

#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

inline static bool indices_in_range(const int32_t* indices, int64_t count, int64_t num_columns) {
  uint32_t largest = 0;  // a negative index is large as an unsigned one
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t index = static_cast<uint32_t>(indices[i]);
    largest = index > largest ? index : largest;
  }
  return count == 0 || largest < num_columns;
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

// Checks and prefetching along compressed rows.
#pragma once

#include "kernels.h"
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

// Fetches the row that a later edge reads. Its index may not have been checked yet, so that its address is only a number;
// fetching what is not there does nothing.
template <typename T>
JHGNN_INLINE void prefetch_row(const T* rows, const CsrView& csr, int64_t edge, int64_t row_size) {
  if (edge >= csr.num_edges) return;
  const uintptr_t bytes = static_cast<uintptr_t>(row_size) * sizeof(T);
  const uintptr_t address = reinterpret_cast<uintptr_t>(rows) + static_cast<uint32_t>(csr.indices[edge]) * bytes;
  for (uintptr_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(reinterpret_cast<const void*>(address + byte));
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

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

// The first edge in [begin, end) that leads to `column` or beyond; any cut is right, the one in sorted rows is useful.
JHGNN_INLINE int64_t first_edge_from(const int32_t* indices, int64_t begin, int64_t end, int64_t column) {
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (indices[middle] < column) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Calls edges(row, place, begin, end) for all edges of rows [first, last), each row's in ascending order, and then
// finish(row, place); before its first edges start(row, place). Where columns are tiled, kTileRows rows, each with a place
// of its own, walk one tile after the other together, so that the tile's vertices are read from the second-level cache.
// Hubs are left out.
template <typename Start, typename Edges, typename Finish>
JHGNN_INLINE void walk_rows(const CsrView& csr, int64_t first, int64_t last, const Start& start, const Edges& edges,
                            const Finish& finish) {
  const int32_t* indptr = csr.indptr;
  const auto is_hub = [&](int64_t row) { return indptr[row + 1] - indptr[row] > kPieceEdges; };
  if (csr.tile_columns == 0) {
    for (int64_t row = first; row < last; ++row) {
      if (is_hub(row)) continue;
      start(row, 0);
      edges(row, 0, indptr[row], indptr[row + 1]);
      finish(row, 0);
    }
    return;
  }
  int64_t rows[kTileRows], at[kTileRows];
  while (first < last) {
    int64_t count = 0;
    for (; first < last && count < kTileRows; ++first) {
      if (is_hub(first)) continue;
      start(first, count);
      rows[count] = first;
      at[count++] = indptr[first];
    }
    for (int64_t tile = csr.tile_columns;; tile += csr.tile_columns) {
      for (int64_t place = 0; place < count; ++place) {
        const int64_t row_end = indptr[rows[place] + 1];
        const int64_t end = tile < csr.num_columns ? first_edge_from(csr.indices, at[place], row_end, tile) : row_end;
        if (end > at[place]) edges(rows[place], place, at[place], end);
        at[place] = end;
      }
      if (tile >= csr.num_columns) break;
    }
    for (int64_t place = 0; place < count; ++place) finish(rows[place], place);
  }
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

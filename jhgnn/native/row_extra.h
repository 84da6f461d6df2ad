// Maxima of neighbours' rows with their gradient, and the gradient of edge weights.
#pragma once

#include "csr.h"
#include "features.h"
#include "kernels.h"

namespace jhgnn {
namespace JHGNN_ISA {

// Maxima and how many edges reach them: a tie's gradient is shared, so that it does not depend on the order of edges.
inline static bool max_rows(const RowMax& args, int64_t first, int64_t last) {
  const int32_t *indptr = args.rows.indptr, *indices = args.rows.indices;
  if (!indices_in_range(indices + indptr[first], indptr[last] - indptr[first], args.rows.num_columns)) return false;
  const int64_t width = args.width;
  for_element(args.x, [&](const auto* x) {
    for (int64_t row = first; row < last; ++row) {
      float *out = args.out + row * width, *counts = args.counts + row * width;
      const bool empty = indptr[row] == indptr[row + 1];
      for (int64_t column = 0; column < width; ++column) out[column] = empty ? 0.0f : -__builtin_inff(), counts[column] = 0;
      for (int64_t edge = indptr[row]; edge < indptr[row + 1]; ++edge) {
        const auto* from = x + indices[edge] * width;
        for (int64_t column = 0; column < width; ++column) {
          const float value = to_float(from[column]), top = out[column];
          counts[column] = value > top ? 1.0f : counts[column] + (value == top ? 1.0f : 0.0f);
          out[column] = value > top || value != value ? value : top;
        }
      }
    }
  });
  return true;
}

inline static bool max_backward_rows(const RowMaxBackward& args, int64_t first, int64_t last) {
  const int32_t *indptr = args.outgoing.indptr, *indices = args.outgoing.indices;
  if (!indices_in_range(indices + indptr[first], indptr[last] - indptr[first], args.outgoing.num_columns)) return false;
  const int64_t width = args.width;
  for_element(args.x, [&](const auto* x) {
    for (int64_t row = first; row < last; ++row) {
      float* d_x = args.d_x + row * width;
      for (int64_t column = 0; column < width; ++column) d_x[column] = 0.0f;
      for (int64_t edge = indptr[row]; edge < indptr[row + 1]; ++edge) {
        const float *out = args.out + indices[edge] * width, *shares = args.shares + indices[edge] * width;
        for (int64_t column = 0; column < width; ++column) {
          d_x[column] += to_float(x[row * width + column]) == out[column] ? shares[column] : 0.0f;
        }
      }
    }
  });
  return true;
}

// The gradient of edge weights: x[index] . row_side[row] of every edge.
inline static bool dot_rows(const EdgeDot& args, int64_t first, int64_t last) {
  const int32_t *indptr = args.rows.indptr, *indices = args.rows.indices;
  if (!indices_in_range(indices + indptr[first], indptr[last] - indptr[first], args.rows.num_columns)) return false;
  const int64_t width = args.width;
  for_element(args.x, [&](const auto* x) {
    using T = std::remove_reference_t<decltype(*x)>;
    const T* sides = static_cast<const T*>(args.row_side.data);
    for (int64_t row = first; row < last; ++row) {
      const T* side = sides + row * width;
      for (int64_t edge = indptr[row]; edge < indptr[row + 1]; ++edge) {
        const T* from = x + indices[edge] * width;
        Floats sums{};
        int64_t column = 0;
        for (; column + kLanes <= width; column += kLanes) sums += load_features(from + column) * load_features(side + column);
        float dot = sum_of_lanes(sums);
        for (; column < width; ++column) dot += to_float(from[column]) * to_float(side[column]);
        args.out[edge] = dot;
      }
    }
  });
  return true;
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

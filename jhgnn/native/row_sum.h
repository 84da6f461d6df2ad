// Sums and means of neighbours' rows, weighted or not: neighbor_mean, neighbor_sum and sparse_matmul, and their gradients
// over the transposed edges. The columns of a row are summed in registers, up to kBlock vectors at a time.
#pragma once

#include "csr.h"
#include "features.h"
#include "kernels.h"

namespace jhgnn {
namespace JHGNN_ISA {

constexpr int kBlock = 8;           // vectors: half of the registers; four do not hide the latency of an addition
constexpr int64_t kSumAhead = 16;   // edges
constexpr int64_t kRunEdges = 256;  // summed on their own, so that rounding grows with a run and not with a hub's edges

// sums[kVectors] = `before`, or nothing, + sum over edges of factor * x[index, offset ...]. The last vector may begin early,
// so that it ends with the row: columns that two vectors cover are summed twice, in the same order.
template <int kVectors, typename T, typename Factor>
JHGNN_INLINE void sum_columns(const RowSum& args, const T* x, int64_t begin, int64_t end, int64_t offset,
                              int64_t last_offset, const Factor& factor, const float* before, Floats* sums) {
  const int32_t* indices = args.rows.indices;
  const int64_t width = args.width;
  int64_t run = begin;
  do {  // also for no edge
    const int64_t run_end = end - run < kRunEdges ? end : run + kRunEdges;
    Floats part[kVectors] = {};
    for (int64_t edge = run; edge < run_end; ++edge) {
      if (args.prefetch && edge + kSumAhead < args.rows.num_edges) {
        const int64_t next = static_cast<uint32_t>(indices[edge + kSumAhead]);
        if (next < args.rows.num_columns) {
          const char* ahead = reinterpret_cast<const char*>(x + next * width + offset);
          for (int64_t byte = 0; byte < int64_t{sizeof(T)} * kLanes * kVectors; byte += 64) __builtin_prefetch(ahead + byte);
        }
      }
      const int64_t index = indices[edge];
      const T* row = x + index * width;
      const Floats times = factor(edge, index);
      for (int v = 0; v < kVectors - 1; ++v) part[v] += times * load_features(row + offset + v * kLanes);
      part[kVectors - 1] += times * load_features(row + last_offset);
    }
    for (int v = 0; v < kVectors; ++v) {
      if (run > begin) {
        sums[v] += part[v];
      } else if (before) {
        sums[v] = load(before + (v + 1 < kVectors ? offset + v * kLanes : last_offset)) + part[v];
      } else {
        sums[v] = part[v];  // most rows have no other run: no addition, and their bits
      }
    }
    run = run_end;
  } while (run < end);
}

// Calls emit(offset, vector) for the columns of one row's sum, added to `before` if that is given.
template <typename T, typename Factor, typename Emit>
JHGNN_INLINE void sum_wide_row(const RowSum& args, const T* x, int64_t begin, int64_t end, const Factor& factor,
                               const float* before, const Emit& emit) {
  Floats sums[kBlock];
  for (int64_t offset = args.first_column; offset < args.last_column; offset += kBlock * kLanes) {
    const int64_t left = args.last_column - offset;
    const int64_t rest = left < kBlock * kLanes ? left : kBlock * kLanes;
    const int64_t vectors = (rest + kLanes - 1) / kLanes;
    const int64_t last = offset + rest - kLanes;
    switch (vectors) {
      case 1: sum_columns<1>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 2: sum_columns<2>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 3: sum_columns<3>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 4: sum_columns<4>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 5: sum_columns<5>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 6: sum_columns<6>(args, x, begin, end, offset, last, factor, before, sums); break;
      case 7: sum_columns<7>(args, x, begin, end, offset, last, factor, before, sums); break;
      default: sum_columns<8>(args, x, begin, end, offset, last, factor, before, sums); break;
    }
    for (int64_t v = 0; v + 1 < vectors; ++v) emit(offset + v * kLanes, sums[v]);
    emit(last, sums[vectors - 1]);
  }
}

// Rows narrower than a vector: up to kLanes - 1 columns.
template <typename T, typename Factor>
JHGNN_INLINE void sum_narrow_row(const RowSum& args, const T* x, int64_t begin, int64_t end, const Factor& factor,
                                 float* sums) {
  const int64_t width = args.width;
  for (int64_t column = 0; column < width; ++column) sums[column] = 0.0f;
  for (int64_t run = begin; run < end; run += kRunEdges) {
    const int64_t run_end = end - run < kRunEdges ? end : run + kRunEdges;
    float part[kLanes] = {};
    for (int64_t edge = run; edge < run_end; ++edge) {
      const int64_t index = args.rows.indices[edge];
      const float times = factor(edge, index)[0];
      const T* row = x + index * width;
      for (int64_t column = 0; column < width; ++column) part[column] += times * to_float(row[column]);
    }
    for (int64_t column = 0; column < width; ++column) sums[column] += part[column];
  }
}

// Calls body(x, factor) with the types that the arguments ask for; factor(edge, index) is the weight of an edge.
template <typename Body>
JHGNN_INLINE void with_factor(const RowSum& args, const Body& body) {
  const float *values = args.values, *scale = args.index_scale;
  for_element(args.x, [&](const auto* x) {
    if (values && scale) {
      body(x, [=](int64_t edge, int64_t index) __attribute__((always_inline)) { return splat(values[edge] * scale[index]); });
    } else if (values) {
      body(x, [=](int64_t edge, int64_t) __attribute__((always_inline)) { return splat(values[edge]); });
    } else if (scale) {
      body(x, [=](int64_t, int64_t index) __attribute__((always_inline)) { return splat(scale[index]); });
    } else {
      body(x, [](int64_t, int64_t) __attribute__((always_inline)) { return splat(1.0f); });
    }
  });
}

template <typename T, typename Factor>
JHGNN_INLINE void sum_row(const RowSum& args, const T* x, int64_t row, const Factor& factor) {
  const int64_t begin = args.rows.indptr[row], end = args.rows.indptr[row + 1], width = args.width;
  const float scale = args.mean && end > begin ? 1.0f / static_cast<float>(end - begin) : 1.0f;
  T* out = static_cast<T*>(args.out) + row * width;
  if (width >= kLanes) {
    sum_wide_row(args, x, begin, end, factor, nullptr,
                 [&](int64_t offset, Floats sums) __attribute__((always_inline)) { store_features(out + offset, sums * scale); });
  } else {
    float sums[kLanes];
    sum_narrow_row(args, x, begin, end, factor, sums);
    for (int64_t column = 0; column < width; ++column) put(out + column, sums[column] * scale);
  }
}

// Writes the sum of one piece of a row, of the columns summed now; accumulator [width].
inline static void sum_edges(const RowSum& args, int64_t begin, int64_t end, float* accumulator) {
  with_factor(args, [&](const auto* x, const auto& factor) {
    if (args.width >= kLanes) {
      sum_wide_row(args, x, begin, end, factor, nullptr, [&](int64_t offset, Floats sums) __attribute__((always_inline)) {
        store(accumulator + offset, sums);
      });
    } else {
      sum_narrow_row(args, x, begin, end, factor, accumulator);
    }
  });
}

inline static void sum_finish(const RowSum& args, int64_t row, const float* accumulator) {
  const int64_t count = args.rows.indptr[row + 1] - args.rows.indptr[row];
  const float scale = args.mean && count > 0 ? 1.0f / static_cast<float>(count) : 1.0f;
  for_element(args.x, [&](const auto* x) {
    auto* out = const_cast<std::remove_const_t<std::remove_pointer_t<decltype(x)>>*>(
                    static_cast<decltype(x)>(args.out)) + row * args.width;
    for (int64_t column = args.first_column; column < args.last_column; ++column) {
      put(out + column, accumulator[column] * scale);
    }
  });
}

// accumulator: [kTileRows, width] where columns are tiled, and then the width is a multiple of every kLanes.
inline static bool sum_rows(const RowSum& args, int64_t first, int64_t last, float* accumulator) {
  const int32_t* indptr = args.rows.indptr;
  if (!indices_in_range(args.rows.indices + indptr[first], indptr[last] - indptr[first], args.rows.num_columns))
    return false;
  const bool tiled = args.rows.tile_columns > 0;
  const int64_t width = args.width;
  with_factor(args, [&](const auto* x, const auto& factor) {
    walk_rows(
        args.rows, first, last,
        [&](int64_t, int64_t place) {
          if (tiled) __builtin_memset(accumulator + place * width, 0, width * sizeof(float));
        },
        [&](int64_t row, int64_t place, int64_t begin, int64_t end) {
          if (!tiled) return sum_row(args, x, row, factor);
          float* sums = accumulator + place * width;
          sum_wide_row(args, x, begin, end, factor, sums, [&](int64_t offset, Floats vector) __attribute__((always_inline)) {
            store(sums + offset, vector);
          });
        },
        [&](int64_t row, int64_t place) {
          if (tiled) sum_finish(args, row, accumulator + place * width);
        });
  });
  return true;
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

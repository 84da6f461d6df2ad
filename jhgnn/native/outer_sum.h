// The gradient of a projection's weight: x^T d, the sum over rows of their outer products. A tile of the result stays in
// registers while a panel of rows passes by.
#pragma once

#include "features.h"
#include "kernels.h"

namespace jhgnn {
namespace JHGNN_ISA {

constexpr int kTileHeight = 6;                      // columns of x, each repeated over the lanes
constexpr int kTileVectors = kLanes == 16 ? 4 : 2;  // vectors of d: with 6 columns, three quarters of the registers

// sums[kHeight, kVectors] += x^T d over `rows` rows; d has `padded` floats a row, as has each row of sums.
template <int kHeight, int kVectors>
JHGNN_INLINE void add_tile(const float* x, int64_t x_stride, const float* d, int64_t padded, int64_t rows, float* sums) {
  Floats tile[kHeight][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) tile[i][v] = load(sums + i * padded + v * kLanes);
  }
  for (int64_t row = 0; row < rows; ++row) {
    Floats vectors[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) vectors[v] = load(d + row * padded + v * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < kHeight; ++i) {
      const Floats factor = splat(x[row * x_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) tile[i][v] += factor * vectors[v];
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kHeight; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(sums + i * padded + v * kLanes, tile[i][v]);
  }
}

template <int kVectors>
JHGNN_INLINE void add_columns(const float* x, int64_t columns, const float* d, int64_t padded, int64_t rows, float* sums) {
  int64_t column = 0;
  for (; column + kTileHeight <= columns; column += kTileHeight) {
    add_tile<kTileHeight, kVectors>(x + column, columns, d, padded, rows, sums + column * padded);
  }
  const float* rest = x + column;
  float* rest_sums = sums + column * padded;
  switch (columns - column) {
    case 1: add_tile<1, kVectors>(rest, columns, d, padded, rows, rest_sums); break;
    case 2: add_tile<2, kVectors>(rest, columns, d, padded, rows, rest_sums); break;
    case 3: add_tile<3, kVectors>(rest, columns, d, padded, rows, rest_sums); break;
    case 4: add_tile<4, kVectors>(rest, columns, d, padded, rows, rest_sums); break;
    case 5: add_tile<5, kVectors>(rest, columns, d, padded, rows, rest_sums); break;
    default: break;
  }
}

// `width` columns of `rows` rows as float32, `padded` floats apart: in `panel`, unless they lie so already.
template <typename T>
JHGNN_INLINE const float* as_panel(const T* from, int64_t stride, int64_t rows, int64_t width, int64_t padded,
                                   float* panel) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (stride == padded) return from;
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < width; ++column) panel[row * padded + column] = to_float(from[row * stride + column]);
  }
  return panel;
}

// Adds rows `first` to `last` to sums [columns, padded], for x's columns from `column`. `panel` holds kOuterPanelRows rows
// of `columns` and of `padded` floats, and has zeros in its padding.
inline static void outer_rows(const OuterSum& args, int64_t first, int64_t last, int64_t column, int64_t columns,
                              float* panel, float* sums) {
  for_element(args.x, [&](const auto* x) __attribute__((always_inline)) {
    for_element(args.d, [&](const auto* d) __attribute__((always_inline)) {
      for (int64_t row = first; row < last; row += kOuterPanelRows) {
        const int64_t rows = last - row < kOuterPanelRows ? last - row : kOuterPanelRows;
        // Of a wide x, six columns of many rows would touch a page each.
        const float* left = as_panel(x + row * args.in_width + column, args.in_width, rows, columns, columns, panel);
        const float* right = as_panel(d + row * args.out_width, args.out_width, rows, args.out_width, args.padded,
                                      panel + kOuterPanelRows * columns);
        for (int64_t at = 0; at < args.padded; at += kTileVectors * kLanes) {
          const int64_t vectors = (args.padded - at) / kLanes;
          if (vectors >= kTileVectors) {
            add_columns<kTileVectors>(left, columns, right + at, args.padded, rows, sums + at);
          } else if (vectors == 3) {
            add_columns<3>(left, columns, right + at, args.padded, rows, sums + at);
          } else if (vectors == 2) {
            add_columns<2>(left, columns, right + at, args.padded, rows, sums + at);
          } else {
            add_columns<1>(left, columns, right + at, args.padded, rows, sums + at);
          }
        }
      }
    });
  });
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

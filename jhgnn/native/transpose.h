// [heads, width] to [width, heads] and back, 8 by 8 and 4 by 4 in registers.
#pragma once

#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

typedef float Floats8 __attribute__((vector_size(32)));
typedef int32_t Ints8 __attribute__((vector_size(32)));
typedef float Floats4 __attribute__((vector_size(16)));
typedef int32_t Ints4 __attribute__((vector_size(16)));

template <typename Vector>
JHGNN_INLINE Vector load_as(const float* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}

template <typename Vector>
JHGNN_INLINE void store_as(float* to, Vector v) {
  __builtin_memcpy(to, &v, sizeof(v));
}

JHGNN_INLINE void transpose_8_by_8(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  Floats8 r[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) r[i] = load_as<Floats8>(from + i * from_stride);
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shuffle(r[i], r[i + 1], Ints8{0, 8, 1, 9, 4, 12, 5, 13});
    pairs[i + 1] = __builtin_shuffle(r[i], r[i + 1], Ints8{2, 10, 3, 11, 6, 14, 7, 15});
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Ints8{0, 1, 8, 9, 4, 5, 12, 13});
      quads[i + 2 * j + 1] = __builtin_shuffle(pairs[i + j], pairs[i + j + 2], Ints8{2, 3, 10, 11, 6, 7, 14, 15});
    }
  }
  for (int i = 0; i < 4; ++i) {
    store_as(to + i * to_stride, __builtin_shuffle(quads[i], quads[i + 4], Ints8{0, 1, 2, 3, 8, 9, 10, 11}));
    store_as(to + (i + 4) * to_stride, __builtin_shuffle(quads[i], quads[i + 4], Ints8{4, 5, 6, 7, 12, 13, 14, 15}));
  }
}

JHGNN_INLINE void transpose_4_by_4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  Floats4 r[4];
  for (int i = 0; i < 4; ++i) r[i] = load_as<Floats4>(from + i * from_stride);
  const Floats4 low01 = __builtin_shuffle(r[0], r[1], Ints4{0, 4, 1, 5});
  const Floats4 high01 = __builtin_shuffle(r[0], r[1], Ints4{2, 6, 3, 7});
  const Floats4 low23 = __builtin_shuffle(r[2], r[3], Ints4{0, 4, 1, 5});
  const Floats4 high23 = __builtin_shuffle(r[2], r[3], Ints4{2, 6, 3, 7});
  store_as(to, __builtin_shuffle(low01, low23, Ints4{0, 1, 4, 5}));
  store_as(to + to_stride, __builtin_shuffle(low01, low23, Ints4{2, 3, 6, 7}));
  store_as(to + 2 * to_stride, __builtin_shuffle(high01, high23, Ints4{0, 1, 4, 5}));
  store_as(to + 3 * to_stride, __builtin_shuffle(high01, high23, Ints4{2, 3, 6, 7}));
}

// to[column * to_stride + row] = from[row * from_stride + column]
JHGNN_INLINE void transpose(const float* from, int64_t rows, int64_t columns, int64_t from_stride, float* to,
                            int64_t to_stride) {
  int64_t row = 0;
  for (int64_t size = 8; size >= 4; size /= 2) {
    for (; row + size <= rows; row += size) {
      int64_t column = 0;
      for (; column + size <= columns; column += size) {
        const float* block = from + row * from_stride + column;
        float* turned = to + column * to_stride + row;
        size == 8 ? transpose_8_by_8(block, from_stride, turned, to_stride)
                  : transpose_4_by_4(block, from_stride, turned, to_stride);
      }
      for (; column < columns; ++column) {
        for (int64_t i = row; i < row + size; ++i) to[column * to_stride + i] = from[i * from_stride + column];
      }
    }
  }
  for (; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) to[column * to_stride + row] = from[row * from_stride + column];
  }
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

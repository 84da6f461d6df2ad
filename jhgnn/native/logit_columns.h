// Attention logits before their sum: each row [heads, width] times an attention vector, head by head. The rows are
// projected features, or those of the matrix that projects them.
#pragma once

#include "kernels.h"
#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

// Sums of neighbouring lanes: of a's in the first half, of b's in the second.
JHGNN_INLINE Floats pair_sums(Floats a, Floats b) {
  Ints even, odd;
  for (int lane = 0; lane < kLanes; ++lane) even[lane] = 2 * lane, odd[lane] = 2 * lane + 1;
  return __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
}

// Heads of kWidth columns that a few vectors hold.
template <int kWidth>
struct HeadGroup {
  static constexpr int kVectors = kWidth / kLanes > 4 ? kWidth / kLanes : 4;
  static constexpr int kHeads = kVectors * kLanes / kWidth;

  // Of the columns in vector v, how many there are if the group has `heads` heads.
  static JHGNN_INLINE int64_t columns(int64_t heads, int v) {
    const int64_t left = heads * kWidth - v * kLanes;
    return left < 0 ? 0 : left < kLanes ? left : kLanes;
  }

  static JHGNN_INLINE Floats load_columns(const float* from, int64_t heads, int v) {
    return heads == kHeads ? load(from + v * kLanes) : load_some(from + v * kLanes, columns(heads, v));
  }

  // The sum of each head's columns in its lane; further lanes hold anything.
  static JHGNN_INLINE Floats head_sums(Floats* v) {
    int vectors = kVectors;
#pragma GCC unroll 8
    for (int columns = kWidth; columns > 1; columns /= 2) {
      if (vectors == 1) {
        v[0] = pair_sums(v[0], v[0]);
      } else {
        vectors /= 2;
#pragma GCC unroll 8
        for (int i = 0; i < vectors; ++i) v[i] = pair_sums(v[2 * i], v[2 * i + 1]);
      }
    }
    return v[0];
  }

  // The numbers of heads, each repeated over its columns in vector v.
  static JHGNN_INLINE Floats repeat_heads(Floats heads, int v) {
    Ints head;
    for (int lane = 0; lane < kLanes; ++lane) head[lane] = (v * kLanes + lane) / kWidth;
    return __builtin_shuffle(heads, head);
  }
};

template <int kWidth>
JHGNN_INLINE void logits_of_rows(const LogitColumns& args, int64_t vector, int64_t first, int64_t last) {
  using Group = HeadGroup<kWidth>;
  const int64_t size = args.heads * kWidth;
  const float* rows = args.stack + args.places[vector] * args.rows * size;
  for (int64_t head = 0; head < args.heads; head += Group::kHeads) {
    const int64_t heads = args.heads - head < Group::kHeads ? args.heads - head : Group::kHeads;
    Floats attention[Group::kVectors];
    for (int v = 0; v < Group::kVectors; ++v) {
      attention[v] = Group::load_columns(args.attention + vector * size + head * kWidth, heads, v);
    }
    for (int64_t row = first; row < last; ++row) {
      Floats products[Group::kVectors];
      for (int v = 0; v < Group::kVectors; ++v) {
        products[v] = Group::load_columns(rows + row * size + head * kWidth, heads, v) * attention[v];
      }
      store_some(args.out + (row * args.vectors + vector) * args.heads + head, Group::head_sums(products), heads);
    }
  }
}

// Heads of any other width.
inline static void logits_of_any_rows(const LogitColumns& args, int64_t vector, int64_t first, int64_t last) {
  const int64_t width = args.width, size = args.heads * width;
  const float* rows = args.stack + args.places[vector] * args.rows * size;
  for (int64_t row = first; row < last; ++row) {
    float* out = args.out + (row * args.vectors + vector) * args.heads;
    for (int64_t head = 0; head < args.heads; ++head) {
      const float *from = rows + row * size + head * width, *attention = args.attention + vector * size + head * width;
      float sum = 0.0f;
      for (int64_t column = 0; column < width; ++column) sum += from[column] * attention[column];
      out[head] = sum;
    }
  }
}

// Adds a vector's gradient to `sums` [heads, width], and its part of the rows' to d_stack.
template <int kWidth>
JHGNN_INLINE void gradients_of_rows(const LogitColumnsBackward& args, int64_t vector, int64_t first, int64_t last,
                                    float* sums) {
  using Group = HeadGroup<kWidth>;
  const int64_t size = args.heads * kWidth, begin = args.places[vector] * args.rows * size;
  for (int64_t head = 0; head < args.heads; head += Group::kHeads) {
    const int64_t heads = args.heads - head < Group::kHeads ? args.heads - head : Group::kHeads;
    const int64_t offset = head * kWidth;
    Floats attention[Group::kVectors], totals[Group::kVectors];
    for (int v = 0; v < Group::kVectors; ++v) {
      attention[v] = Group::load_columns(args.attention + vector * size + offset, heads, v);
      totals[v] = Group::load_columns(sums + offset, heads, v);
    }
    for (int64_t row = first; row < last; ++row) {
      const float* from = args.stack + begin + row * size + offset;
      float* to = args.d_stack + begin + row * size + offset;
      const float* d = args.cotangent + (row * args.vectors + vector) * args.heads + head;
      // A group has at most kLanes heads, or one.
      const Floats d_heads = load_some(d, heads);
      for (int v = 0; v < Group::kVectors; ++v) {
        const Floats d_columns = Group::repeat_heads(d_heads, v);
        totals[v] += d_columns * Group::load_columns(from, heads, v);
        store_some(to + v * kLanes, Group::load_columns(to, heads, v) + d_columns * attention[v],
                   Group::columns(heads, v));
      }
    }
    for (int v = 0; v < Group::kVectors; ++v) store_some(sums + offset + v * kLanes, totals[v], Group::columns(heads, v));
  }
}

inline static void gradients_of_any_rows(const LogitColumnsBackward& args, int64_t vector, int64_t first, int64_t last,
                                         float* sums) {
  const int64_t width = args.width, size = args.heads * width, begin = args.places[vector] * args.rows * size;
  for (int64_t row = first; row < last; ++row) {
    const float* d = args.cotangent + (row * args.vectors + vector) * args.heads;
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t offset = begin + row * size + head * width;
      const float *from = args.stack + offset, *attention = args.attention + vector * size + head * width;
      float *to = args.d_stack + offset, *sum = sums + head * width;
      for (int64_t column = 0; column < width; ++column) {
        to[column] += d[head] * attention[column];
        sum[column] += d[head] * from[column];
      }
    }
  }
}

// out[row, vector, head] of rows [first, last).
inline static void logit_columns(const LogitColumns& args, int64_t first, int64_t last) {
  for (int64_t vector = 0; vector < args.vectors; ++vector) {
    switch (args.width) {
      case 4: logits_of_rows<4>(args, vector, first, last); break;
      case 8: logits_of_rows<8>(args, vector, first, last); break;
      case 16: logits_of_rows<16>(args, vector, first, last); break;
      case 32: logits_of_rows<32>(args, vector, first, last); break;
      case 64: logits_of_rows<64>(args, vector, first, last); break;
      default: logits_of_any_rows(args, vector, first, last);
    }
  }
}

// Writes d_stack of rows [first, last), and adds the vectors' gradients to `sums` [vectors, heads, width].
inline static void logit_columns_backward(const LogitColumnsBackward& args, int64_t first, int64_t last, float* sums) {
  const int64_t size = args.heads * args.width;
  for (int64_t matrix = 0; matrix < args.matrices; ++matrix) {
    __builtin_memset(args.d_stack + (matrix * args.rows + first) * size, 0, (last - first) * size * sizeof(float));
  }
  for (int64_t vector = 0; vector < args.vectors; ++vector) {
    float* sum = sums + vector * size;
    switch (args.width) {
      case 4: gradients_of_rows<4>(args, vector, first, last, sum); break;
      case 8: gradients_of_rows<8>(args, vector, first, last, sum); break;
      case 16: gradients_of_rows<16>(args, vector, first, last, sum); break;
      case 32: gradients_of_rows<32>(args, vector, first, last, sum); break;
      case 64: gradients_of_rows<64>(args, vector, first, last, sum); break;
      default: gradients_of_any_rows(args, vector, first, last, sum);
    }
  }
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

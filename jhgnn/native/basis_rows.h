// Rows of matrices that are combinations of shared ones, R-GCN's bases, without the matrices: what one-hot features read.
// Tiles of all bases' rows are copied side by side, so that the bases are read, and their gradient is written, in runs.
#pragma once

#include "csr.h"
#include "features.h"
#include "kernels.h"

namespace jhgnn {
namespace JHGNN_ISA {

// Calls body(vectors, offset), with an integral constant, for strips of up to kBasisVectors vectors of columns.
template <typename Body>
JHGNN_INLINE void for_strips(int64_t width, const Body& body) {
  static_assert(kBasisVectors == 4, "the cases below");
  for (int64_t offset = 0; offset < width; offset += kBasisVectors * kLanes) {
    switch ((width - offset + kLanes - 1) / kLanes) {
      case 1: body(std::integral_constant<int, 1>(), offset); break;
      case 2: body(std::integral_constant<int, 2>(), offset); break;
      case 3: body(std::integral_constant<int, 3>(), offset); break;
      default: body(std::integral_constant<int, 4>(), offset);
    }
  }
}

// How many of the columns from `offset` vector v of a strip has.
JHGNN_INLINE int64_t columns_of(int64_t width, int64_t offset, int v) {
  const int64_t left = width - offset - v * kLanes;
  return left < kLanes ? left : kLanes;
}

JHGNN_INLINE Floats load_columns(const float* from, int64_t count) { return load_some(from, count); }

JHGNN_INLINE Floats load_columns(const Bfloat16* from, int64_t count) {
  if (count == kLanes) return load_features(from);
  Floats v{};
  for (int64_t lane = 0; lane < count; ++lane) v[lane] = to_float(from[lane]);
  return v;
}

JHGNN_INLINE void store_columns(float* to, Floats values, int64_t count) { store_some(to, values, count); }

JHGNN_INLINE void store_columns(Bfloat16* to, Floats values, int64_t count) {
  if (count == kLanes) return store_features(to, values);
  for (int64_t lane = 0; lane < count; ++lane) put(to + lane, values[lane]);
}

template <int kVectors>
JHGNN_INLINE int64_t tile_rows(const BasisRows& args) {
  const int64_t rows = kBasisTile / (args.padded_bases * kVectors * kLanes);
  return rows > 1 ? rows : 1;
}

// Copies a strip of rows [first, last) of all bases into tile [rows, padded_bases, strip]; rows without slots are left out.
template <int kVectors>
JHGNN_INLINE void load_tile(const BasisRows& args, int64_t first, int64_t last, int64_t offset, float* tile) {
  constexpr int64_t kStrip = kVectors * kLanes;
  const int32_t* indptr = args.slots.indptr;
  for (int64_t basis = 0; basis < args.bases; ++basis) {
    const float* from = args.v + basis * args.slots.num_rows * args.width + offset;
    float* to = tile + basis * kStrip;
    for (int64_t row = first; row < last; ++row) {
      if (indptr[row] == indptr[row + 1]) continue;
      for (int v = 0; v < kVectors; ++v) {
        store(to + (row - first) * args.padded_bases * kStrip + v * kLanes,
              load_columns(from + row * args.width + v * kLanes, columns_of(args.width, offset, v)));
      }
    }
  }
}

// Past the caches a line is not read before it is written: the whole backward pass takes 6 ms of one thread instead of 15
// at MUTAG's size.
template <int kVectors>
JHGNN_INLINE void store_tile(const BasisRows& args, int64_t first, int64_t last, int64_t offset, const float* tile) {
  constexpr int64_t kStrip = kVectors * kLanes;
  for (int64_t basis = 0; basis < args.bases; ++basis) {
    float* to = args.d_v + basis * args.slots.num_rows * args.width + offset;
    const float* from = tile + basis * kStrip;
    for (int64_t row = first; row < last; ++row) {
      for (int v = 0; v < kVectors; ++v) {
        const Floats values = load(from + (row - first) * args.padded_bases * kStrip + v * kLanes);
        if (args.past_caches) {
          store_past_caches(to + row * args.width + v * kLanes, values);
        } else {
          store_columns(to + row * args.width + v * kLanes, values, columns_of(args.width, offset, v));
        }
      }
    }
  }
}

inline static bool basis_entries_in_range(const BasisRows& args, int64_t first, int64_t last) {
  const int64_t begin = args.slots.indptr[first], count = args.slots.indptr[last] - begin;
  return indices_in_range(args.slots.indices + begin, count, args.slots.num_columns) &&
         indices_in_range(args.matrix_of + begin, count, args.matrices);
}

template <int kVectors, typename T>
JHGNN_INLINE void combine_strip(const BasisRows& args, T* z, int64_t first, int64_t last, int64_t offset, float* tile) {
  constexpr int64_t kStrip = kVectors * kLanes;
  const int32_t* indptr = args.slots.indptr;
  const int64_t step = tile_rows<kVectors>(args);
  for (int64_t begin = first; begin < last; begin += step) {
    const int64_t end = begin + step < last ? begin + step : last;
    load_tile<kVectors>(args, begin, end, offset, tile);
    for (int64_t row = begin; row < end; ++row) {
      const float* bases = tile + (row - begin) * args.padded_bases * kStrip;
      for (int64_t entry = indptr[row]; entry < indptr[row + 1]; ++entry) {
        if (args.values[entry] == 0.0f) continue;  // dropped; z is zero
        const float* c = args.c + args.matrix_of[entry] * args.padded_bases;
        Floats sums[kVectors] = {};
        for (int64_t basis = 0; basis < args.bases; ++basis) {
          const Floats factor = splat(c[basis]);
          for (int v = 0; v < kVectors; ++v) sums[v] += factor * load(bases + basis * kStrip + v * kLanes);
        }
        T* to = z + args.slots.indices[entry] * args.width + offset;
        const Floats value = splat(args.values[entry]);
        for (int v = 0; v < kVectors; ++v) {
          store_columns(to + v * kLanes, sums[v] * value, columns_of(args.width, offset, v));
        }
      }
    }
  }
}

// Writes z, zeros at first, of the slots of rows [first, last). `tile` has kBasisTile floats or one row's strip of all bases.
inline static bool basis_rows(const BasisRows& args, int64_t first, int64_t last, float* tile) {
  if (!basis_entries_in_range(args, first, last)) return false;
  for_element(args.z, [&](const auto* data) __attribute__((always_inline)) {
    auto* z = const_cast<std::remove_const_t<std::remove_pointer_t<decltype(data)>>*>(data);
    for_strips(args.width, [&](auto vectors, int64_t offset) __attribute__((always_inline)) {
      combine_strip<decltype(vectors)::value>(args, z, first, last, offset, tile);
    });
  });
  return true;
}

// The sum of each of kLanes vectors, in its lane.
JHGNN_INLINE Floats sums_of_each(Floats* v) {
  Ints even, odd;
  for (int lane = 0; lane < kLanes; ++lane) even[lane] = 2 * lane, odd[lane] = 2 * lane + 1;
#pragma GCC unroll 4
  for (int vectors = kLanes / 2; vectors > 0; vectors /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < vectors; ++i) {
      v[i] = __builtin_shuffle(v[2 * i], v[2 * i + 1], even) + __builtin_shuffle(v[2 * i], v[2 * i + 1], odd);
    }
  }
  return v[0];
}

// Adds one entry's outer product c d to d_bases, and its bases times d to d_c.
template <int kVectors>
JHGNN_INLINE void add_entry(const BasisRows& args, const float* c, const Floats* d, const float* bases, float* d_bases,
                            float* d_c) {
  constexpr int64_t kStrip = kVectors * kLanes;
  for (int64_t basis = 0; basis < args.bases; ++basis) {
    const Floats factor = splat(c[basis]);
    for (int v = 0; v < kVectors; ++v) add_to(d_bases + basis * kStrip + v * kLanes, factor * d[v]);
  }
  for (int64_t basis = 0; basis < args.bases; basis += kLanes) {
    Floats products[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      products[i] = load(bases + (basis + i) * kStrip) * d[0];
      for (int v = 1; v < kVectors; ++v) products[i] += load(bases + (basis + i) * kStrip + v * kLanes) * d[v];
    }
    add_to(d_c + basis, sums_of_each(products));
  }
}

template <int kVectors, typename T>
JHGNN_INLINE void differentiate_strip(const BasisRows& args, const T* cotangent, int64_t first, int64_t last,
                                      int64_t offset, float* tile, float* d_tile, float* d_c) {
  constexpr int64_t kStrip = kVectors * kLanes;
  const int32_t* indptr = args.slots.indptr;
  const int64_t step = tile_rows<kVectors>(args), row_size = args.padded_bases * kStrip;
  // Before this strip another one may have had the tile: the padding of bases is multiplied, and has to be finite.
  __builtin_memset(tile, 0, step * row_size * sizeof(float));
  for (int64_t begin = first; begin < last; begin += step) {
    const int64_t end = begin + step < last ? begin + step : last;
    load_tile<kVectors>(args, begin, end, offset, tile);
    __builtin_memset(d_tile, 0, (end - begin) * row_size * sizeof(float));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t entry = indptr[row]; entry < indptr[row + 1]; ++entry) {
        if (args.values[entry] == 0.0f) continue;
        const T* from = cotangent + args.slots.indices[entry] * args.width + offset;
        const Floats value = splat(args.values[entry]);
        Floats d[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          d[v] = value * load_columns(from + v * kLanes, columns_of(args.width, offset, v));
        }
        const int64_t of_matrix = args.matrix_of[entry] * args.padded_bases;
        add_entry<kVectors>(args, args.c + of_matrix, d, tile + (row - begin) * row_size, d_tile + (row - begin) * row_size,
                            d_c + of_matrix);
      }
    }
    store_tile<kVectors>(args, begin, end, offset, d_tile);
  }
}

// Writes d_v of rows [first, last), and adds their part of c's gradient to d_c [matrices, padded_bases]. `scratch` has two
// tiles.
inline static bool basis_rows_backward(const BasisRows& args, int64_t first, int64_t last, float* scratch, float* d_c) {
  if (!basis_entries_in_range(args, first, last)) return false;
  for_element(args.z, [&](const auto* cotangent) __attribute__((always_inline)) {
    for_strips(args.width, [&](auto vectors, int64_t offset) __attribute__((always_inline)) {
      differentiate_strip<decltype(vectors)::value>(args, cotangent, first, last, offset, scratch,
                                                    scratch + basis_tile_size(args), d_c);
    });
  });
  finish_stores();
  return true;
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

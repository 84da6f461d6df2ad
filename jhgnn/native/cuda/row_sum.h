// Sums of the rows of a matrix along compressed rows: means, weighted sums and sparse products, both ways.
#pragma once

#include "csr_tiles.h"

namespace jhgnn::cuda {

template <typename T>
struct RowSumArguments {
  Csr csr;
  Tiles tiles;
  const T* x;            // [num_columns, width]
  const float* weights;  // [num_entries], or null
  const float* scale;    // [num_columns], or null
  T* out;                // [num_rows, width]
  int32_t width;
  int32_t mean;  // divide by the number of entries
};

template <typename T, int kVector, int kPacks>
struct RowSum {
  struct State {
    static constexpr int kSize = kVector * kPacks;
    float values[kSize];
  };
  struct Row {};
  struct Entry {
    float values[kVector * kPacks];
    float factor;
  };
  using Word = Pack<T, kVector>;

  const RowSumArguments<T>& given;

  JHGNN_DEVICE State empty() const {
    State state;
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state.values[i] = 0.0f;
    return state;
  }

  JHGNN_DEVICE Row enter(int32_t) const { return {}; }

  JHGNN_DEVICE Entry read(int32_t position, int32_t column) const {
    Entry entry;
    entry.factor = given.weights ? given.weights[position] : 1.0f;
    if (given.scale) entry.factor *= given.scale[column];
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t first = columns().of(pack, given.tiles);
      Word word{};
      if (first < given.width) {
        word = *reinterpret_cast<const Word*>(given.x + static_cast<int64_t>(column) * given.width + first);
      }
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) entry.values[pack * kVector + i] = to_float(word.values[i]);
    }
    return entry;
  }

  JHGNN_DEVICE void add(const Row&, const Entry& entry, State* state) const {
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state->values[i] += entry.factor * entry.values[i];
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state->values[i] += other.values[i];
  }

  JHGNN_DEVICE void store(int32_t row, const State& state) const {
    const int32_t entries = given.csr.count(row);
    const float divisor = given.mean && entries > 0 ? static_cast<float>(entries) : 1.0f;
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t first = columns().of(pack, given.tiles);
      if (first >= given.width) continue;
      Word word;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) word.values[i] = from_float<T>(state.values[pack * kVector + i] / divisor);
      *reinterpret_cast<Word*>(given.out + static_cast<int64_t>(row) * given.width + first) = word;
    }
  }

  JHGNN_DEVICE void clear(int32_t row) const { store(row, empty()); }

  JHGNN_DEVICE Columns<kVector, kPacks> columns() const { return {given.width}; }
};

}  // namespace jhgnn::cuda

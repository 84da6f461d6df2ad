// Sums along compressed rows of any lengths, by warps that each take the same number of entries: the skeleton of every
// kernel here. Hubs are cut wherever a tile ends, short rows share a warp, and there is no atomic.
//
// A warp walks its tile row by row. The lanes of a group cover the columns of an entry; the groups of a warp take
// entries in turn and are joined at the row's end. A row that lies in one tile is stored; what a tile has of a row that
// goes on beyond it is carried, and a second kernel joins the carries of each such row in the order of tiles, so that
// results do not depend on the order in which warps run. Rows without entries are cleared by warps of their own.
#pragma once

#include "device.h"

namespace jhgnn::cuda {

struct Csr {
  const int32_t* indptr;   // [num_rows + 1]
  const int32_t* ends;     // [num_rows]: entries of a row from there on are padding; null: there is none
  const int32_t* indices;  // [num_entries]; those from indptr[num_rows] on belong to no row
  int32_t num_rows;
  int32_t num_entries;

  // How many entries belong to a row.
  JHGNN_DEVICE int32_t used() const {
    const int32_t last = indptr[num_rows];
    return last < num_entries ? last : num_entries;
  }
  // Of a row, without its padding.
  JHGNN_DEVICE int32_t count(int32_t row) const { return (ends ? ends[row] : indptr[row + 1]) - indptr[row]; }
};

// How the work is cut; the same for both kernels.
struct Tiles {
  int32_t entries;        // of a tile
  int32_t count;          // of tiles
  int32_t group;          // lanes that cover an entry's columns, a power of two
  int32_t column_blocks;  // warps side by side, each with as many columns as a group covers
  float* carries;         // [count, 2, column_blocks, State::kSize, group]
};

constexpr int kRowsOfAWarp = 32;  // to look through for rows without entries

JHGNN_DEVICE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// The row that an entry belongs to.
JHGNN_DEVICE int32_t row_of(const Csr& csr, int32_t entry) {
  int32_t low = 0, high = csr.num_rows - 1;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (csr.indptr[middle + 1] > entry) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

JHGNN_DEVICE int member(const Tiles& tiles) { return lane() & (tiles.group - 1); }

template <class State>
JHGNN_DEVICE float* carry_of(const Tiles& tiles, int64_t tile, int slot) {
  const int64_t place = (tile * 2 + slot) * tiles.column_blocks + column_block();
  return tiles.carries + place * State::kSize * tiles.group + member(tiles);
}

template <class State>
JHGNN_DEVICE void save(const State& state, float* to, int stride) {
JHGNN_UNROLL
  for (int i = 0; i < State::kSize; ++i) to[i * stride] = state.values[i];
}

template <class State>
JHGNN_DEVICE void load(State* state, const float* from, int stride) {
JHGNN_UNROLL
  for (int i = 0; i < State::kSize; ++i) state->values[i] = from[i * stride];
}

// The entries [begin, end) of one row, by the groups of a warp; every lane has the sum of its columns.
template <class Op>
JHGNN_DEVICE void sum_entries(const Csr& csr, const Tiles& tiles, const Op& op, const typename Op::Row& row, int32_t begin,
                              int32_t end, typename Op::State* state) {
  const int32_t step = 32 / tiles.group;
  int32_t at = begin + lane() / tiles.group;
  // Four entries are on their way at a time: a warp waits for memory most of the time.
  for (; at + 3 * step < end; at += 4 * step) {
    typename Op::Entry entries[4];
JHGNN_UNROLL
    for (int i = 0; i < 4; ++i) entries[i] = op.read(at + i * step, csr.indices[at + i * step]);
JHGNN_UNROLL
    for (int i = 0; i < 4; ++i) op.add(row, entries[i], state);
  }
#if JHGNN_FAULT != 1  // planted in tests: a missed tail
  for (; at < end; at += step) op.add(row, op.read(at, csr.indices[at]), state);
#endif
  for (int mask = tiles.group; mask < 32; mask *= 2) {
    typename Op::State other = *state;
    from_lane_xor(other.values, mask);
    op.join(other, state);
  }
}

// First kernel: a warp a tile, and behind the tiles a warp for each 32 rows to clear those without entries.
template <class Op>
JHGNN_DEVICE void sum_tiles(const Csr& csr, const Tiles& tiles, const Op& op) {
  using State = typename Op::State;
  const int64_t number = block() * warps() + warp();
  if (number >= tiles.count) {
    const int64_t first = (number - tiles.count) * kRowsOfAWarp;
    for (int64_t row = first; row < first + kRowsOfAWarp && row < csr.num_rows; ++row) {
      if (csr.indptr[row] == csr.indptr[row + 1] && lane() < tiles.group) op.clear(static_cast<int32_t>(row));
    }
    return;
  }
  const int32_t begin = static_cast<int32_t>(number) * tiles.entries;
  const int32_t end = smaller(begin + tiles.entries, csr.used());
  int32_t at = begin;
  int32_t row = at < end ? row_of(csr, at) : 0;
  while (at < end) {
    const int32_t row_end = csr.indptr[row + 1];
    const int32_t stop = smaller(row_end, end);
    State state = op.empty();
    sum_entries(csr, tiles, op, op.enter(row), at, csr.ends ? smaller(stop, csr.ends[row]) : stop, &state);
    const bool begins_here = csr.indptr[row] >= begin;
    if (lane() < tiles.group) {
      if (begins_here && row_end <= end) {
        op.store(row, state);
      } else {
        save(state, carry_of<State>(tiles, number, begins_here ? 1 : 0), tiles.group);
      }
    }
    at = stop;
    ++row;
    if (at < end && csr.indptr[row + 1] <= at) row = row_of(csr, at);  // rows without entries lie between
  }
}

// Second kernel: a block a tile. The one where a row begins that goes on joins all that tiles have of it.
template <class Op>
JHGNN_DEVICE void join_tiles(const Csr& csr, const Tiles& tiles, const Op& op) {
  using State = typename Op::State;
  const int64_t tile = block();
  const int32_t begin = static_cast<int32_t>(tile) * tiles.entries;
  const int32_t end = smaller(begin + tiles.entries, csr.used());
  if (begin >= end) return;
  const int32_t row = row_of(csr, end - 1);
  const int32_t row_end = csr.indptr[row + 1];
  if (csr.indptr[row] < begin || row_end <= end) return;  // it began before, or ends here: the whole block leaves
  const int64_t pieces = (row_end - 1) / tiles.entries - tile + 1;
  State state = op.empty();
  for (int64_t i = warp(); i < pieces; i += warps()) {
    State other;
    load(&other, carry_of<State>(tiles, tile + i, i == 0 ? 1 : 0), tiles.group);
    op.join(other, &state);
  }
  float* shared = shared_floats();
  save(state, shared + warp() * State::kSize * 32 + lane(), 32);
#if JHGNN_FAULT != 3  // planted in tests: what a race looks like, a sum read before it is written
  sync_block();
#endif
  if (warp() != 0) return;
  for (int other_warp = 1; other_warp < warps(); ++other_warp) {
    State other;
    load(&other, shared + other_warp * State::kSize * 32 + lane(), 32);
    op.join(other, &state);
  }
  if (lane() < tiles.group) op.store(row, state);
}

// Where the columns of a lane lie: `kPacks` words of `kVector` neighbouring columns.
template <int kVector, int kPacks>
struct Columns {
  int32_t width;  // of a row, all columns

  JHGNN_DEVICE int32_t of(int pack, const Tiles& tiles) const {
    return ((column_block() * kPacks + pack) * tiles.group + member(tiles)) * kVector;
  }
};

}  // namespace jhgnn::cuda

// Sums along compressed rows of any lengths, by groups of lanes that each take the same number of entries: the skeleton of
// every kernel here. Hubs are cut wherever a tile ends, short rows share a tile, and there is no atomic.
//
// The lanes of a group cover the columns of an entry. A group walks its tile a few entries at a time, whatever rows they
// belong to: rows of graphs are short, and a walk row by row would wait for memory once a row. All that a few entries need,
// of their rows as well, is asked for at once, and while it is on its way the next ones' columns are read and their rows
// found; where a row ends nothing is read. A row that lies in one tile is stored; what a tile has of a row that goes on
// beyond it is carried, and a second kernel joins the carries of each such row in the order of tiles, so that results do
// not depend on the order in which groups run. Rows without entries are cleared by groups of their own.
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
};

// How the work is cut; the same for both kernels.
struct Tiles {
  int32_t entries;        // of a tile
  int32_t count;          // of tiles
  int32_t group;          // lanes that cover an entry's columns, a power of two
  int32_t column_blocks;  // groups side by side, each with as many columns as its lanes cover
  float* carries;         // [count, 2, column_blocks, State::kSize, group], then an int32 [count]: see `cut_row_of`
};

constexpr int kRowsToClear = 32;  // that a group looks through for rows without entries
constexpr int kNear = 16;         // rows that are looked at one by one for the next one with entries
constexpr int kFewPieces = 64;    // of a cut row that one warp joins alone

JHGNN_DEVICE int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

// The row that an entry belongs to, among those from `low` on.
JHGNN_DEVICE int32_t row_of(const Csr& csr, int32_t entry, int32_t low) {
  int32_t high = csr.num_rows - 1;
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

JHGNN_DEVICE int member(const Tiles& tiles) { return thread() & (tiles.group - 1); }

// The first of the `kVector` columns that are a lane's own.
template <int kVector>
JHGNN_DEVICE int32_t column_of(const Tiles& tiles) {
  return (column_block() * tiles.group + member(tiles)) * kVector;
}

template <class State>
JHGNN_DEVICE float* carry_of(const Tiles& tiles, int64_t tile, int slot) {
  const int64_t place = (tile * 2 + slot) * tiles.column_blocks + column_block();
  return tiles.carries + place * State::kSize * tiles.group + member(tiles);
}

// Which row begins in a tile and goes on beyond it; -1: none.
template <class State>
JHGNN_DEVICE int32_t* cut_row_of(const Tiles& tiles, int64_t tile) {
  const int64_t carries = static_cast<int64_t>(tiles.count) * 2 * tiles.column_blocks * State::kSize * tiles.group;
  return reinterpret_cast<int32_t*>(tiles.carries + carries) + tile;
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

// The next few entries of a group: their columns, -1 for padding, and their rows.
template <int kAhead>
struct Few {
  int32_t columns[kAhead];
  int32_t rows[kAhead];
};

// Those from `at` on, before `end`; rows are looked for from `row` on, which becomes the last one's.
template <int kAhead>
JHGNN_DEVICE Few<kAhead> few_from(const Csr& csr, int32_t at, int32_t end, int32_t* row) {
  Few<kAhead> few;
JHGNN_UNROLL
  for (int i = 0; i < kAhead; ++i) few.columns[i] = at + i < end ? csr.indices[at + i] : -1;
JHGNN_UNROLL
  for (int i = 0; i < kAhead; ++i) {
    if (at + i < end) {
      int looked = 0;
      while (csr.indptr[*row + 1] <= at + i) {
        ++*row;
        if (++looked == kNear) *row = row_of(csr, at + i, *row);
      }
      if (csr.ends && at + i >= csr.ends[*row]) few.columns[i] = -1;
    }
    few.rows[i] = *row;
  }
  return few;
}

// First kernel: a group a tile, and behind the tiles a group for every few rows to clear those without entries.
template <class Op>
JHGNN_DEVICE void sum_tiles(const Csr& csr, const Tiles& tiles, const Op& op) {
  using State = typename Op::State;
  constexpr int kAhead = Op::kAhead;  // entries of a group that are on their way at a time
  const int64_t number = block() * (threads() / tiles.group) + thread() / tiles.group;
  if (number >= tiles.count) {
    const int64_t first = (number - tiles.count) * kRowsToClear;
    for (int64_t row = first; row < first + kRowsToClear && row < csr.num_rows; ++row) {
      if (csr.indptr[row] == csr.indptr[row + 1]) op.store(static_cast<int32_t>(row), 0, {}, op.empty());
    }
    return;
  }
  const int32_t begin = static_cast<int32_t>(number) * tiles.entries;
  const int32_t end = smaller(begin + tiles.entries, csr.used());
  const bool marks = member(tiles) == 0 && column_block() == 0 && tiles.count > 1;
  if (begin >= end) {
    if (marks) *cut_row_of<State>(tiles, number) = -1;
    return;
  }
  int32_t row = row_of(csr, begin, 0), found = row, taken = 0;
  bool begins_here = csr.indptr[row] >= begin;
  typename Op::Row own = op.open(row);
  State state = op.empty();
  Few<kAhead> few = few_from<kAhead>(csr, begin, end, &found);
  for (int32_t at = begin; at < end; at += kAhead) {
    typename Op::Entry entries[kAhead];
JHGNN_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      if (few.columns[i] >= 0) entries[i] = op.read(at + i, few.columns[i], few.rows[i]);
    }
    const Few<kAhead> next = few_from<kAhead>(csr, at + kAhead, end, &found);
JHGNN_UNROLL
    for (int i = 0; i < kAhead; ++i) {
#if JHGNN_FAULT == 1  // planted in tests: a missed tail
      if (at + i >= end - (end - begin) % kAhead) break;
#else
      if (at + i >= end) break;
#endif
      if (few.rows[i] != row) {
        if (begins_here) {
          op.store(row, taken, own, state);
        } else {
          save(state, carry_of<State>(tiles, number, 0), tiles.group);
        }
        row = few.rows[i];
        begins_here = true;
        taken = 0;
        own = op.open(row);
        state = op.empty();
      }
      if (few.columns[i] >= 0) {
        op.add(entries[i], &state);
        ++taken;
      }
    }
    few = next;
  }
  const bool ends_here = csr.indptr[row + 1] <= end;
  if (begins_here && ends_here) {
    op.store(row, taken, own, state);
  } else {
    save(state, carry_of<State>(tiles, number, begins_here ? 1 : 0), tiles.group);
  }
  if (marks) *cut_row_of<State>(tiles, number) = begins_here && !ends_here ? row : -1;
}

// The pieces of a row that begins in `tile`, from the first of `mine` on and every `step`-th; each group has those it
// takes, and after it all groups of the warp have their sum.
template <class Op>
JHGNN_DEVICE typename Op::State join_pieces(const Tiles& tiles, const Op& op, int64_t tile, int64_t pieces, int64_t mine,
                                            int64_t step) {
  typename Op::State state = op.empty();
  for (int64_t i = mine; i < pieces; i += step) {
    typename Op::State other;
    load(&other, carry_of<typename Op::State>(tiles, tile + i, i == 0 ? 1 : 0), tiles.group);
    op.join(other, &state);
  }
  for (int mask = tiles.group; mask < 32; mask *= 2) {
    typename Op::State other = state;
    from_lane_xor(other.values, mask);
    op.join(other, &state);
  }
  return state;
}

// Second kernel: a warp a tile. The one where a row begins that goes on joins all that tiles have of it; where they are
// many, all warps of its block do.
template <class Op>
JHGNN_DEVICE void join_tiles(const Csr& csr, const Tiles& tiles, const Op& op) {
  using State = typename Op::State;
  const int64_t first = block() * warps();
  const int groups = 32 / tiles.group, own_group = lane() / tiles.group;
  for (int other_warp = 0; other_warp < warps(); ++other_warp) {
    const int64_t tile = first + other_warp;
    const int32_t row = tile < tiles.count ? *cut_row_of<State>(tiles, tile) : -1;
    if (row < 0) continue;  // for the whole block
    const int32_t row_begin = csr.indptr[row], row_end = csr.indptr[row + 1];
    const int32_t count = (csr.ends ? csr.ends[row] : row_end) - row_begin;
    const int64_t pieces = (row_end - 1) / tiles.entries - tile + 1;
    if (pieces <= kFewPieces) {
      if (warp() != other_warp) continue;
      const State state = join_pieces(tiles, op, tile, pieces, own_group, groups);
      if (lane() < tiles.group) op.store(row, count, op.open(row), state);
      continue;
    }
    State state = join_pieces(tiles, op, tile, pieces, warp() * groups + own_group, warps() * groups);
    float* shared = shared_floats();
    sync_block();  // until nobody reads what was there before
    save(state, shared + warp() * State::kSize * 32 + lane(), 32);
#if JHGNN_FAULT != 3  // planted in tests: what a race looks like, a sum read before it is written
    sync_block();
#endif
    if (warp() != 0) continue;
    state = op.empty();
    for (int of_warp = 0; of_warp < warps(); ++of_warp) {
      State other;
      load(&other, shared + of_warp * State::kSize * 32 + lane(), 32);
      op.join(other, &state);
    }
    if (lane() < tiles.group) op.store(row, count, op.open(row), state);
  }
}

}  // namespace jhgnn::cuda

// The host sampler: fan-out draws and metapath walks from a batch of seeds, deduplicated, padded to capacities.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sampling_draw.h"
#include "sampling_frontier.h"
#include "sampling_pool.h"

namespace jhgnn::sampling {

struct CsrView {
  const int64_t* indptr;
  const int32_t* indices;
};

// A relation (one step, sampled by fan-out) or a metapath (several steps, from the target backwards, walked).
struct Draw {
  int source, target;
  uint32_t key;
  int num_walks;  // 0: a fan-out draw
  std::vector<CsrView> steps;
  std::vector<int> fan_outs;  // [hops]; -1: all, 0: not drawn
  std::vector<int> widths;    // [hops] columns of the table
};

// An array that grows and is not initialised: tables are written whole.
template <typename T>
class Buffer {
 public:
  T* grow(int64_t size) {
    if (size > capacity_) {
      capacity_ = size + size / 4;
      data_.reset(new T[capacity_]);
    }
    return data_.get();
  }
  T* data() const { return data_.get(); }

 private:
  std::unique_ptr<T[]> data_;
  int64_t capacity_ = 0;
};

class Sampler {
 public:
  Sampler(std::vector<int64_t> num_nodes, std::vector<Draw> draws, int num_hops, int threads);

  // Draws a batch; `seeds[type]` are `num_seeds[type]` ids, -1 for padding. Slots of each type that each hop added go
  // to `added` [hops + 1, types]. The result stays here until the next call.
  void sample(uint32_t seed, uint32_t step, const int32_t* const* seeds, const int64_t* num_seeds, int64_t* added);

  // Writes it padded: `capacities` [hops + 1, types] are cumulative slots. `ids[type]` [last capacity]; for each hop
  // and draw `senders` [capacity, width], `num_neighbors` [capacity] and, for walks, `visits` [capacity, width].
  void emit(const int64_t* capacities, int32_t* const* ids, int32_t* const* senders, int32_t* const* num_neighbors,
            int32_t* const* visits);

 private:
  struct Scratch {
    std::vector<uint64_t> seen;
    std::vector<uint32_t> picks;
    std::vector<int64_t> positions;
    std::vector<int32_t> walkers;
    std::vector<int32_t> ends;
  };
  struct Table {
    Buffer<int32_t> ids, counts, visits;
  };
  struct Rows {  // rows [begin, end) of one segment of the frontier that a draw starts from
    int draw, segment;
    int64_t begin, end;
    int64_t row;  // of `begin` among all compact rows of the draw's table
    int hop;
  };

  std::vector<Rows> rows_of(int hop) const;
  void draw_fan_out(const Rows& rows, DrawKeys keys, Scratch& scratch, uint64_t* drawn);
  void walk(const Rows& rows, DrawKeys keys, Scratch& scratch, uint64_t* drawn);
  void advance(int hop);
  void write_rows(const Rows& rows, const int64_t* capacities, int32_t* senders, int32_t* num_neighbors,
                  int32_t* visits) const;
  Table& table(int hop, int draw) { return tables_[hop * draws_.size() + draw]; }
  const Table& table(int hop, int draw) const { return tables_[hop * draws_.size() + draw]; }

  int num_hops_;
  std::vector<Draw> draws_;
  std::vector<Frontier> frontiers_;  // [types]
  std::vector<Table> tables_;        // [hops, draws]
  std::vector<Scratch> scratch_;     // [threads]
  SamplingPool pool_;
};

}  // namespace jhgnn::sampling

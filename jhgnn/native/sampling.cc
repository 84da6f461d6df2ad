#include "sampling.h"

#include <algorithm>
#include <cstring>

// One build for every x86 machine, with the widest vectors, and the population count, that the one at hand has.
#if defined(__x86_64__) && defined(__GLIBC__)
#define JHGNN_VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define JHGNN_VECTOR_CLONES
#endif

namespace jhgnn::sampling {
namespace {

constexpr int64_t kRowsPerTask = 512;
constexpr int kRowsInFlight = 16;   // rows whose neighbours are prefetched before the first is read
constexpr int kWalkersInFlight = 256;

inline void mark(uint64_t* drawn, int32_t id) { drawn[id >> 6] |= uint64_t{1} << (id & 63); }

inline int64_t first_slot(const int64_t* capacities, size_t num_types, int segment, int type) {
  return segment == 0 ? 0 : capacities[(segment - 1) * num_types + type];
}

}  // namespace

Sampler::Sampler(std::vector<int64_t> num_nodes, std::vector<Draw> draws, int num_hops, int threads)
    : num_hops_(num_hops), draws_(std::move(draws)), tables_(num_hops * draws_.size()), pool_(threads) {
  for (int64_t count : num_nodes) frontiers_.emplace_back(count, num_hops, threads);
  scratch_.resize(threads);
  int widest = 1, most_walkers = 1;
  for (const Draw& draw : draws_) {
    for (int width : draw.widths) widest = std::max(widest, width);
    most_walkers = std::max(most_walkers, draw.num_walks);
  }
  for (Scratch& scratch : scratch_) {
    scratch.seen.assign(kSeenBits / 64, 0);
    scratch.picks.resize(widest);
    scratch.positions.resize(std::max(kRowsInFlight * widest, kWalkersInFlight + most_walkers));
    scratch.walkers.resize(kWalkersInFlight + most_walkers);
    scratch.ends.resize(most_walkers);
  }
}

std::vector<Sampler::Rows> Sampler::rows_of(int hop) const {
  std::vector<Rows> tasks;
  for (size_t i = 0; i < draws_.size(); ++i) {
    if (draws_[i].widths[hop] == 0) continue;
    int64_t row = 0;
    for (int segment = 0; segment <= hop; ++segment) {
      const int64_t size = frontiers_[draws_[i].target].size(segment);
      for (int64_t begin = 0; begin < size; begin += kRowsPerTask) {
        const int64_t end = std::min(size, begin + kRowsPerTask);
        tasks.push_back({static_cast<int>(i), segment, begin, end, row + begin, hop});
      }
      row += size;
    }
  }
  return tasks;
}

void Sampler::sample(uint32_t seed, uint32_t step, const int32_t* const* seeds, const int64_t* num_seeds,
                     int64_t* added) {
  const size_t num_types = frontiers_.size();
  for (size_t type = 0; type < num_types; ++type) frontiers_[type].start(seeds[type], num_seeds[type]);
  for (int hop = 0; hop < num_hops_; ++hop) {
    const std::vector<Rows> tasks = rows_of(hop);
    std::vector<DrawKeys> keys;
    for (size_t i = 0; i < draws_.size(); ++i) {
      keys.push_back(stream_keys(seed, step, static_cast<uint32_t>(hop), draws_[i].key));
      int64_t rows = 0;
      for (int segment = 0; segment <= hop; ++segment) rows += frontiers_[draws_[i].target].size(segment);
      table(hop, i).ids.grow(rows * draws_[i].widths[hop]);
      table(hop, i).counts.grow(rows);
      if (draws_[i].num_walks > 0) table(hop, i).visits.grow(rows * draws_[i].widths[hop]);
      if (rows > 0 && draws_[i].widths[hop] > 0) {
        for (int thread = 0; thread < pool_.threads(); ++thread) frontiers_[draws_[i].source].drawn(thread);
      }
    }
    pool_.run(static_cast<int>(tasks.size()), [&](int task, int thread) {
      const Rows& rows = tasks[task];
      const Draw& draw = draws_[rows.draw];
      uint64_t* drawn = frontiers_[draw.source].drawn(thread);
      if (draw.num_walks > 0) {
        walk(rows, keys[rows.draw], scratch_[thread], drawn);
      } else {
        draw_fan_out(rows, keys[rows.draw], scratch_[thread], drawn);
      }
    });
    advance(hop + 1);
  }
  for (int hop = 0; hop <= num_hops_; ++hop) {
    for (size_t type = 0; type < num_types; ++type) added[hop * num_types + type] = frontiers_[type].size(hop);
  }
}

JHGNN_VECTOR_CLONES void Sampler::draw_fan_out(const Rows& rows, DrawKeys keys, Scratch& scratch, uint64_t* drawn) {
  const Draw& draw = draws_[rows.draw];
  const CsrView csr = draw.steps[0];
  const int fan_out = draw.fan_outs[rows.hop], width = draw.widths[rows.hop];
  const int32_t* vertices = frontiers_[draw.target].segment(rows.segment).ids.data();
  int32_t* ids = table(rows.hop, rows.draw).ids.data() + rows.row * width;
  int32_t* counts = table(rows.hop, rows.draw).counts.data() + rows.row;
  for (int64_t begin = rows.begin; begin < rows.end; begin += kRowsInFlight) {
    const int64_t end = std::min(rows.end, begin + kRowsInFlight);
    int64_t* positions = scratch.positions.data();
    for (int64_t i = begin; i < end; ++i, positions += width) {
      const int32_t vertex = vertices[i];
      const int64_t start = vertex < 0 ? 0 : csr.indptr[vertex];
      const int64_t degree = vertex < 0 ? 0 : csr.indptr[vertex + 1] - start;
      if (fan_out < 0 || degree <= fan_out) {
        counts[i - rows.begin] = static_cast<int32_t>(degree);
        for (int64_t j = 0; j < degree; ++j) positions[j] = start + j;
        for (int64_t j = 0; j < degree; j += 16) __builtin_prefetch(csr.indices + start + j);
        continue;
      }
      counts[i - rows.begin] = fan_out;
      const DrawKeys own = fold(keys, static_cast<uint32_t>(vertex));
      neighbor_offsets(own, static_cast<uint32_t>(degree), fan_out, scratch.seen.data(), scratch.picks.data());
      for (int j = 0; j < fan_out; ++j) {
        positions[j] = start + scratch.picks[j];
        __builtin_prefetch(csr.indices + positions[j]);
      }
    }
    positions = scratch.positions.data();
    for (int64_t i = begin; i < end; ++i, positions += width) {
      int32_t* row = ids + (i - rows.begin) * width;
      for (int j = 0; j < counts[i - rows.begin]; ++j) {
        row[j] = csr.indices[positions[j]];
        mark(drawn, row[j]);
      }
    }
  }
}

void Sampler::walk(const Rows& rows, DrawKeys keys, Scratch& scratch, uint64_t* drawn) {
  const Draw& draw = draws_[rows.draw];
  const int num_walks = draw.num_walks, width = draw.widths[rows.hop];
  const uint32_t num_steps = static_cast<uint32_t>(draw.steps.size());
  const int64_t rows_at_once = std::max(1, kWalkersInFlight / num_walks);
  const int32_t* vertices = frontiers_[draw.target].segment(rows.segment).ids.data();
  int32_t* ids = table(rows.hop, rows.draw).ids.data() + rows.row * width;
  int32_t* visits = table(rows.hop, rows.draw).visits.data() + rows.row * width;
  int32_t* counts = table(rows.hop, rows.draw).counts.data() + rows.row;
  for (int64_t begin = rows.begin; begin < rows.end; begin += rows_at_once) {
    const int64_t end = std::min(rows.end, begin + rows_at_once);
    int32_t* walkers = scratch.walkers.data();
    int64_t* positions = scratch.positions.data();
    const int64_t num_walkers = (end - begin) * num_walks;
    for (int64_t i = 0; i < num_walkers; ++i) walkers[i] = vertices[begin + i / num_walks];
    for (uint32_t step = 0; step < num_steps; ++step) {  // all walkers side by side, so that their misses overlap
      const CsrView csr = draw.steps[step];
      for (int64_t i = 0; i < num_walkers; ++i) {
        if (walkers[i] >= 0) __builtin_prefetch(csr.indptr + walkers[i]);
      }
      for (int64_t i = 0; i < num_walkers; ++i) {
        positions[i] = -1;
        if (walkers[i] < 0) continue;
        const int64_t start = csr.indptr[walkers[i]], degree = csr.indptr[walkers[i] + 1] - start;
        if (degree == 0) continue;
        const DrawKeys own = fold(keys, static_cast<uint32_t>(vertices[begin + i / num_walks]));
        const uint32_t counter = static_cast<uint32_t>(i % num_walks) * num_steps + step;
        positions[i] = start + uniform_below(own, counter, static_cast<uint32_t>(degree));
        __builtin_prefetch(csr.indices + positions[i]);
      }
      for (int64_t i = 0; i < num_walkers; ++i) walkers[i] = positions[i] < 0 ? -1 : csr.indices[positions[i]];
    }
    for (int64_t i = begin; i < end; ++i) {
      // Most visited first, then the smaller id.
      int32_t* ends = scratch.ends.data();
      std::copy_n(walkers + (i - begin) * num_walks, num_walks, ends);
      std::sort(ends, ends + num_walks);
      int64_t* runs = positions;  // visits and id packed so that the order wanted is descending
      int num_runs = 0;
      for (int j = static_cast<int>(std::lower_bound(ends, ends + num_walks, 0) - ends); j < num_walks;) {
        const int first = j;
        while (j < num_walks && ends[j] == ends[first]) ++j;
        runs[num_runs++] = (static_cast<int64_t>(j - first) << 32) | static_cast<uint32_t>(INT32_MAX - ends[first]);
      }
      const int kept = std::min(num_runs, width);
      std::partial_sort(runs, runs + kept, runs + num_runs, std::greater<int64_t>());
      const int64_t row = i - rows.begin;
      counts[row] = kept;
      for (int j = 0; j < kept; ++j) {
        ids[row * width + j] = INT32_MAX - static_cast<int32_t>(runs[j] & 0xFFFFFFFF);
        visits[row * width + j] = static_cast<int32_t>(runs[j] >> 32);
        mark(drawn, ids[row * width + j]);
      }
    }
  }
}

void Sampler::advance(int hop) {
  std::vector<std::pair<int, int64_t>> blocks;
  for (size_t type = 0; type < frontiers_.size(); ++type) {
    frontiers_[type].reserve(hop);
    for (int64_t block = 0; block < frontiers_[type].num_blocks(); ++block) blocks.push_back({type, block});
  }
  const int num_tasks = static_cast<int>(blocks.size());
  pool_.run(num_tasks, [&](int task, int) { frontiers_[blocks[task].first].merge(hop, blocks[task].second); });
  for (Frontier& frontier : frontiers_) frontier.total(hop);
  pool_.run(num_tasks, [&](int task, int) { frontiers_[blocks[task].first].collect(hop, blocks[task].second); });
}

void Sampler::emit(const int64_t* capacities, int32_t* const* ids, int32_t* const* senders,
                   int32_t* const* num_neighbors, int32_t* const* visits) {
  const size_t num_types = frontiers_.size(), num_draws = draws_.size();
  std::vector<Rows> tasks;
  for (int hop = 0; hop < num_hops_; ++hop) {
    const std::vector<Rows> own = rows_of(hop);
    tasks.insert(tasks.end(), own.begin(), own.end());
  }
  for (size_t type = 0; type < num_types; ++type) {
    int64_t slot = 0;
    for (int segment = 0; segment <= num_hops_; ++segment) {
      const std::vector<int32_t>& own = frontiers_[type].segment(segment).ids;
      std::copy(own.begin(), own.end(), ids[type] + slot);
      const int64_t end = capacities[segment * num_types + type];
      std::fill(ids[type] + slot + own.size(), ids[type] + end, -1);
      // Rows of padding slots: no neighbours.
      for (size_t i = 0; i < num_draws; ++i) {
        if (draws_[i].target != static_cast<int>(type)) continue;
        for (int hop = segment; hop < num_hops_; ++hop) {
          const int64_t width = draws_[i].widths[hop], begin = slot + static_cast<int64_t>(own.size());
          if (width == 0 || begin == end) continue;
          const size_t at = hop * num_draws + i;
          std::memset(num_neighbors[at] + begin, 0, (end - begin) * sizeof(int32_t));
          std::memset(senders[at] + begin * width, 0, (end - begin) * width * sizeof(int32_t));
          if (visits[at]) std::memset(visits[at] + begin * width, 0, (end - begin) * width * sizeof(int32_t));
        }
      }
      slot = end;
    }
  }
  pool_.run(static_cast<int>(tasks.size()), [&](int task, int) {
    const size_t at = tasks[task].hop * num_draws + tasks[task].draw;
    write_rows(tasks[task], capacities, senders[at], num_neighbors[at], visits[at]);
  });
}

JHGNN_VECTOR_CLONES void Sampler::write_rows(const Rows& rows, const int64_t* capacities, int32_t* senders,
                                             int32_t* num_neighbors, int32_t* visits) const {
  const Draw& draw = draws_[rows.draw];
  const int64_t width = draw.widths[rows.hop];
  const Table& from = table(rows.hop, rows.draw);
  const Frontier& frontier = frontiers_[draw.source];
  const size_t num_types = frontiers_.size();
  std::vector<int64_t> first_slots;
  for (int segment = 0; segment <= rows.hop + 1; ++segment) {
    first_slots.push_back(first_slot(capacities, num_types, segment, draw.source));
  }
  const int64_t to = first_slot(capacities, num_types, rows.segment, draw.target) + rows.begin;
  for (int64_t i = 0; i < rows.end - rows.begin; ++i) {
    const int32_t* ids = from.ids.data() + (rows.row + i) * width;
    const int64_t count = from.counts.data()[rows.row + i];
    int32_t* row = senders + (to + i) * width;
    for (int64_t j = 0; j < count; ++j) {
      int segment = rows.hop + 1;  // the newest first: most of a hop's draws are new vertices
      while (!frontier.segment(segment).holds(ids[j])) --segment;
      row[j] = static_cast<int32_t>(first_slots[segment]) + frontier.segment(segment).slot(ids[j]);
    }
    std::fill(row + count, row + width, 0);
    num_neighbors[to + i] = static_cast<int32_t>(count);
    if (visits != nullptr) {
      int32_t* own = visits + (to + i) * width;
      std::copy_n(from.visits.data() + (rows.row + i) * width, count, own);
      std::fill(own + count, own + width, 0);
    }
  }
}

}  // namespace jhgnn::sampling

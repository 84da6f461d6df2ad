// The C interface that jhgnn/sampling/native.py calls through ctypes, which releases the GIL for each call.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>

#include "mapped_pages.h"
#include "sampling.h"

namespace sampling = jhgnn::sampling;

namespace {

thread_local std::string last_error;

template <typename Body>
int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
    return 1;
  }
}

}  // namespace

extern "C" {

struct JhgnnDraw {
  int32_t source, target;
  uint32_t key;
  int32_t num_walks, num_steps;
  const int64_t* const* indptrs;
  const int32_t* const* indices;
  const int32_t* fan_outs;
  const int32_t* widths;
};

const char* jhgnn_sampler_error() { return last_error.c_str(); }

void* jhgnn_sampler_create(const int64_t* num_nodes, int32_t num_types, const JhgnnDraw* draws, int32_t num_draws,
                           int32_t num_hops, int32_t threads) {
  void* made = nullptr;
  guarded([&] {
    std::vector<sampling::Draw> own;
    for (int32_t i = 0; i < num_draws; ++i) {
      const JhgnnDraw& draw = draws[i];
      std::vector<sampling::CsrView> steps;
      for (int32_t step = 0; step < draw.num_steps; ++step) steps.push_back({draw.indptrs[step], draw.indices[step]});
      own.push_back({draw.source, draw.target, draw.key, draw.num_walks, steps,
                     std::vector<int>(draw.fan_outs, draw.fan_outs + num_hops),
                     std::vector<int>(draw.widths, draw.widths + num_hops)});
    }
    made = new sampling::Sampler({num_nodes, num_nodes + num_types}, std::move(own), num_hops, threads);
  });
  return made;
}

void jhgnn_sampler_destroy(void* sampler) { delete static_cast<sampling::Sampler*>(sampler); }

int jhgnn_sampler_sample(void* sampler, uint32_t seed, uint32_t step, const int32_t* const* seeds,
                         const int64_t* num_seeds, int64_t* added) {
  return guarded([&] { static_cast<sampling::Sampler*>(sampler)->sample(seed, step, seeds, num_seeds, added); });
}

int jhgnn_sampler_emit(void* sampler, const int64_t* capacities, int32_t* const* ids, int32_t* const* senders,
                       int32_t* const* num_neighbors, int32_t* const* visits) {
  return guarded(
      [&] { static_cast<sampling::Sampler*>(sampler)->emit(capacities, ids, senders, num_neighbors, visits); });
}

// For the test that holds this copy of the draw against jhgnn/sampling/draw.py: offsets [count, fan_out].
void jhgnn_sampler_offsets(uint32_t seed, uint32_t step, uint32_t hop, uint32_t relation, const int32_t* vertices,
                           const int32_t* degrees, int64_t count, int32_t fan_out, int32_t* offsets) {
  std::vector<uint64_t> seen(sampling::kSeenBits / 64, 0);
  std::vector<uint32_t> picks(fan_out);
  const sampling::DrawKeys keys = sampling::stream_keys(seed, step, hop, relation);
  for (int64_t i = 0; i < count; ++i) {
    int32_t* row = offsets + i * fan_out;
    std::fill(row, row + fan_out, 0);
    if (degrees[i] <= fan_out) {
      for (int32_t j = 0; j < degrees[i]; ++j) row[j] = j;
      continue;
    }
    const sampling::DrawKeys own = sampling::fold(keys, static_cast<uint32_t>(vertices[i]));
    sampling::neighbor_offsets(own, static_cast<uint32_t>(degrees[i]), fan_out, seen.data(), picks.data());
    std::copy(picks.begin(), picks.end(), row);
  }
}

// Copies rows `ids` of `row_bytes` each; an id below 0 gives zeros.
void jhgnn_gather_rows(const char* table, int64_t row_bytes, const int32_t* ids, int64_t count, char* out) {
  constexpr int64_t kAhead = 8;
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count && ids[i + kAhead] >= 0) {
      const char* ahead = table + ids[i + kAhead] * row_bytes;
      for (int64_t byte = 0; byte < row_bytes; byte += 64) __builtin_prefetch(ahead + byte);
    }
    if (ids[i] < 0) {
      std::memset(out + i * row_bytes, 0, row_bytes);
    } else {
      std::memcpy(out + i * row_bytes, table + ids[i] * row_bytes, row_bytes);
    }
  }
}

// Has the system read the pages that rows of a mapped file lie on, without waiting; the number of reads asked for, or -1.
int64_t jhgnn_expect_rows(const char* table, int64_t row_bytes, const int32_t* ids, int64_t count, int32_t ask_always) {
  int64_t asked = -1;
  guarded([&] { asked = jhgnn::expect_rows(table, row_bytes, ids, count, ask_always != 0); });
  return asked;
}

}  // extern "C"

// Compressed rows without the entries whose value is zero, which dropout of features leaves most of them with.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace jhgnn {

// A copy reads all values twice and writes what is left: we take a quarter of zeros to be worth it.
constexpr int64_t kSampledValues = 256, kWorthwhileZeros = kSampledValues / 4;

// Entries that one thread copies in tens of microseconds, as long as it takes to wake another.
constexpr int64_t kCopiedAlone = 1 << 15;

// Whether a good part of the values are zeros, by some of them.
inline bool many_zeros(const float* values, int64_t count) {
  if (count < kSampledValues) return false;
  int64_t zeros = 0;
  for (int64_t i = 0; i < kSampledValues; ++i) zeros += values[count / kSampledValues * i] == 0.0f;
  return zeros >= kWorthwhileZeros;
}

struct NonzeroRows {
  std::vector<int32_t> indptr;
  std::unique_ptr<int32_t[]> indices;
  std::unique_ptr<float[]> values;
};

// The entries of `csr` with a value other than zero, in their order. `borders` cuts the rows into blocks.
inline NonzeroRows nonzero_rows(xla::ffi::ThreadPool& pool, const CsrView& csr, const float* values,
                                const std::vector<int64_t>& borders) {
  NonzeroRows kept;
  kept.indptr.resize(csr.num_rows + 1);
  int32_t* indptr = kept.indptr.data();
  const int64_t blocks = static_cast<int64_t>(borders.size()) - 1;
  const auto for_blocks = [&](const auto& body) {
    if (csr.num_edges > kCopiedAlone) return parallel_for(pool, blocks, body);
    for (int64_t block = 0; block < blocks; ++block) body(block);
  };
  for_blocks([&](int64_t block) {
    for (int64_t row = borders[block]; row < borders[block + 1]; ++row) {
      int32_t count = 0;
      for (int64_t entry = csr.indptr[row]; entry < csr.indptr[row + 1]; ++entry) count += values[entry] != 0.0f;
      indptr[row + 1] = count;
    }
  });
  for (int64_t row = 0; row < csr.num_rows; ++row) indptr[row + 1] += indptr[row];
  const int64_t total = indptr[csr.num_rows];
  kept.indices.reset(new int32_t[total]);
  kept.values.reset(new float[total]);
  for_blocks([&](int64_t block) {
    const int64_t end = indptr[borders[block + 1]];
    int64_t entry = csr.indptr[borders[block]];
    // Without a branch on the value, which nothing could predict.
    for (int64_t at = indptr[borders[block]]; at < end; ++entry) {
      kept.indices[at] = csr.indices[entry];
      kept.values[at] = values[entry];
      at += values[entry] != 0.0f;
    }
  });
  return kept;
}

}  // namespace jhgnn

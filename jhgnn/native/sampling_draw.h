// The C++ copy of jhgnn/sampling/draw.py: the same bits from (seed, step, hop, relation, vertex).
#pragma once

#include <cstdint>

#include "counter_hash.h"

namespace jhgnn::sampling {

constexpr uint32_t kSamplingSalts[2] = {0x243F6A88u, 0x85A308D3u};
constexpr int kMaxFanOut = 1024;

struct DrawKeys {
  uint32_t first, second;
};

inline uint32_t fold(uint32_t key, uint32_t word) { return mix((key ^ word) + kGolden); }

inline DrawKeys fold(DrawKeys keys, uint32_t word) { return {fold(keys.first, word), fold(keys.second, word)}; }

inline DrawKeys stream_keys(uint32_t seed, uint32_t step, uint32_t hop, uint32_t relation) {
  return fold(fold(fold(fold(DrawKeys{kSamplingSalts[0], kSamplingSalts[1]}, seed), step), hop), relation);
}

// Uniform in [0, bound): the high word of a 64 x 32 bit product.
inline uint32_t uniform_below(DrawKeys keys, uint32_t counter, uint32_t bound) {
  const uint32_t spread = counter * kGolden;
  const uint64_t high = static_cast<uint64_t>(mix(keys.first + spread)) * bound;
  const uint64_t low = static_cast<uint64_t>(mix(keys.second + spread)) * bound;
  return static_cast<uint32_t>((high + (low >> 32)) >> 32);
}

// Offsets of a uniform subset of `fan_out` of `degree` > fan_out neighbours, by Floyd's algorithm. `seen` holds
// kSeenBits zero bits, and does so again on return: up to that degree it answers what was taken in one look.
constexpr uint32_t kSeenBits = 1u << 16;

inline void neighbor_offsets(DrawKeys keys, uint32_t degree, int fan_out, uint64_t* seen, uint32_t* picks) {
  const uint32_t base = degree - static_cast<uint32_t>(fan_out);
  for (int i = 0; i < fan_out; ++i) {  // apart from the second loop, so that it vectorises
    picks[i] = uniform_below(keys, static_cast<uint32_t>(i), base + static_cast<uint32_t>(i) + 1u);
  }
  if (degree <= kSeenBits) {
    for (int i = 0; i < fan_out; ++i) {
      uint32_t pick = picks[i];
      if (seen[pick >> 6] >> (pick & 63u) & 1u) pick = picks[i] = base + static_cast<uint32_t>(i);
      seen[pick >> 6] |= uint64_t{1} << (pick & 63u);
    }
    for (int i = 0; i < fan_out; ++i) seen[picks[i] >> 6] = 0;
    return;
  }
  for (int i = 1; i < fan_out; ++i) {
    bool taken = false;
    for (int j = 0; j < i; ++j) taken |= picks[j] == picks[i];
    if (taken) picks[i] = base + static_cast<uint32_t>(i);
  }
}

}  // namespace jhgnn::sampling

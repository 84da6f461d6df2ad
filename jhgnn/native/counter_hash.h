// The C++ copy of jhgnn/random/counter_hash.py; tests/test_counter_hash.py compares the two bit for bit.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define JHGNN_HASH __host__ __device__ __forceinline__
#else
#define JHGNN_HASH __attribute__((always_inline)) inline
#endif

namespace jhgnn {

constexpr uint32_t kGolden = 0x9E3779B9u;

// Also for vectors of uint32 (GCC vector extensions).
template <typename Word>
JHGNN_HASH Word mix(Word x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ (x >> 16);
}

// What an endpoint adds to the bits of its edges; `seed_key` is mix(seed) for senders, mix(seed + kGolden) for receivers.
JHGNN_HASH uint32_t endpoint_key(uint32_t vertex, uint32_t seed_key) {
  return mix(vertex ^ seed_key);
}

JHGNN_HASH uint32_t edge_bits(uint32_t sender_key, uint32_t receiver_key, uint32_t head) {
  return mix((sender_key + receiver_key) ^ (head * kGolden));
}

}  // namespace jhgnn

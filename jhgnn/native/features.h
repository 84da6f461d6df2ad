// Reading and writing float32 and bfloat16 features; sums are float32.
#pragma once

#include "kernels.h"
#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

struct Bfloat16 {
  uint16_t bits;
};

JHGNN_INLINE float to_float(float value) { return value; }

JHGNN_INLINE float to_float(Bfloat16 value) { return bits_of<float>(static_cast<uint32_t>(value.bits) << 16); }

JHGNN_INLINE void put(float* to, float value) { *to = value; }

// Rounds to nearest, ties to even; a NaN stays one.
JHGNN_INLINE void put(Bfloat16* to, float value) {
  const uint32_t bits = bits_of<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<uint16_t>(value != value ? (bits >> 16) | 0x40u : rounded);
}

JHGNN_INLINE Floats load_features(const float* from) { return load(from); }

JHGNN_INLINE Floats load_features(const Bfloat16* from) {
  typedef uint16_t Halves __attribute__((vector_size(2 * kLanes)));
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  return bits_of<Floats>(__builtin_convertvector(halves, Words) << 16);
}

JHGNN_INLINE void store_features(float* to, Floats values) { store(to, values); }

JHGNN_INLINE void store_features(Bfloat16* to, Floats values) {
  for (int lane = 0; lane < kLanes; ++lane) put(to + lane, values[lane]);
}

// Calls body with the data as `const float*` or `const Bfloat16*`.
template <typename Body>
JHGNN_INLINE void for_element(Features features, const Body& body) {
  if (features.element == Element::kFloat32) {
    body(static_cast<const float*>(features.data));
  } else {
    body(static_cast<const Bfloat16*>(features.data));
  }
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

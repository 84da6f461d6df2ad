// Vectors of one instruction set, chosen by the flags that a file is compiled with.
//
// Every function is always inlined and stands in a namespace named for the instruction set: a linker that merged two
// copies of one inline function could otherwise keep the copy that older processors cannot run.
#pragma once

#include <cstdint>
#include <type_traits>

#include "counter_hash.h"

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#define JHGNN_INLINE __attribute__((always_inline)) inline

namespace jhgnn {
namespace JHGNN_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Words __attribute__((vector_size(4 * kLanes)));

template <typename To, typename From>
JHGNN_INLINE To bits_of(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

JHGNN_INLINE Floats load(const float* from) {
  Floats v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}

JHGNN_INLINE void store(float* to, Floats v) { __builtin_memcpy(to, &v, sizeof(v)); }

// Past the caches, to an address that is a multiple of a vector's size; where there is no such instruction, as any other.
JHGNN_INLINE void store_past_caches(float* to, Floats v) {
#if defined(__AVX512F__)
  _mm512_stream_ps(to, bits_of<__m512>(v));
#elif defined(__AVX2__)
  _mm256_stream_ps(to, bits_of<__m256>(v));
#else
  store(to, v);
#endif
}

// Before another thread is told of what was stored past the caches.
JHGNN_INLINE void finish_stores() {
#if defined(__AVX512F__) || defined(__AVX2__)
  _mm_sfence();
#endif
}

JHGNN_INLINE void add_to(float* sum, Floats v) { store(sum, load(sum) + v); }

// The first `count` floats (0 to kLanes), zeros after them.
JHGNN_INLINE Floats load_some(const float* from, int64_t count) {
#if defined(__AVX512F__)
  return bits_of<Floats>(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1u), from));
#else
  if (count == kLanes) return load(from);
  Floats v{};
  for (int64_t lane = 0; lane < count; ++lane) v[lane] = from[lane];
  return v;
#endif
}

JHGNN_INLINE void store_some(float* to, Floats v, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1u), bits_of<__m512>(v));
#else
  if (count == kLanes) return store(to, v);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = v[lane];
#endif
}

// `values` in the first `count` lanes, zeros after them.
JHGNN_INLINE Floats first_lanes(Floats values, int64_t count) {
#if defined(__AVX512F__)
  return bits_of<Floats>(_mm512_maskz_mov_ps(static_cast<__mmask16>((1u << count) - 1u), bits_of<__m512>(values)));
#else
  Ints lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane;
  return bits_of<Floats>(bits_of<Ints>(values) & (lanes < static_cast<int32_t>(count)));
#endif
}

JHGNN_INLINE Floats splat(float value) { return Floats{} + value; }
JHGNN_INLINE Words splat(uint32_t value) { return Words{} + value; }

// (The masked intrinsics with full masks avoid a false -Wmaybe-uninitialized of GCC 12.)
// Loads `kPeriod` floats and repeats them over the lanes; kPeriod divides kLanes or is at least kLanes (then a load).
template <int kPeriod>
JHGNN_INLINE Floats load_repeated(const float* from) {
  if constexpr (kPeriod >= kLanes) {
    return load(from);
  } else if constexpr (kPeriod == 1) {
    return splat(*from);
  } else {
#if defined(__AVX512F__)
    if constexpr (kPeriod == 8) {
      return bits_of<Floats>(_mm512_maskz_broadcast_f64x4(0xFF, _mm256_loadu_pd(reinterpret_cast<const double*>(from))));
    } else if constexpr (kPeriod == 4) {
      return bits_of<Floats>(_mm512_maskz_broadcast_f32x4(0xFFFF, _mm_loadu_ps(from)));
    }
#elif defined(__AVX2__)
    if constexpr (kPeriod == 4) return bits_of<Floats>(_mm256_broadcast_ps(reinterpret_cast<const __m128*>(from)));
#endif
    Floats v;
    for (int lane = 0; lane < kLanes; ++lane) v[lane] = from[lane % kPeriod];
    return v;
  }
}

// Edges whose weights one vector holds, each in kPeriod lanes of its own; 1: one edge's, repeated over the lanes.
template <int kPeriod>
constexpr int kTogether = kPeriod >= 4 && kPeriod < kLanes ? kLanes / kPeriod : 1;

// Loads kPeriod floats at `offset` of each of kTogether rows, side by side.
template <int kPeriod>
JHGNN_INLINE Floats load_together(const float* const* rows, int64_t offset) {
  if constexpr (kTogether<kPeriod> == 1) {
    return load_repeated<kPeriod>(rows[0] + offset);
  } else {
#if defined(__AVX512F__)
    if constexpr (kPeriod == 8) {
      const __m512d first = bits_of<__m512d>(load_repeated<8>(rows[0] + offset));
      return bits_of<Floats>(
          _mm512_mask_broadcast_f64x4(first, 0xF0, _mm256_loadu_pd(reinterpret_cast<const double*>(rows[1] + offset))));
    } else {
      __m512 all = bits_of<__m512>(load_repeated<4>(rows[0] + offset));
      all = _mm512_mask_broadcast_f32x4(all, 0x00F0, _mm_loadu_ps(rows[1] + offset));
      all = _mm512_mask_broadcast_f32x4(all, 0x0F00, _mm_loadu_ps(rows[2] + offset));
      return bits_of<Floats>(_mm512_mask_broadcast_f32x4(all, 0xF000, _mm_loadu_ps(rows[3] + offset)));
    }
#else
    Floats v;
    for (int lane = 0; lane < kLanes; ++lane) v[lane] = rows[lane / kPeriod][offset + lane % kPeriod];
    return v;
#endif
  }
}

// keys[index] of each of kTogether edges in its lanes.
template <int kPeriod>
JHGNN_INLINE Words keys_together(const uint32_t* keys, const int32_t* indices) {
  if constexpr (kTogether<kPeriod> == 1) {
    return splat(keys[indices[0]]);
  } else {
#if defined(__AVX512F__)
    __m512i all = bits_of<__m512i>(splat(keys[indices[0]]));
    for (int edge = 1; edge < kTogether<kPeriod>; ++edge) {
      const __mmask16 lanes = static_cast<__mmask16>(((1u << kPeriod) - 1u) << (edge * kPeriod));
      all = _mm512_mask_set1_epi32(all, lanes, static_cast<int32_t>(keys[indices[edge]]));
    }
    return bits_of<Words>(all);
#else
    Words v;
    for (int lane = 0; lane < kLanes; ++lane) v[lane] = keys[indices[lane / kPeriod]];
    return v;
#endif
  }
}

// The lanes of one of kTogether edges, repeated over all.
template <int kPeriod, int kEdge>
JHGNN_INLINE Floats repeat_edge(Floats v) {
  if constexpr (kTogether<kPeriod> == 1) {
    return v;
  } else {
#if defined(__AVX512F__)
    if constexpr (kPeriod == 8) {
      const __m512d both = bits_of<__m512d>(v);
      return bits_of<Floats>(_mm512_maskz_shuffle_f64x2(0xFF, both, both, kEdge == 0 ? 0x44 : 0xEE));
    } else {
      const __m512 all = bits_of<__m512>(v);
      return bits_of<Floats>(_mm512_maskz_shuffle_f32x4(0xFFFF, all, all, kEdge * 0x55));
    }
#else
    Floats repeated;
    for (int lane = 0; lane < kLanes; ++lane) repeated[lane] = v[kEdge * kPeriod + lane % kPeriod];
    return repeated;
#endif
  }
}

// The sums over kTogether edges, repeated over all lanes.
template <int kPeriod>
JHGNN_INLINE Floats sum_together(Floats v) {
  if constexpr (kTogether<kPeriod> == 2) {
    return repeat_edge<kPeriod, 0>(v) + repeat_edge<kPeriod, 1>(v);
  } else if constexpr (kTogether<kPeriod> == 4) {
    return (repeat_edge<kPeriod, 0>(v) + repeat_edge<kPeriod, 1>(v)) +
           (repeat_edge<kPeriod, 2>(v) + repeat_edge<kPeriod, 3>(v));
  } else {
    return v;
  }
}

// `values` where a >= b, else 0.
JHGNN_INLINE Floats where_at_least(Floats a, Floats b, Floats values) {
#if defined(__AVX512F__)
  return bits_of<Floats>(_mm512_maskz_mov_ps(
      _mm512_cmp_ps_mask(bits_of<__m512>(a), bits_of<__m512>(b), _CMP_GE_OQ), bits_of<__m512>(values)));
#else
  return bits_of<Floats>(bits_of<Ints>(values) & (a >= b));
#endif
}

// `values` where a < b or either is NaN, else 0: the rest of where_at_least.
JHGNN_INLINE Floats where_below(Floats a, Floats b, Floats values) {
#if defined(__AVX512F__)
  return bits_of<Floats>(_mm512_maskz_mov_ps(
      _mm512_cmp_ps_mask(bits_of<__m512>(a), bits_of<__m512>(b), _CMP_NGE_UQ), bits_of<__m512>(values)));
#else
  return bits_of<Floats>(bits_of<Ints>(values) & ~(a >= b));
#endif
}

// `values` where bits >= threshold, else 0.
JHGNN_INLINE Floats where_kept(Words bits, Words threshold, Floats values) {
#if defined(__AVX512F__)
  return bits_of<Floats>(_mm512_maskz_mov_ps(
      _mm512_cmpge_epu32_mask(bits_of<__m512i>(bits), bits_of<__m512i>(threshold)), bits_of<__m512>(values)));
#else
  return bits_of<Floats>(bits_of<Ints>(values) & (bits >= threshold));
#endif
}

JHGNN_INLINE Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// exp to 1 ulp or 2 (Cephes' polynomial); 0 below the normal range, inf above, NaN for NaN.
JHGNN_INLINE Floats exponential(Floats x) {
  const Floats high = splat(88.72283f), low = splat(-87.33654f), magic = splat(12582912.0f);
  const Floats clamped = x > high ? high : (x < low ? low : x);
  const Floats shifted = clamped * 1.44269504088896341f + magic;  // its low bits hold the integer part
  const Floats whole = shifted - magic;
  const Floats r = (clamped - whole * 0.693359375f) + whole * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const Floats y = p * (r * r) + r + 1.0f;
  const Words exponent = bits_of<Words>(shifted) - bits_of<Words>(magic);
  // Two steps: 2**128 is no float, but 2**127 times 2 is.
  const Floats scaled = bits_of<Floats>((exponent + 126u) << 23) * (y * 2.0f);
  return x < low ? Floats{} : (x > high ? splat(__builtin_inff()) : scaled);
}

JHGNN_INLINE float sum_of_lanes(Floats v) {
  float sum = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) sum += v[lane];
  return sum;
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

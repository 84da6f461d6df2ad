// neighbor_attention in one pass over the in-edges, and its gradient in one pass over the out-edges.
//
// 1. No exponential per edge. LeakyReLU(x) = x or slope * x, so exp(LeakyReLU(a + b)) is exp(a) exp(b) or
//    exp(slope a) exp(slope b): both factors belong to vertices. They are taken relative to the largest logit_src of
//    all sources, so none exceeds 1 and nothing overflows. A target whose sum comes out tiny (all of its neighbours far
//    below that largest) is "unsafe": its row is computed again with exponentials of its own, and marked by a negative
//    reciprocal in `stats`.
// 2. No dot product per edge. The sums over edges with logit >= 0 and over the rest are kept apart. For a source,
//    d_logit_src = z . (G+ + slope G-) - sum of weight * slope' * delta, where G are the sums of weighted cotangents
//    that d_z needs anyway. For a target the weights' gradients sum to zero, so that
//    d_logit_dst = (1 - slope) * (g . out+ - delta * share of positive edges), or the same of negative edges with the other
//    sign, which needs no walk at all. Of the two, the one with the smaller share does not cancel, and is kept.
// 3. Heads are innermost in memory, so that one vector of weights fits every vector of a vertex's features.
#pragma once

#include "csr.h"
#include "features.h"
#include "kernels.h"
#include "transpose.h"
#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

constexpr float kSmallestSum = 1e-18f;  // what is lost to underflow is then below 1e-19 of it, an edge
constexpr int64_t kChunk = 64;          // edges whose weights are kept at a time
constexpr int64_t kAhead = 12;          // edges

JHGNN_INLINE int64_t factor_size(const AttentionLayout& layout) {
  return layout.padded_heads < 16 ? 16 : layout.padded_heads;
}

// Sums of one row and the factors of its own vertex.
struct Accumulator {
  float *positive, *negative;            // [body] weighted features of edges whose logit is >= 0, and of the others
  float *sum_positive, *sum_negative;    // [padded_heads, repeated over the lanes]
  float *bound, *factor, *slope_factor;  // own: -logit or logit, exp(logit), exp(slope * logit)
  float* scratch;                        // [body]

  JHGNN_INLINE Accumulator(const AttentionLayout& layout, float* memory) {
    const int64_t size = factor_size(layout);
    positive = memory;
    negative = positive + layout.body;
    sum_positive = negative + layout.body;
    sum_negative = sum_positive + size;
    bound = sum_negative + size;
    factor = bound + size;
    slope_factor = factor + size;
    scratch = slope_factor + size;
  }

  // All that pieces of a row add to.
  JHGNN_INLINE void clear() {
    for (float* sum = positive; sum != bound; ++sum) *sum = 0.0f;
  }
};

inline static int64_t accumulator_size(const AttentionLayout& layout) {
  return 3 * layout.body + 5 * factor_size(layout);
}

JHGNN_INLINE float leaky_relu(float x, float slope) { return x >= 0.0f ? x : slope * x; }

inline static void largest_of_heads(const float* logits, int64_t first, int64_t last, int64_t heads, float* largest) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const float value = logits[row * heads + head];
      if (value > largest[head]) largest[head] = value;
    }
  }
}

// factor = exp(logit - largest), slope_factor = exp(slope * (logit - largest)); zeros for padded heads.
JHGNN_INLINE void source_factors(const float* logits, const float* largest, const AttentionLayout& layout, float slope,
                                 float* bound, float* factor, float* slope_factor) {
  for (int64_t group = 0; group < layout.padded_heads; group += kLanes) {
    const int64_t padded = layout.padded_heads - group < kLanes ? layout.padded_heads - group : kLanes;
    const int64_t real = layout.heads - group < padded ? layout.heads - group : padded;
    const Floats logit = load_some(logits + group, real);
    const Floats relative = logit - load_some(largest + group, real);
    store_some(bound + group, logit, padded);
    store_some(factor + group, first_lanes(exponential(relative), real), padded);
    store_some(slope_factor + group, first_lanes(exponential(relative * slope), real), padded);
  }
}

// bound = -logit, factor = exp(largest + logit - shift) and slope_factor = exp(slope * (largest + logit) - shift), each
// times |scale| where given. Shifts: those given, or LeakyReLU(largest + logit), with which neither factor exceeds 1.
JHGNN_INLINE void target_factors(const float* logits, const float* largest, const AttentionLayout& layout, float slope,
                                 const float* shifts, const float* scale, float* bound, float* factor,
                                 float* slope_factor) {
  for (int64_t group = 0; group < layout.padded_heads; group += kLanes) {
    const int64_t padded = layout.padded_heads - group < kLanes ? layout.padded_heads - group : kLanes;
    const int64_t real = layout.heads - group < padded ? layout.heads - group : padded;
    const Floats logit = load_some(logits + group, real);
    const Floats sum = logit + load_some(largest + group, real);
    const Floats shift = shifts ? load_some(shifts + group, real) : larger(sum, sum * slope);
    Floats times = splat(1.0f);
    if (scale) {
      const Floats reciprocal = load_some(scale + group, real);
      times = larger(reciprocal, -reciprocal);
    }
    store_some(bound + group, -logit, padded);
    store_some(factor + group, first_lanes(exponential(sum - shift) * times, real), padded);
    store_some(slope_factor + group, first_lanes(exponential(sum * slope - shift) * times, real), padded);
  }
}

// [heads, width] to [width, padded_heads], zeros as padding.
JHGNN_INLINE void pack_features(Features from, int64_t vertex, const AttentionLayout& layout, float* body) {
  const int64_t heads = layout.heads, width = layout.width, padded = layout.padded_heads;
  if (padded != heads || layout.body != width * heads) {
    for (int64_t i = 0; i < layout.body; ++i) body[i] = 0.0f;
  }
  if (from.element == Element::kFloat32) {
    transpose(static_cast<const float*>(from.data) + vertex * heads * width, heads, width, width, body, padded);
    return;
  }
  const Bfloat16* row = static_cast<const Bfloat16*>(from.data) + vertex * heads * width;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t d = 0; d < width; ++d) body[d * padded + h] = to_float(row[h * width + d]);
  }
}

// [width, padded_heads] to [heads, width].
JHGNN_INLINE void unpack_features(const float* body, const AttentionLayout& layout, float* to) {
  transpose(body, layout.width, layout.heads, layout.padded_heads, to, layout.width);
}

// Sums vectors of one group of heads over the lanes that stand for the same head, and writes those of the group.
template <int kPeriod>
JHGNN_INLINE void store_head_sums(float* to, Floats sums, int64_t group, const AttentionLayout& layout) {
  if constexpr (kPeriod < kLanes) {
    float lanes[kLanes];
    store(lanes, sums);
    for (int head = 0; head < kPeriod; ++head) {
      float total = 0.0f;
      for (int lane = head; lane < kLanes; lane += kPeriod) total += lanes[lane];
      if (group + head < layout.heads) to[group + head] = total;
    }
  } else {
    const int64_t real = layout.heads - group < kLanes ? layout.heads - group : kLanes;
    store_some(to + group, sums, real > 0 ? real : 0);
  }
}

template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;
};

// Calls body with the period of the heads over the lanes and two flags as compile-time constants.
template <typename Body>
JHGNN_INLINE bool for_variant(int64_t padded_heads, bool first, bool second, const Body& body) {
  const auto with_period = [&](auto period) {
    if (first) return second ? body(period, Constant<true>{}, Constant<true>{}) : body(period, Constant<true>{}, Constant<false>{});
    return second ? body(period, Constant<false>{}, Constant<true>{}) : body(period, Constant<false>{}, Constant<false>{});
  };
  if (padded_heads >= kLanes) return with_period(Constant<kLanes>{});
  switch (padded_heads) {
    case 1: return with_period(Constant<1>{});
    case 2: return with_period(Constant<2>{});
    case 4: return with_period(Constant<(kLanes > 4 ? 4 : kLanes)>{});
    default: return with_period(Constant<(kLanes > 8 ? 8 : kLanes)>{});
  }
}

template <int kPeriod>
JHGNN_INLINE Words head_words(int64_t group) {
  Words words{};
  for (int lane = 0; lane < kLanes; ++lane) {
    words[lane] = static_cast<uint32_t>(group + (kPeriod < kLanes ? lane % kPeriod : lane)) * kGolden;
  }
  return words;
}

// sum += weight * features over a chunk, for `kVectors` vectors `stride` floats apart.
template <int kVectors, bool kSplit>
JHGNN_INLINE void add_weighted(const float* const* rows, const Floats (*weights)[2], int64_t count, int64_t stride,
                               int64_t offset, float* positive, float* negative) {
  Floats sums[2][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    sums[0][v] = load(positive + offset + v * stride);
    if (kSplit) sums[1][v] = load(negative + offset + v * stride);
  }
  for (int64_t edge = 0; edge < count; ++edge) {
    const float* features = rows[edge] + offset;
    for (int v = 0; v < kVectors; ++v) {
      const Floats feature = load(features + v * stride);
      sums[0][v] += weights[edge][0] * feature;
      if (kSplit) sums[1][v] += weights[edge][1] * feature;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    store(positive + offset + v * stride, sums[0][v]);
    if (kSplit) store(negative + offset + v * stride, sums[1][v]);
  }
}

template <bool kSplit>
JHGNN_INLINE void add_weighted_body(const float* const* rows, const Floats (*weights)[2], int64_t count,
                                    const AttentionLayout& layout, int64_t group, const Accumulator& sums) {
  const int64_t stride = layout.padded_heads > kLanes ? layout.padded_heads : kLanes;
  int64_t offset = group;
  for (; offset + 3 * stride + kLanes <= layout.body; offset += 4 * stride) {
    add_weighted<4, kSplit>(rows, weights, count, stride, offset, sums.positive, sums.negative);
  }
  for (; offset + kLanes <= layout.body; offset += stride) {
    add_weighted<1, kSplit>(rows, weights, count, stride, offset, sums.positive, sums.negative);
  }
}

// Calls body(edge) for each of kCount edges, `edge` a compile-time constant.
template <int kCount, int kFirst = 0, typename Body>
JHGNN_INLINE void for_edges(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Constant<kFirst>{});
    for_edges<kCount, kFirst + 1>(body);
  }
}

// What the two walks share. `edge_weights` makes the pair of weights (positive, negative) of kTogether edges before dropout
// from their neighbours' packed rows, and adds those of the first `count` to its sums. Dropout's hash and the comparisons
// then work on full vectors: with 8 heads and 16 lanes they took half of the time, one edge a vector.
template <int kPeriod, int64_t kFactors, bool kDrop, bool kSplit, typename EdgeWeights>
struct Walk {
  const AttentionLayout& layout;
  const CsrView& csr;
  const float* packed;
  const Dropout& dropout;
  const uint32_t* keys;
  uint32_t own_key;
  int64_t group;
  const Accumulator& sums;
  const EdgeWeights& edge_weights;

  static constexpr int kEdges = kTogether<kPeriod>;

  JHGNN_INLINE void weigh(const float* const* rows, const int32_t* neighbors, int64_t count, Words heads,
                          Words threshold, Floats& positive, Floats& negative) const {
    edge_weights(rows, neighbors, count, positive, negative);
    if (kDrop) {
      const Words bits = mix((keys_together<kPeriod>(keys, neighbors) + own_key) ^ heads);
      positive = where_kept(bits, threshold, positive);
      if (kSplit) negative = where_kept(bits, threshold, negative);
    }
  }

  // Calls each(place, row, positive, negative) for the edges [begin, end), place counting from 0.
  template <bool kPrefetch, typename Each>
  JHGNN_INLINE void weighted_edges(int64_t begin, int64_t end, int64_t header, int64_t row_size, const Each& each) const {
    const Words heads = head_words<kPeriod>(group), threshold = splat(dropout.threshold);
    const float* rows[kEdges];
    Floats positive, negative;
    int64_t edge = begin;
    for (; edge + kEdges <= end; edge += kEdges) {
      const int32_t* neighbors = csr.indices + edge;
      for (int i = 0; i < kEdges; ++i) {
        rows[i] = packed + neighbors[i] * row_size;
        if (kPrefetch) prefetch_row(packed, csr, edge + i + kAhead, row_size);
      }
      weigh(rows, neighbors, kEdges, heads, threshold, positive, negative);
      for_edges<kEdges>([&](auto i) __attribute__((always_inline)) {
        each(edge - begin + i.value, rows[i.value] + header, repeat_edge<kPeriod, i.value>(positive),
             repeat_edge<kPeriod, i.value>(negative));
      });
    }
    if (kEdges == 1 || edge == end) return;
    int32_t neighbors[kEdges];
    for (int i = 0; i < kEdges; ++i) {
      neighbors[i] = csr.indices[edge + i < end ? edge + i : edge];
      rows[i] = packed + neighbors[i] * row_size;
    }
    weigh(rows, neighbors, end - edge, heads, threshold, positive, negative);
    for_edges<kEdges>([&](auto i) __attribute__((always_inline)) {
      if (edge + i.value < end) {
        each(edge - begin + i.value, rows[i.value] + header, repeat_edge<kPeriod, i.value>(positive),
             repeat_edge<kPeriod, i.value>(negative));
      }
    });
  }

  // The whole body in registers: one loop. All sizes are known to the compiler.
  template <int kVectors, bool kPrefetch>
  JHGNN_INLINE void narrow(int64_t begin, int64_t end) const {
    constexpr int64_t header = (kFactors * kPeriod + 15) / 16 * 16;
    Floats totals[2][kVectors];
    for (int v = 0; v < kVectors; ++v) {
      totals[0][v] = load(sums.positive + v * kLanes);
      if (kSplit) totals[1][v] = load(sums.negative + v * kLanes);
    }
    weighted_edges<kPrefetch>(
        begin, end, header, header + kVectors * kLanes,
        [&](int64_t, const float* features, Floats positive, Floats negative) __attribute__((always_inline)) {
          for (int v = 0; v < kVectors; ++v) {
            const Floats feature = load(features + v * kLanes);
            totals[0][v] += positive * feature;
            if (kSplit) totals[1][v] += negative * feature;
          }
        });
    for (int v = 0; v < kVectors; ++v) {
      store(sums.positive + v * kLanes, totals[0][v]);
      if (kSplit) store(sums.negative + v * kLanes, totals[1][v]);
    }
  }

  // Weights of a chunk of edges first, then block by block of the body.
  template <bool kPrefetch>
  JHGNN_INLINE void wide(int64_t begin, int64_t end) const {
    const float* rows[kChunk];
    Floats weights[kChunk][2];
    for (int64_t start = begin; start < end; start += kChunk) {
      const int64_t count = end - start < kChunk ? end - start : kChunk;
      weighted_edges<kPrefetch>(
          start, start + count, layout.header, layout.row(),
          [&](int64_t place, const float* features, Floats positive, Floats negative) __attribute__((always_inline)) {
            rows[place] = features;
            weights[place][0] = positive;
            if (kSplit) weights[place][1] = negative;
          });
      add_weighted_body<kSplit>(rows, weights, count, layout, group, sums);
    }
  }

  JHGNN_INLINE void operator()(int64_t begin, int64_t end, bool prefetch) const {
    if (kLanes == 16 && layout.body == 4 * kLanes && layout.padded_heads <= kLanes) {
      prefetch ? narrow<4, true>(begin, end) : narrow<4, false>(begin, end);
    } else {
      prefetch ? wide<true>(begin, end) : wide<false>(begin, end);
    }
  }
};

// Of the weights of kTogether edges, those of the first `count`; zeros for the others.
template <int kPeriod>
JHGNN_INLINE Floats first_edges(Floats weights, int64_t count) {
  return kTogether<kPeriod> == 1 || count == kTogether<kPeriod> ? weights : first_lanes(weights, count * kPeriod);
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

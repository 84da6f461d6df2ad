// The backward pass of neighbor_attention; see attention.h.
#pragma once

#include "attention.h"

namespace jhgnn {
namespace JHGNN_ISA {

// Header of a packed target: -logit, its two factors with the reciprocal sum in them, delta = cotangent . out, dropout
// key, and whether the row is unsafe.
JHGNN_INLINE int64_t backward_key_offset(const AttentionLayout& layout) { return 4 * layout.padded_heads; }
JHGNN_INLINE int64_t unsafe_offset(const AttentionLayout& layout) { return 4 * layout.padded_heads + 1; }

// Also writes d_logit_dst. Answers whether any target is unsafe.
inline static bool pack_targets(const AttentionBackward& args, int64_t first, int64_t last) {
  const AttentionLayout& layout = args.layout;
  const int64_t heads = layout.heads, width = layout.width, padded = layout.padded_heads;
  const uint32_t seed_key = mix(args.dropout.seed + kGolden);
  bool any_unsafe = false;
  for (int64_t target = first; target < last; ++target) {
    float* row = args.packed + target * layout.row();
    const float* stats = args.stats + target * 3 * heads;
    const float* out = args.out + target * heads * width;
    const float* out_positive = args.out_positive + target * layout.body;
    target_factors(args.logit_dst + target * heads, args.largest, layout, args.slope, stats, stats + heads, row,
                   row + padded, row + 2 * padded);
    float* body = row + layout.header;
    pack_features(args.cotangent, target, layout, body);
    float* delta = row + 3 * padded;
    bool unsafe = false;
    for (int64_t h = 0; h < heads; ++h) {
      float all = 0.0f, positive = 0.0f;
      for (int64_t d = 0; d < width; ++d) {
        all += body[d * padded + h] * out[h * width + d];
        positive += body[d * padded + h] * out_positive[d * padded + h];
      }
      delta[h] = all;
      args.d_logit_dst[target * heads + h] = (1.0f - args.slope) * (positive - all * stats[2 * heads + h]);
      unsafe |= stats[heads + h] < 0.0f || stats[heads + h] != stats[heads + h];
    }
    for (int64_t h = heads; h < padded; ++h) delta[h] = 0.0f;
    row[backward_key_offset(layout)] = bits_of<float>(endpoint_key(static_cast<uint32_t>(target), seed_key));
    row[unsafe_offset(layout)] = unsafe ? 1.0f : 0.0f;
    any_unsafe |= unsafe;
  }
  return any_unsafe;
}

// The weights of an edge to an unsafe target: one exponential a head.
template <int kPeriod>
static void unsafe_weights(const AttentionBackward& args, int64_t source, int64_t target, int64_t group,
                           Floats& positive, Floats& negative) {
  const int64_t heads = args.layout.heads;
  const float* stats = args.stats + target * 3 * heads;
  float relative[kLanes] = {}, scale[kLanes] = {}, logit[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    const int64_t head = group + (kPeriod < kLanes ? lane % kPeriod : lane);
    if (head >= heads) continue;
    logit[lane] = args.logit_src[source * heads + head] + args.logit_dst[target * heads + head];
    relative[lane] = leaky_relu(logit[lane], args.slope) - stats[head];
    scale[lane] = __builtin_fabsf(stats[heads + head]);
  }
  const Floats weights = exponential(load(relative)) * load(scale);
  positive = where_at_least(load(logit), Floats{}, weights);
  negative = where_below(load(logit), Floats{}, weights);
}

template <int kPeriod, bool kDrop, bool kUnsafe>
static void backward_edges_of(const AttentionBackward& args, int64_t source, int64_t begin, int64_t end,
                              float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const uint32_t own_key = endpoint_key(static_cast<uint32_t>(source), mix(args.dropout.seed));
  source_factors(args.logit_src + source * layout.heads, args.largest, layout, args.slope, sums.bound, sums.factor,
                 sums.slope_factor);
  const int64_t padded = layout.padded_heads;
  for (int64_t group = 0; group < padded; group += kLanes) {
    const Floats logit = load_repeated<kPeriod>(sums.bound + group);
    const Floats factor = load_repeated<kPeriod>(sums.factor + group);
    const Floats slope_factor = load_repeated<kPeriod>(sums.slope_factor + group);
    Floats sum_positive = load(sums.sum_positive + group), sum_negative = load(sums.sum_negative + group);
    const auto edge_weights = [&](const float* row, int32_t target, Floats& positive, Floats& negative) {
      const Floats bound = load_repeated<kPeriod>(row + group);
      positive = where_at_least(logit, bound, load_repeated<kPeriod>(row + padded + group) * factor);
      negative = where_below(logit, bound, load_repeated<kPeriod>(row + 2 * padded + group) * slope_factor);
      if (kUnsafe && row[unsafe_offset(layout)] != 0.0f) {
        unsafe_weights<kPeriod>(args, source, target, group, positive, negative);
      }
      const Floats delta = load_repeated<kPeriod>(row + 3 * padded + group);
      sum_positive += positive * delta;
      sum_negative += negative * delta;
    };
    walk<kPeriod, kDrop, true>(layout, args.outgoing, args.packed, args.dropout, own_key, backward_key_offset(layout),
                               args.prefetch, begin, end, group, sums, edge_weights);
    store(sums.sum_positive + group, sum_positive);
    store(sums.sum_negative + group, sum_negative);
  }
}

inline static void backward_finish(const AttentionBackward& args, int64_t source, float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const int64_t heads = layout.heads, width = layout.width, padded = layout.padded_heads;
  float* d_z = args.d_z + source * heads * width;
  float* d_logit = args.d_logit_src + source * heads;
  const float slope = args.slope, scale = args.dropout.scale;
  for_element(args.z, [&](const auto* data) {
    const auto* z = data + source * heads * width;
    for (int64_t h = 0; h < heads; ++h) {
      float dot = 0.0f;
      for (int64_t d = 0; d < width; ++d) {
        const float positive = sums.positive[d * padded + h], negative = sums.negative[d * padded + h];
        dot += to_float(z[h * width + d]) * (positive + slope * negative);
        d_z[h * width + d] = (positive + negative) * scale;
      }
      d_logit[h] = dot * scale - (sums.sum_positive[h] + slope * sums.sum_negative[h]);
    }
  });
}

template <int kPeriod, bool kDrop, bool kUnsafe>
static bool backward_rows_of(const AttentionBackward& args, int64_t first, int64_t last, float* memory) {
  const int32_t* indptr = args.outgoing.indptr;
  if (!indices_in_range(args.outgoing.indices + indptr[first], indptr[last] - indptr[first], args.outgoing.num_columns))
    return false;
  for (int64_t source = first; source < last; ++source) {
    if (indptr[source + 1] - indptr[source] > kPieceEdges) continue;
    Accumulator(args.layout, memory).clear();
    backward_edges_of<kPeriod, kDrop, kUnsafe>(args, source, indptr[source], indptr[source + 1], memory);
    backward_finish(args, source, memory);
  }
  return true;
}

inline static bool backward_rows(const AttentionBackward& args, int64_t first, int64_t last, float* memory) {
  return for_variant(args.layout.padded_heads, args.dropout.threshold != 0, args.any_unsafe,
                     [&](auto period, auto drop, auto unsafe) {
                       return backward_rows_of<period.value, drop.value, unsafe.value>(args, first, last, memory);
                     });
}

inline static void backward_edges(const AttentionBackward& args, int64_t row, int64_t begin, int64_t end,
                                  float* memory) {
  for_variant(args.layout.padded_heads, args.dropout.threshold != 0, args.any_unsafe,
              [&](auto period, auto drop, auto unsafe) {
                backward_edges_of<period.value, drop.value, unsafe.value>(args, row, begin, end, memory);
                return true;
              });
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

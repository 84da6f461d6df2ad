// The backward pass of neighbor_attention; see attention.h.
#pragma once

#include "attention.h"

namespace jhgnn {
namespace JHGNN_ISA {

// The kTargetFactors of a packed target: -logit, its two factors with the reciprocal sum in them, delta = cotangent . out.
// The factors of an unsafe row are -1.
//
// Also writes d_logit_dst. Answers whether any target is unsafe.
template <int kPeriod>
static bool pack_targets_of(const AttentionBackward& args, int64_t first, int64_t last, float* scratch) {
  const AttentionLayout& layout = args.layout;
  const int64_t heads = layout.heads, padded = layout.padded_heads;
  const int64_t stride = padded > kLanes ? padded : kLanes;
  const uint32_t seed_key = mix(args.dropout.seed + kGolden);
  bool any_unsafe = false;
  for (int64_t target = first; target < last; ++target) {
    float* row = args.packed + target * layout.row();
    float *body = row + layout.header, *delta = row + 3 * padded;
    const float* stats = args.stats + target * 3 * heads;
    const float* out_minor = args.out_minor + target * layout.body;
    target_factors(args.logit_dst + target * heads, args.largest, layout, args.slope, stats, stats + heads, row,
                   row + padded, row + 2 * padded);
    pack_features(args.cotangent, target, layout, body);
    pack_features({args.out, Element::kFloat32}, target, layout, scratch);
    float* minors = scratch + layout.body;
    for (int64_t group = 0; group < padded; group += kLanes) {
      Floats all{}, minor{};
      for (int64_t offset = group; offset + kLanes <= layout.body; offset += stride) {
        const Floats cotangent = load(body + offset);
        all += cotangent * load(scratch + offset);
        minor += cotangent * load(out_minor + offset);
      }
      store_head_sums<kPeriod>(delta, all, group, layout);
      store_head_sums<kPeriod>(minors, minor, group, layout);
    }
    bool unsafe = false;
    float* d_logit = args.d_logit_dst + target * heads;
    for (int64_t h = 0; h < heads; ++h) {
      const float share = stats[2 * heads + h];  // below zero: of the edges with a negative logit
      d_logit[h] = (1.0f - args.slope) * (share < 0.0f ? -delta[h] * share - minors[h] : minors[h] - delta[h] * share);
      unsafe |= stats[heads + h] < 0.0f || stats[heads + h] != stats[heads + h];
    }
    for (int64_t h = heads; h < padded; ++h) delta[h] = 0.0f;
    for (int64_t h = 0; unsafe && h < 2 * padded; ++h) row[padded + h] = -1.0f;
    if (args.dropout.threshold != 0) args.keys[target] = endpoint_key(args.dropout.receiver(target), seed_key);
    any_unsafe |= unsafe;
  }
  return any_unsafe;
}

inline static bool pack_targets(const AttentionBackward& args, int64_t first, int64_t last, float* scratch) {
  return for_variant(args.layout.padded_heads, false, false, [&](auto period, auto, auto) {
    return pack_targets_of<period.value>(args, first, last, scratch);
  });
}

// Replaces the weights of one of kTogether edges, to an unsafe target: one exponential a head.
template <int kPeriod>
static void unsafe_weights(const AttentionBackward& args, int64_t source, int64_t target, int64_t group, int edge,
                           Floats& positive, Floats& negative) {
  const int64_t heads = args.layout.heads;
  const float* stats = args.stats + target * 3 * heads;
  const int first = kTogether<kPeriod> > 1 ? edge * kPeriod : 0, last = kTogether<kPeriod> > 1 ? first + kPeriod : kLanes;
  float relative[kLanes] = {}, scale[kLanes] = {}, logit[kLanes] = {};
  for (int lane = first; lane < last; ++lane) {
    const int64_t head = group + (kPeriod < kLanes ? lane % kPeriod : lane);
    if (head >= heads) continue;
    logit[lane] = args.logit_src[source * heads + head] + args.logit_dst[target * heads + head];
    relative[lane] = leaky_relu(logit[lane], args.slope) - stats[head];
    scale[lane] = __builtin_fabsf(stats[heads + head]);
  }
  const Floats weights = exponential(load(relative)) * load(scale);
  for (int lane = first; lane < last; ++lane) {
    positive[lane] = logit[lane] >= 0.0f ? weights[lane] : 0.0f;
    negative[lane] = logit[lane] >= 0.0f ? 0.0f : weights[lane];
  }
}

template <int kPeriod, bool kDrop, bool kUnsafe>
static void backward_edges_of(const AttentionBackward& args, int64_t source, int64_t begin, int64_t end,
                              float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const uint32_t own_key = endpoint_key(args.dropout.sender(source), mix(args.dropout.seed));
  source_factors(args.logit_src + source * layout.heads, args.largest, layout, args.slope, sums.bound, sums.factor,
                 sums.slope_factor);
  const int64_t padded = kPeriod < kLanes ? kPeriod : layout.padded_heads;
  for (int64_t group = 0; group < padded; group += kLanes) {
    const Floats logit = load_repeated<kPeriod>(sums.bound + group);
    const Floats factor = load_repeated<kPeriod>(sums.factor + group);
    const Floats slope_factor = load_repeated<kPeriod>(sums.slope_factor + group);
    Floats sum_positive{}, sum_negative{};
    const auto edge_weights = [&](const float* const* rows, const int32_t* targets, int64_t count, Floats& positive,
                                  Floats& negative) __attribute__((always_inline)) {
      const Floats bound = load_together<kPeriod>(rows, group);
      positive = where_at_least(logit, bound, load_together<kPeriod>(rows, padded + group) * factor);
      negative = where_below(logit, bound, load_together<kPeriod>(rows, 2 * padded + group) * slope_factor);
      for (int edge = 0; kUnsafe && edge < kTogether<kPeriod>; ++edge) {
        if (rows[edge][padded] < 0.0f) {
          unsafe_weights<kPeriod>(args, source, targets[edge], group, edge, positive, negative);
        }
      }
      positive = first_edges<kPeriod>(positive, count);
      negative = first_edges<kPeriod>(negative, count);
      const Floats delta = load_together<kPeriod>(rows, 3 * padded + group);
      sum_positive += positive * delta;
      sum_negative += negative * delta;
    };
    Walk<kPeriod, kTargetFactors, kDrop, true, decltype(edge_weights)>{
        layout, args.outgoing, args.packed, args.dropout, args.keys, own_key, group, sums, edge_weights,
    }(begin, end, args.prefetch);
    add_to(sums.sum_positive + group, sum_together<kPeriod>(sum_positive));
    add_to(sums.sum_negative + group, sum_together<kPeriod>(sum_negative));
  }
}

template <int kPeriod>
static void backward_finish_of(const AttentionBackward& args, int64_t source, float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const int64_t heads = layout.heads, padded = layout.padded_heads;
  const int64_t stride = padded > kLanes ? padded : kLanes;
  const float slope = args.slope, scale = args.dropout.scale;
  pack_features(args.z, source, layout, sums.scratch);
  for (int64_t group = 0; group < padded; group += kLanes) {
    Floats dot{};
    for (int64_t offset = group; offset + kLanes <= layout.body; offset += stride) {
      const Floats positive = load(sums.positive + offset), negative = load(sums.negative + offset);
      dot += load(sums.scratch + offset) * (positive + negative * slope);
      store(sums.positive + offset, (positive + negative) * scale);
    }
    store_head_sums<kPeriod>(sums.factor, dot, group, layout);
  }
  unpack_features(sums.positive, layout, args.d_z + source * heads * layout.width);
  float* d_logit = args.d_logit_src + source * heads;
  for (int64_t h = 0; h < heads; ++h) {
    d_logit[h] = sums.factor[h] * scale - (sums.sum_positive[h] + slope * sums.sum_negative[h]);
  }
}

template <int kPeriod, bool kDrop, bool kUnsafe>
static bool backward_rows_of(const AttentionBackward& args, int64_t first, int64_t last, float* memory) {
  const int32_t* indptr = args.outgoing.indptr;
  if (!indices_in_range(args.outgoing.indices + indptr[first], indptr[last] - indptr[first], args.outgoing.num_columns))
    return false;
  const int64_t size = accumulator_size(args.layout);
  walk_rows(
      args.outgoing, first, last,
      [&](int64_t, int64_t place) { Accumulator(args.layout, memory + place * size).clear(); },
      [&](int64_t source, int64_t place, int64_t begin, int64_t end) {
        backward_edges_of<kPeriod, kDrop, kUnsafe>(args, source, begin, end, memory + place * size);
      },
      [&](int64_t source, int64_t place) { backward_finish_of<kPeriod>(args, source, memory + place * size); });
  return true;
}

inline static void backward_finish(const AttentionBackward& args, int64_t source, float* memory) {
  for_variant(args.layout.padded_heads, false, false, [&](auto period, auto, auto) {
    backward_finish_of<period.value>(args, source, memory);
    return true;
  });
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

// The forward pass of neighbor_attention; see attention.h.
#pragma once

#include "attention.h"

namespace jhgnn {
namespace JHGNN_ISA {

// The kSourceFactors of a packed source: logit, exp(logit - largest), exp(slope * (logit - largest)).
inline static void pack_sources(const AttentionForward& args, int64_t first, int64_t last) {
  const AttentionLayout& layout = args.layout;
  const uint32_t seed_key = mix(args.dropout.seed);
  for (int64_t source = first; source < last; ++source) {
    float* row = args.packed + source * layout.row();
    source_factors(args.logit_src + source * layout.heads, args.largest, layout, args.slope, row,
                   row + layout.padded_heads, row + 2 * layout.padded_heads);
    if (args.dropout.threshold != 0) args.keys[source] = endpoint_key(args.dropout.sender(source), seed_key);
    pack_features(args.z, source, layout, row + layout.header);
  }
}

template <int kPeriod, bool kDrop, bool kSplit>
static void forward_edges_of(const AttentionForward& args, int64_t target, int64_t begin, int64_t end, float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const uint32_t own_key = endpoint_key(args.dropout.receiver(target), mix(args.dropout.seed + kGolden));
  target_factors(args.logit_dst + target * layout.heads, args.largest, layout, args.slope, nullptr, nullptr, sums.bound,
                 sums.factor, sums.slope_factor);
  const int64_t padded = kPeriod < kLanes ? kPeriod : layout.padded_heads;
  for (int64_t group = 0; group < padded; group += kLanes) {
    const Floats bound = load_repeated<kPeriod>(sums.bound + group);
    const Floats factor = load_repeated<kPeriod>(sums.factor + group);
    const Floats slope_factor = load_repeated<kPeriod>(sums.slope_factor + group);
    Floats sum_positive{}, sum_negative{};
    const auto edge_weights = [&](const float* const* rows, const int32_t*, int64_t count, Floats& positive,
                                  Floats& negative) __attribute__((always_inline)) {
      const Floats up = load_together<kPeriod>(rows, padded + group) * factor;
      const Floats down = load_together<kPeriod>(rows, 2 * padded + group) * slope_factor;
      if (kSplit) {
        const Floats logit = load_together<kPeriod>(rows, group);
        positive = first_edges<kPeriod>(where_at_least(logit, bound, up), count);
        negative = first_edges<kPeriod>(where_below(logit, bound, down), count);
        sum_negative += negative;
      } else {
        positive = first_edges<kPeriod>(larger(up, down), count);  // LeakyReLU(x) = max(x, slope * x)
      }
      sum_positive += positive;
    };
    Walk<kPeriod, kSourceFactors, kDrop, kSplit, decltype(edge_weights)>{
        layout, args.incoming, args.packed, args.dropout, args.keys, own_key, group, sums, edge_weights,
    }(begin, end, args.prefetch);
    add_to(sums.sum_positive + group, sum_together<kPeriod>(sum_positive));
    add_to(sums.sum_negative + group, sum_together<kPeriod>(sum_negative));
  }
}

// The row once more with one exponential an edge, relative to the largest logit of its own neighbours. Writes stats.
inline static void forward_unsafe_row(const AttentionForward& args, int64_t target, const Accumulator& sums) {
  const AttentionLayout& layout = args.layout;
  const int64_t heads = layout.heads, padded = layout.padded_heads;
  const int64_t begin = args.incoming.indptr[target], end = args.incoming.indptr[target + 1];
  const uint32_t own_key = endpoint_key(args.dropout.receiver(target), mix(args.dropout.seed + kGolden));
  float* shifts = args.stats + target * 3 * heads;
  for (int64_t i = 0; i < layout.body; ++i) sums.positive[i] = sums.negative[i] = 0.0f;
  for (int64_t h = 0; h < heads; ++h) {
    const float own = args.logit_dst[target * heads + h];
    float top = -__builtin_inff();
    for (int64_t edge = begin; edge < end; ++edge) {
      const float logit = args.logit_src[args.incoming.indices[edge] * heads + h];
      top = logit > top ? logit : top;
    }
    shifts[h] = leaky_relu(top + own, args.slope);
    double sum[2] = {0.0, 0.0};
    for (int64_t edge = begin; edge < end; ++edge) {
      const float* row = args.packed + args.incoming.indices[edge] * layout.row();
      const bool is_positive = row[h] >= -own;
      const float weight = exponential(splat(leaky_relu(row[h] + own, args.slope) - shifts[h]))[0];
      sum[is_positive ? 0 : 1] += static_cast<double>(weight);
      if (args.dropout.threshold != 0) {
        const uint32_t source_key = args.keys[args.incoming.indices[edge]];
        if (edge_bits(source_key, own_key, static_cast<uint32_t>(h)) < args.dropout.threshold) continue;
      }
      float* to = is_positive ? sums.positive : sums.negative;
      for (int64_t d = 0; d < layout.width; ++d) to[d * padded + h] += weight * row[layout.header + d * padded + h];
    }
    sums.sum_positive[h] = static_cast<float>(sum[0]);
    sums.sum_negative[h] = static_cast<float>(sum[1]);
  }
}

template <int kPeriod>
static void forward_finish_of(const AttentionForward& args, int64_t target, float* memory) {
  const AttentionLayout& layout = args.layout;
  const Accumulator sums(layout, memory);
  const int64_t heads = layout.heads, padded = layout.padded_heads;
  float* stats = args.stats + target * 3 * heads;
  float* out = args.out + target * heads * layout.width;
  float* out_minor = args.out_minor ? args.out_minor + target * layout.body : nullptr;
  if (args.incoming.indptr[target] == args.incoming.indptr[target + 1]) {
    for (int64_t i = 0; i < 3 * heads; ++i) stats[i] = 0.0f;
    for (int64_t i = 0; i < heads * layout.width; ++i) out[i] = 0.0f;
    for (int64_t i = 0; out_minor && i < layout.body; ++i) out_minor[i] = 0.0f;
    return;
  }
  bool safe = true;
  for (int64_t h = 0; h < heads; ++h) safe &= sums.sum_positive[h] + sums.sum_negative[h] >= kSmallestSum;
  if (!safe) forward_unsafe_row(args, target, sums);
  const float sign = safe ? 1.0f : -1.0f;
  const int64_t stride = padded > kLanes ? padded : kLanes;
  for (int64_t group = 0; group < padded; group += kLanes) {
    const int64_t rest = padded - group < kLanes ? padded - group : kLanes;
    const int64_t real = heads - group < rest ? heads - group : rest;
    const Floats sum_positive = load_some(sums.sum_positive + group, real);
    const Floats sum_negative = load_some(sums.sum_negative + group, real), sum = sum_positive + sum_negative;
    const Floats reciprocal = first_lanes(1.0f / sum, real);
    if (safe) {
      const Floats own = load_some(args.largest + group, real) - load_some(sums.bound + group, real);
      store_some(stats + group, larger(own, own * args.slope), real);
    }
    store_some(stats + heads + group, reciprocal * sign, real);
    const Floats share = where_at_least(sum_negative, sum_positive, sum_positive * reciprocal) +
                         where_below(sum_negative, sum_positive, sum_negative * -reciprocal);
    store_some(stats + 2 * heads + group, share, real);
    store_some(sums.factor + group, reciprocal * args.dropout.scale, rest);
    const Floats scale = load_repeated<kPeriod>(sums.factor + group);
    const Floats positives = load_repeated<kPeriod>(sums.sum_positive + group);
    const Floats negatives = load_repeated<kPeriod>(sums.sum_negative + group);
    for (int64_t offset = group; offset + kLanes <= layout.body; offset += stride) {
      const Floats positive = load(sums.positive + offset) * scale, negative = load(sums.negative + offset) * scale;
      if (out_minor) {
        store(out_minor + offset, where_at_least(negatives, positives, positive) + where_below(negatives, positives, negative));
      }
      store(sums.positive + offset, positive + negative);
    }
  }
  unpack_features(sums.positive, layout, out);
}

template <int kPeriod, bool kDrop, bool kSplit>
static bool forward_rows_of(const AttentionForward& args, int64_t first, int64_t last, float* memory) {
  const int32_t* indptr = args.incoming.indptr;
  if (!indices_in_range(args.incoming.indices + indptr[first], indptr[last] - indptr[first], args.incoming.num_columns))
    return false;
  const int64_t size = accumulator_size(args.layout);
  walk_rows(
      args.incoming, first, last,
      [&](int64_t, int64_t place) { Accumulator(args.layout, memory + place * size).clear(); },
      [&](int64_t target, int64_t place, int64_t begin, int64_t end) {
        forward_edges_of<kPeriod, kDrop, kSplit>(args, target, begin, end, memory + place * size);
      },
      [&](int64_t target, int64_t place) { forward_finish_of<kPeriod>(args, target, memory + place * size); });
  return true;
}

inline static void forward_finish(const AttentionForward& args, int64_t target, float* memory) {
  for_variant(args.layout.padded_heads, false, false, [&](auto period, auto, auto) {
    forward_finish_of<period.value>(args, target, memory);
    return true;
  });
}

inline static bool forward_rows(const AttentionForward& args, int64_t first, int64_t last, float* memory) {
  return for_variant(args.layout.padded_heads, args.dropout.threshold != 0, args.out_minor != nullptr,
                     [&](auto period, auto drop, auto split) {
                       return forward_rows_of<period.value, drop.value, split.value>(args, first, last, memory);
                     });
}

inline static void forward_edges(const AttentionForward& args, int64_t row, int64_t begin, int64_t end, float* memory) {
  for_variant(args.layout.padded_heads, args.dropout.threshold != 0, args.out_minor != nullptr,
              [&](auto period, auto drop, auto split) {
                forward_edges_of<period.value, drop.value, split.value>(args, row, begin, end, memory);
                return true;
              });
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

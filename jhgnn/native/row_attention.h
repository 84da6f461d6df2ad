// Attention over drawn neighbours whose rows are weighted before they are projected.
//
// A head's sum of projected rows is the projection of its sum of rows: sum_u w(u) (W x_u) = W (sum_u w(u) x_u). A
// batch has about as many senders as edges, so to project every sender takes heads' width times as many operations as
// to weight its row once for each head, and receivers, of which there are far fewer, are then projected instead.
//
// All is computed receiver by receiver, while its neighbours' rows are in the first-level cache; nothing is kept for an
// edge. Heads are innermost in memory: a vector holds one number of each head.
#pragma once

#include <algorithm>
#include <type_traits>

#include "csr.h"
#include "kernels.h"
#include "transpose.h"
#include "vector.h"

namespace jhgnn {
namespace JHGNN_ISA {

template <int kHeads>
struct HeadVectors {
  typedef float Numbers __attribute__((vector_size(4 * kHeads)));
  typedef uint32_t Bits __attribute__((vector_size(4 * kHeads)));
};

template <>
struct HeadVectors<1> {
  typedef float Numbers;
  typedef uint32_t Bits;
};

constexpr int kRowsTogether = 8;         // neighbours whose logits are computed at a time
constexpr int kLineColumns = 16;         // numbers of a line of the cache
constexpr int kColumnsTogether = kLineColumns;  // columns of a sum of rows in registers
constexpr int kTargetsTogether = 4;      // receivers whose outer products are added at a time
constexpr int64_t kStripe = kRowStripe;  // columns of x's gradient that a task writes: a line of the cache

// Calls body(first, Constant<kCount>) for blocks of kCount below `count`, and then for single ones.
template <int kCount, typename Body>
JHGNN_INLINE void in_blocks(int64_t count, const Body& body) {
  int64_t at = 0;
  for (; at + kCount <= count; at += kCount) body(at, std::integral_constant<int, kCount>{});
  for (; at < count; ++at) body(at, std::integral_constant<int, 1>{});
}

template <int kHeads>
struct RowAttentionOf {
  using Numbers = typename HeadVectors<kHeads>::Numbers;
  using Bits = typename HeadVectors<kHeads>::Bits;

  const RowAttention& args;
  float *logits, *weights, *kept, *products;  // [fan_out, kHeads] each: before LeakyReLU; softmax; after dropout; products
  float* sums;          // [kTargetsTogether, in_width, kHeads] weighted rows
  float* cotangents;    // [kTargetsTogether, width, kHeads]
  float* moved;         // [in_width, kHeads] the cotangent, back through the weight
  float* d_weight;      // [in_width, width, kHeads]
  float* d_columns;     // [in_width, kHeads]

  static int64_t scratch_size(const RowAttention& args) {
    const int64_t edges = round_to_lanes(args.fan_out * kHeads);
    return 4 * edges + kTargetsTogether * (args.in_width + args.width) * kHeads + args.in_width * kHeads;
  }

  JHGNN_INLINE RowAttentionOf(const RowAttention& args_, float* scratch, float* gradients) : args(args_) {
    const int64_t edges = round_to_lanes(args.fan_out * kHeads);
    logits = scratch;
    weights = logits + edges;
    kept = weights + edges;
    products = kept + edges;
    sums = products + edges;
    cotangents = sums + kTargetsTogether * args.in_width * kHeads;
    moved = cotangents + kTargetsTogether * args.width * kHeads;
    d_weight = gradients;
    d_columns = gradients ? gradients + args.in_width * args.width * kHeads : nullptr;
  }

  static int64_t round_to_lanes(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

  static JHGNN_INLINE Numbers get(const float* from) { return load_as<Numbers>(from); }
  static JHGNN_INLINE void put(float* to, Numbers v) { store_as(to, v); }

  // A receiver's neighbours; null: their number or one of them is out of range.
  JHGNN_INLINE const int32_t* find(int64_t target) const {
    const int64_t count = args.num_neighbors[target];
    const int32_t* senders = args.senders + target * args.fan_out;
    return count >= 0 && count <= args.fan_out && indices_in_range(senders, count, args.sources) ? senders : nullptr;
  }

  JHGNN_INLINE const float* row(int32_t sender) const { return args.x + sender * args.in_width; }

  // The rows that the next receiver reads, to be fetched while this one's are in use: so many at once would wait for each
  // other. Their numbers have not been checked; addresses are only numbers here.
  struct Ahead {
    const int32_t* senders = nullptr;
    int64_t count = 0;

    JHGNN_INLINE Ahead first_half() const { return {senders, count / 2}; }
    JHGNN_INLINE Ahead second_half() const { return {senders + count / 2, count - count / 2}; }
  };

  JHGNN_INLINE Ahead ahead_of(int64_t target) const {
    const int64_t next = target + 1;
    if (next >= args.targets) return {};
    const int64_t count = args.num_neighbors[next];
    return {args.senders + next * args.fan_out, std::max<int64_t>(0, std::min(count, args.fan_out))};
  }

  JHGNN_INLINE void fetch(Ahead ahead, int64_t edge, int64_t column) const {
    const uintptr_t number = static_cast<uint32_t>(ahead.senders[edge]);
    const uintptr_t row = reinterpret_cast<uintptr_t>(args.x) + number * static_cast<uintptr_t>(args.in_width) * sizeof(float);
    __builtin_prefetch(reinterpret_cast<const void*>(row + static_cast<uintptr_t>(column) * sizeof(float)));
  }

  // results[edge] = added + row(senders[edge]) . columns. Fetches the rows `ahead`, as many as these at most.
  JHGNN_INLINE void dots(const int32_t* senders, int64_t count, const float* columns, Numbers added, float* results,
                         Ahead ahead) const {
    const int64_t width = args.in_width;
    in_blocks<kRowsTogether>(count, [&](int64_t edge, auto together) __attribute__((always_inline)) {
      constexpr int kCount = decltype(together)::value;
      Numbers total[kCount];
      const float* rows[kCount];
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        total[i] = added;
        rows[i] = row(senders[edge + i]);
      }
      const int64_t fetched = ahead.count - edge < kCount ? ahead.count - edge : kCount;
      for (int64_t first = 0; first < width; first += kLineColumns) {
        for (int64_t i = 0; i < fetched; ++i) fetch(ahead, edge + i, first);
        const int64_t last = first + kLineColumns < width ? first + kLineColumns : width;
        for (int64_t column = first; column < last; ++column) {
          const Numbers factor = get(columns + column * kHeads);
#pragma GCC unroll 8
          for (int i = 0; i < kCount; ++i) total[i] += factor * rows[i][column];
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) put(results + (edge + i) * kHeads, total[i]);
    });
  }

  // to[column] = (what is there, if kAdd) + sum over edges of factors[edge] * row(senders[edge])[column].
  // Fetches the rows `ahead`, a line of each with as many columns of these.
  template <bool kAdd>
  JHGNN_INLINE void weighted_rows(const int32_t* senders, int64_t count, const float* factors, float* to,
                                  Ahead ahead) const {
    const int64_t both = ahead.count < count ? ahead.count : count;
    in_blocks<kColumnsTogether>(args.in_width, [&](int64_t column, auto together) __attribute__((always_inline)) {
      constexpr int kCount = decltype(together)::value;
      Numbers total[kCount];
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) total[i] = kAdd ? get(to + (column + i) * kHeads) : Numbers{};
      const auto add = [&](int64_t edge) __attribute__((always_inline)) {
        const Numbers factor = get(factors + edge * kHeads);
        const float* from = row(senders[edge]) + column;
#pragma GCC unroll 16
        for (int i = 0; i < kCount; ++i) total[i] += factor * from[i];
      };
      int64_t edge = 0;
      for (; edge < both; ++edge) {
        fetch(ahead, edge, column);
        add(edge);
      }
      for (; edge < count; ++edge) add(edge);
      for (; edge < ahead.count; ++edge) fetch(ahead, edge, column);
#pragma GCC unroll 16
      for (int i = 0; i < kCount; ++i) put(to + (column + i) * kHeads, total[i]);
    });
  }

  // logits, weights and, with dropout, kept of a receiver and its neighbours.
  JHGNN_INLINE void weigh(int64_t target, const int32_t* senders, int64_t count, Ahead ahead) const {
    float own[kHeads] = {};
    for (int64_t head = 0; head < args.heads; ++head) own[head] = args.logit_dst[target * args.heads + head];
    dots(senders, count, args.columns, get(own), logits, ahead);
    Numbers top = Numbers{} - __builtin_inff();
    for (int64_t edge = 0; edge < count; ++edge) {
      const Numbers logit = get(logits + edge * kHeads), leaky = logit >= 0.0f ? logit : logit * args.slope;
      put(weights + edge * kHeads, leaky);
      top = leaky > top ? leaky : top;
    }
    for (int64_t edge = 0; edge < count; ++edge) put(weights + edge * kHeads, get(weights + edge * kHeads) - top);
    for (int64_t at = 0; at < count * kHeads; at += kLanes) store(weights + at, exponential(load(weights + at)));
    Numbers total{};
    for (int64_t edge = 0; edge < count; ++edge) total += get(weights + edge * kHeads);
    const Numbers reciprocal = 1.0f / total;
    for (int64_t edge = 0; edge < count; ++edge) put(weights + edge * kHeads, get(weights + edge * kHeads) * reciprocal);
    if (args.dropout.threshold == 0) return;
    const uint32_t sender_seed = mix(args.dropout.seed);
    const uint32_t own_key = endpoint_key(args.dropout.receiver(target), mix(args.dropout.seed + kGolden));
    uint32_t words[kHeads];
    for (int head = 0; head < kHeads; ++head) words[head] = static_cast<uint32_t>(head) * kGolden;
    const Bits heads = bits_of<Bits>(words);
    for (int64_t edge = 0; edge < count; ++edge) {
      const uint32_t key = endpoint_key(args.dropout.sender(senders[edge]), sender_seed) + own_key;
      const Bits bits = mix((Bits{} + key) ^ heads);
      const Numbers scaled = get(weights + edge * kHeads) * args.dropout.scale;
      put(kept + edge * kHeads, bits >= args.dropout.threshold ? scaled : Numbers{});
    }
  }

  JHGNN_INLINE const float* after_dropout() const { return args.dropout.threshold == 0 ? weights : kept; }

  // args.out of receivers `first` to `last`.
  bool forward(int64_t first, int64_t last) const {
    const int64_t out_width = args.heads * args.width;
    float* result = cotangents;  // [width, kHeads]
    for (int64_t target = first; target < last; ++target) {
      float* out = args.out + target * out_width;
      const int64_t count = args.num_neighbors[target];
      if (count == 0) {
        for (int64_t i = 0; i < out_width; ++i) out[i] = 0.0f;
        continue;
      }
      const int32_t* senders = find(target);
      if (!senders) return false;
      const Ahead ahead = ahead_of(target);
      weigh(target, senders, count, ahead.first_half());
      weighted_rows<false>(senders, count, after_dropout(), sums, ahead.second_half());
      in_blocks<8>(args.width, [&](int64_t at, auto together) __attribute__((always_inline)) {
        constexpr int kCount = decltype(together)::value;
        Numbers total[kCount]{};
        for (int64_t column = 0; column < args.in_width; ++column) {
          const Numbers sum = get(sums + column * kHeads);
          const float* weight = args.weight + (column * args.width + at) * kHeads;
#pragma GCC unroll 8
          for (int i = 0; i < kCount; ++i) total[i] += sum * get(weight + i * kHeads);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kCount; ++i) put(result + (at + i) * kHeads, total[i]);
      });
      transpose(result, args.width, args.heads, kHeads, out, args.width);
    }
    return true;
  }

  // d_weight += sums x cotangents of kCount receivers.
  template <int kCount>
  JHGNN_INLINE void add_outer() const {
    in_blocks<8>(args.width, [&](int64_t at, auto together) __attribute__((always_inline)) {
      constexpr int kWide = decltype(together)::value;
      for (int64_t column = 0; column < args.in_width; ++column) {
        float* to = d_weight + (column * args.width + at) * kHeads;
        Numbers total[kWide];
#pragma GCC unroll 8
        for (int i = 0; i < kWide; ++i) total[i] = get(to + i * kHeads);
#pragma GCC unroll 4
        for (int place = 0; place < kCount; ++place) {
          const Numbers sum = get(sums + (place * args.in_width + column) * kHeads);
#pragma GCC unroll 8
          for (int i = 0; i < kWide; ++i) {
            total[i] += sum * get(cotangents + (place * args.width + at + i) * kHeads);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kWide; ++i) put(to + i * kHeads, total[i]);
      }
    });
  }

  // Gradients of receivers `first` to `last`: args.d_logit_dst, args.factors, and what is added to d_weight and d_columns.
  bool backward(int64_t first, int64_t last) const {
    const int64_t out_width = args.heads * args.width, in_width = args.in_width;
    int waiting = 0;
    for (int64_t target = first; target < last; ++target) {
      float* d_logit_dst = args.d_logit_dst + target * args.heads;
      const int64_t count = args.num_neighbors[target];
      if (count == 0) {
        for (int64_t head = 0; head < args.heads; ++head) d_logit_dst[head] = 0.0f;
        continue;
      }
      const int32_t* senders = find(target);
      if (!senders) return false;
      const Ahead ahead = ahead_of(target);
      weigh(target, senders, count, {});
      const float* factors = after_dropout();
      float *own = sums + waiting * in_width * kHeads, *cotangent = cotangents + waiting * args.width * kHeads;
      weighted_rows<false>(senders, count, factors, own, ahead.first_half());
      transpose(args.cotangent + target * out_width, args.heads, args.width, args.width, cotangent, kHeads);
      for (int64_t column = 0; column < in_width; ++column) {
        const float* weight = args.weight + column * args.width * kHeads;
        Numbers total{};
        for (int64_t at = 0; at < args.width; ++at) total += get(weight + at * kHeads) * get(cotangent + at * kHeads);
        put(moved + column * kHeads, total);
      }
      dots(senders, count, moved, Numbers{}, products, {});
      Numbers mean{};
      for (int64_t edge = 0; edge < count; ++edge) mean += get(factors + edge * kHeads) * get(products + edge * kHeads);
      Numbers of_target{};
      for (int64_t edge = 0; edge < count; ++edge) {
        const int64_t at = edge * kHeads;
        const Numbers leaky = get(factors + at) * get(products + at) - get(weights + at) * mean;
        const Numbers d_logit = get(logits + at) >= 0.0f ? leaky : leaky * args.slope;
        of_target += d_logit;
        put(products + at, d_logit);
      }
      float lanes[kHeads];
      put(lanes, of_target);
      for (int64_t head = 0; head < args.heads; ++head) d_logit_dst[head] = lanes[head];
      weighted_rows<true>(senders, count, products, d_columns, ahead.second_half());
      if (args.factors) {
        float* to = args.factors + target * args.fan_out * 2 * kHeads;
        for (int64_t edge = 0; edge < count; ++edge) {
          put(to + 2 * edge * kHeads, get(factors + edge * kHeads));
          put(to + (2 * edge + 1) * kHeads, get(products + edge * kHeads));
        }
      }
      if (++waiting == kTargetsTogether) {
        add_outer<kTargetsTogether>();
        waiting = 0;
      }
    }
    for (int place = 0; place < waiting; ++place) {
      if (place > 0) {
        for (int64_t i = 0; i < in_width * kHeads; ++i) sums[i] = sums[place * in_width * kHeads + i];
        for (int64_t i = 0; i < args.width * kHeads; ++i) cotangents[i] = cotangents[place * args.width * kHeads + i];
      }
      add_outer<1>();
    }
    return true;
  }

  // Adds columns `first` to `first + count` (at most kStripe) to args.d_x, of all senders, from args.factors.
  void d_rows(int64_t first, int64_t count) const {
    constexpr int kVectors = kStripe / kLanes;
    const int64_t out_width = args.heads * args.width, in_width = args.in_width;
    float back[2 * kHeads][kStripe] = {};  // a head's cotangent back through the weight, and its column
    for (int64_t head = 0; head < args.heads; ++head) {
      for (int64_t i = 0; i < count; ++i) back[kHeads + head][i] = args.columns[(first + i) * kHeads + head];
    }
    float turned[kStripe] = {};
    for (int64_t target = 0; target < args.targets; ++target) {
      const int64_t edges = args.num_neighbors[target];
      if (edges == 0) continue;
      const float* cotangent = args.cotangent + target * out_width;
      for (int64_t head = 0; head < args.heads; ++head) {
        Floats total[kVectors]{};
        for (int64_t at = 0; at < args.width; ++at) {
          const float* weight = args.stripes + ((first / kStripe * args.heads + head) * args.width + at) * kStripe;
          for (int v = 0; v < kVectors; ++v) total[v] += load(weight + v * kLanes) * cotangent[head * args.width + at];
        }
        for (int v = 0; v < kVectors; ++v) store(back[head] + v * kLanes, total[v]);
      }
      const Ahead ahead = ahead_of(target);
      for (int64_t edge = 0; edge < ahead.count; ++edge) {
        __builtin_prefetch(args.d_x + ahead.senders[edge] * in_width + first, 1);
      }
      const float* factors = args.factors + target * args.fan_out * 2 * kHeads;
      for (int64_t edge = 0; edge < edges; ++edge, factors += 2 * kHeads) {
        Floats total[kVectors]{};
#pragma GCC unroll 16
        for (int i = 0; i < 2 * kHeads; ++i) {
          for (int v = 0; v < kVectors; ++v) total[v] += load(back[i] + v * kLanes) * factors[i];
        }
        float* to = args.d_x + args.senders[target * args.fan_out + edge] * in_width + first;
        if (count == kStripe) {
          for (int v = 0; v < kVectors; ++v) add_to(to + v * kLanes, total[v]);
        } else {
          for (int v = 0; v < kVectors; ++v) store(turned + v * kLanes, total[v]);
          for (int64_t i = 0; i < count; ++i) to[i] += turned[i];
        }
      }
    }
  }
};

template <typename Body>
JHGNN_INLINE auto with_heads(const RowAttention& args, const Body& body) {
  switch (args.padded_heads) {
    case 1: return body(std::integral_constant<int, 1>{});
    case 2: return body(std::integral_constant<int, 2>{});
    case 4: return body(std::integral_constant<int, 4>{});
    case 8: return body(std::integral_constant<int, 8>{});
    default: return body(std::integral_constant<int, 16>{});
  }
}

inline static int64_t row_attention_scratch(const RowAttention& args) {
  return with_heads(args, [&](auto heads) { return RowAttentionOf<decltype(heads)::value>::scratch_size(args); });
}

inline static bool row_attention_forward(const RowAttention& args, int64_t first, int64_t last, float* scratch) {
  return with_heads(args, [&](auto heads) {
    return RowAttentionOf<decltype(heads)::value>(args, scratch, nullptr).forward(first, last);
  });
}

inline static bool row_attention_backward(const RowAttention& args, int64_t first, int64_t last, float* scratch,
                                          float* gradients) {
  return with_heads(args, [&](auto heads) {
    return RowAttentionOf<decltype(heads)::value>(args, scratch, gradients).backward(first, last);
  });
}

inline static void row_attention_d_rows(const RowAttention& args, int64_t first, int64_t count) {
  with_heads(args, [&](auto heads) {
    float scratch[2];
    RowAttentionOf<decltype(heads)::value>(args, scratch, nullptr).d_rows(first, count);
    return true;
  });
}

}  // namespace JHGNN_ISA
}  // namespace jhgnn

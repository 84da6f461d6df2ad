// neighbor_attention in one pass over the in-edges, and its gradient in one pass over the out-edges.
//
// Forward: the softmax is online: a state holds the largest score so far and sums relative to it. Sums over edges whose
// logit is negative are kept apart from the others, which costs no memory traffic and saves a pass backward: a target's
// d_logit_dst is the sum over the edges of one sign alone (jhgnn/ops/neighbor_attention/bucketed.py has the algebra).
// Kept for the backward pass are four numbers a target and head, and the part of the output from edges of minor sign.
//
// Backward: weights are computed again from the logits and those numbers, along the transposed edges. Nothing is kept or
// written for an edge, in either direction.
#pragma once

#include "../counter_hash.h"
#include "csr_tiles.h"

namespace jhgnn::cuda {

struct Dropout {
  const uint32_t* seed;         // [1]
  const int32_t* sender_ids;    // [num_sources], or null: vertices' numbers
  const int32_t* receiver_ids;  // [num_targets], likewise
  uint32_t threshold;           // bits below it are dropped; 0: none
  float scale;                  // of the kept ones

  JHGNN_DEVICE uint32_t sender_key(int32_t vertex) const {
    const uint32_t id = static_cast<uint32_t>(sender_ids ? sender_ids[vertex] : vertex);
    return endpoint_key(id, mix(seed[0]));
  }
  JHGNN_DEVICE uint32_t receiver_key(int32_t vertex) const {
    const uint32_t id = static_cast<uint32_t>(receiver_ids ? receiver_ids[vertex] : vertex);
    return endpoint_key(id, mix(seed[0] + kGolden));
  }
  JHGNN_DEVICE bool keeps(uint32_t sender, uint32_t receiver, int32_t head) const {
    return edge_bits(sender, receiver, static_cast<uint32_t>(head)) >= threshold;
  }
};

// Of a target and head; a word of four floats.
struct alignas(16) Stats {
  float shift;              // the largest score
  float inverse;            // of the sum of exponentials
  float minor_is_negative;  // 1: edges of negative logit weigh less than the others
  float minor_weight;       // of the lighter ones
};

// What the backward pass reads of a target and head.
struct alignas(16) Target {
  float logit;
  float shift;
  float inverse;
  float delta;  // <cotangent, out>
};

constexpr float kNone = -3.0e38f;  // below every score

JHGNN_DEVICE float leaky(float x, float slope) { return x >= 0.0f ? x : slope * x; }

template <typename T>
struct AttentionForwardArguments {
  Csr csr;  // rows are targets
  Tiles tiles;
  const T* z;              // [num_sources, heads, width]
  const float* logit_src;  // [num_sources, heads]
  const float* logit_dst;  // [num_targets, heads]
  Dropout dropout;
  T* out;        // [num_targets, heads, width]
  float* minor;  // [num_targets, heads, width], in training
  Stats* stats;  // [num_targets, heads], in training
  int32_t heads;
  int32_t width;
  float slope;
};

template <typename T, int kVector, int kPacks, bool kTraining>
struct AttentionForward {
  static constexpr int kSums = kTraining ? 2 : 1;  // positive and negative logits apart, or together
  // Of each pack: the largest score, the sums of exponentials, the sums of weighted rows.
  static constexpr int kOfPack = 1 + kSums * (1 + kVector);
  struct State {
    static constexpr int kSize = kPacks * kOfPack;
    float values[kSize];
  };
  struct Row {
    float logits[kPacks];
    uint32_t key;
  };
  struct Entry {
    float values[kVector * kPacks];
    float logits[kPacks];
    uint32_t key;
  };
  using Word = Pack<T, kVector>;

  const AttentionForwardArguments<T>& given;

  JHGNN_DEVICE int32_t columns() const { return given.heads * given.width; }
  JHGNN_DEVICE int32_t first(int pack) const { return Columns<kVector, kPacks>{columns()}.of(pack, given.tiles); }

  JHGNN_DEVICE State empty() const {
    State state;
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state.values[i] = i % kOfPack == 0 ? kNone : 0.0f;
    return state;
  }

  JHGNN_DEVICE Row enter(int32_t row) const {
    Row entered;
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t column = first(pack);
      entered.logits[pack] =
          column < columns() ? given.logit_dst[static_cast<int64_t>(row) * given.heads + column / given.width] : 0.0f;
    }
    entered.key = given.dropout.threshold ? given.dropout.receiver_key(row) : 0u;
    return entered;
  }

  JHGNN_DEVICE Entry read(int32_t, int32_t sender) const {
    Entry entry;
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t column = first(pack);
      Word word{};
      entry.logits[pack] = 0.0f;
      if (column < columns()) {
        word = *reinterpret_cast<const Word*>(given.z + static_cast<int64_t>(sender) * columns() + column);
        entry.logits[pack] = given.logit_src[static_cast<int64_t>(sender) * given.heads + column / given.width];
      }
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) entry.values[pack * kVector + i] = to_float(word.values[i]);
    }
    entry.key = given.dropout.threshold ? given.dropout.sender_key(sender) : 0u;
    return entry;
  }

  JHGNN_DEVICE void add(const Row& row, const Entry& entry, State* state) const {
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      float* own = state->values + pack * kOfPack;
      const float logit = row.logits[pack] + entry.logits[pack];
      const float score = leaky(logit, given.slope);
      if (score > own[0]) {
        const float smaller_by = exponential(own[0] - score);
JHGNN_UNROLL
        for (int i = 1; i < kOfPack; ++i) own[i] *= smaller_by;
        own[0] = score;
      }
      const float weight = exponential(score - own[0]);
      bool kept = true;
      if (given.dropout.threshold) kept = given.dropout.keeps(entry.key, row.key, first(pack) / given.width);
      const float used = kept ? weight : 0.0f;
      if constexpr (kTraining) {
        const bool negative = logit < 0.0f;
        own[1] += negative ? 0.0f : weight;
        own[2 + kVector] += negative ? weight : 0.0f;
        const float positive_used = negative ? 0.0f : used, negative_used = negative ? used : 0.0f;
JHGNN_UNROLL
        for (int i = 0; i < kVector; ++i) {
          own[2 + i] += positive_used * entry.values[pack * kVector + i];
          own[3 + kVector + i] += negative_used * entry.values[pack * kVector + i];
        }
      } else {
        own[1] += weight;
JHGNN_UNROLL
        for (int i = 0; i < kVector; ++i) own[2 + i] += used * entry.values[pack * kVector + i];
      }
    }
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      float* own = state->values + pack * kOfPack;
      const float* theirs = other.values + pack * kOfPack;
      const float top = own[0] > theirs[0] ? own[0] : theirs[0];
      const float by = exponential(own[0] - top), theirs_by = exponential(theirs[0] - top);
JHGNN_UNROLL
      for (int i = 1; i < kOfPack; ++i) own[i] = own[i] * by + theirs[i] * theirs_by;
      own[0] = top;
    }
  }

  JHGNN_DEVICE void store(int32_t row, const State& state) const {
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const float* own = state.values + pack * kOfPack;
      const int32_t column = first(pack);
      if (column >= columns()) continue;
      const float positive = own[1], negative = kTraining ? own[2 + kVector] : 0.0f;
      const float total = positive + negative;
      const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
      const float scale = inverse * given.dropout.scale;
      const bool minor_is_negative = negative <= positive;
      const int64_t at = static_cast<int64_t>(row) * columns() + column;
      Word word;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) {
        float sum = own[2 + i];
        if constexpr (kTraining) sum += own[3 + kVector + i];
        word.values[i] = from_float<T>(sum * scale);
      }
      *reinterpret_cast<Word*>(given.out + at) = word;
      if constexpr (kTraining) {
        Pack<float, kVector> minor;
JHGNN_UNROLL
        for (int i = 0; i < kVector; ++i) {
          minor.values[i] = (minor_is_negative ? own[3 + kVector + i] : own[2 + i]) * scale;
        }
        *reinterpret_cast<Pack<float, kVector>*>(given.minor + at) = minor;
        if (column % given.width == 0) {
          [[maybe_unused]] const float minor_weight = (minor_is_negative ? negative : positive) * inverse;
          given.stats[static_cast<int64_t>(row) * given.heads + column / given.width] = {
              total > 0.0f ? own[0] : 0.0f, inverse, minor_is_negative ? 1.0f : 0.0f, minor_weight};
        }
      }
    }
  }

  JHGNN_DEVICE void clear(int32_t row) const { store(row, empty()); }
};

template <typename T>
struct AttentionBackwardArguments {
  Csr csr;  // rows are sources, the transposed edges
  Tiles tiles;
  const T* cotangent;      // [num_targets, heads, width]
  const float* logit_src;  // [num_sources, heads]
  const Target* targets;   // [num_targets, heads]
  Dropout dropout;
  T* d_z;         // [num_sources, heads, width]
  float* sloped;  // [num_sources, heads, width]: as d_z, each edge times the slope at its logit
  float* deltas;  // [num_sources, heads]: the sum of weight * slope * delta
  int32_t heads;
  int32_t width;
  float slope;
};

template <typename T, int kVector, int kPacks>
struct AttentionBackward {
  static constexpr int kOfPack = 1 + 2 * kVector;
  struct State {
    static constexpr int kSize = kPacks * kOfPack;
    float values[kSize];
  };
  struct Row {
    float logits[kPacks];
    uint32_t key;
  };
  struct Entry {
    float values[kVector * kPacks];
    Target targets[kPacks];
    uint32_t key;
  };
  using Word = Pack<T, kVector>;

  const AttentionBackwardArguments<T>& given;

  JHGNN_DEVICE int32_t columns() const { return given.heads * given.width; }
  JHGNN_DEVICE int32_t first(int pack) const { return Columns<kVector, kPacks>{columns()}.of(pack, given.tiles); }

  JHGNN_DEVICE State empty() const {
    State state;
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state.values[i] = 0.0f;
    return state;
  }

  JHGNN_DEVICE Row enter(int32_t row) const {
    Row entered;
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t column = first(pack);
      entered.logits[pack] =
          column < columns() ? given.logit_src[static_cast<int64_t>(row) * given.heads + column / given.width] : 0.0f;
    }
    entered.key = given.dropout.threshold ? given.dropout.sender_key(row) : 0u;
    return entered;
  }

  JHGNN_DEVICE Entry read(int32_t, int32_t receiver) const {
    Entry entry;
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const int32_t column = first(pack);
      Word word{};
      entry.targets[pack] = {};
      if (column < columns()) {
        word = *reinterpret_cast<const Word*>(given.cotangent + static_cast<int64_t>(receiver) * columns() + column);
        entry.targets[pack] = given.targets[static_cast<int64_t>(receiver) * given.heads + column / given.width];
      }
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) entry.values[pack * kVector + i] = to_float(word.values[i]);
    }
    entry.key = given.dropout.threshold ? given.dropout.receiver_key(receiver) : 0u;
    return entry;
  }

  JHGNN_DEVICE void add(const Row& row, const Entry& entry, State* state) const {
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      float* own = state->values + pack * kOfPack;
      const Target& target = entry.targets[pack];
#if JHGNN_FAULT == 2  // planted in tests: a wrong transpose, the row's own logit where the other end's belongs
      const float logit = row.logits[pack] + row.logits[pack];
#else
      const float logit = row.logits[pack] + target.logit;
#endif
      const float weight = exponential(leaky(logit, given.slope) - target.shift) * target.inverse;
      bool kept = true;
      if (given.dropout.threshold) kept = given.dropout.keeps(row.key, entry.key, first(pack) / given.width);
      const float used = kept ? weight * given.dropout.scale : 0.0f;
      const float slope = logit >= 0.0f ? 1.0f : given.slope;
      own[0] += weight * slope * target.delta;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) {
        const float part = used * entry.values[pack * kVector + i];
        own[1 + i] += part;
        own[1 + kVector + i] += slope * part;
      }
    }
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state->values[i] += other.values[i];
  }

  JHGNN_DEVICE void store(int32_t row, const State& state) const {
JHGNN_UNROLL
    for (int pack = 0; pack < kPacks; ++pack) {
      const float* own = state.values + pack * kOfPack;
      const int32_t column = first(pack);
      if (column >= columns()) continue;
      const int64_t at = static_cast<int64_t>(row) * columns() + column;
      Word word;
      Pack<float, kVector> sloped;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) {
        word.values[i] = from_float<T>(own[1 + i]);
        sloped.values[i] = own[1 + kVector + i];
      }
      *reinterpret_cast<Word*>(given.d_z + at) = word;
      *reinterpret_cast<Pack<float, kVector>*>(given.sloped + at) = sloped;
      if (column % given.width == 0) {
        given.deltas[static_cast<int64_t>(row) * given.heads + column / given.width] = own[0];
      }
    }
  }

  JHGNN_DEVICE void clear(int32_t row) const { store(row, empty()); }
};

}  // namespace jhgnn::cuda

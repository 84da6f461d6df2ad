// neighbor_attention in one pass over the in-edges, and its gradient in one pass over the out-edges.
//
// Forward: the softmax is online: a state holds a score near the largest so far, and sums relative to it. Sums over edges
// whose logit is negative are kept apart from the others, which costs no memory traffic and saves a pass backward: a
// target's d_logit_dst is the sum over the edges of one sign alone (jhgnn/ops/neighbor_attention/bucketed.py has the
// algebra). Kept for the backward pass are three numbers a target and head, and the part of the output from edges of minor
// sign.
//
// Backward: weights are computed again from the logits and those numbers, along the transposed edges. Nothing is kept or
// written for an edge, in either direction. A source's row is at hand, so that its product with what comes back, and with
// it the logit's gradient, is summed in the same walk.
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

  // The id that is hashed for a vertex.
  JHGNN_DEVICE int32_t sender(int32_t vertex) const { return sender_ids ? sender_ids[vertex] : vertex; }
  JHGNN_DEVICE int32_t receiver(int32_t vertex) const { return receiver_ids ? receiver_ids[vertex] : vertex; }

  JHGNN_DEVICE uint32_t sender_key(int32_t id) const { return endpoint_key(static_cast<uint32_t>(id), mix(seed[0])); }
  JHGNN_DEVICE uint32_t receiver_key(int32_t id) const {
    return endpoint_key(static_cast<uint32_t>(id), mix(seed[0] + kGolden));
  }
  JHGNN_DEVICE bool keeps(uint32_t sender, uint32_t receiver, int32_t head) const {
    return edge_bits(sender, receiver, static_cast<uint32_t>(head)) >= threshold;
  }
};

// Of a target and head, as the forward pass keeps them: planes of `[num_targets, heads]`.
enum Stat {
  kLogSum,           // the logarithm of the sum of exponentials of scores
  kMinorIsNegative,  // 1: edges of negative logit weigh less than the others
  kMinorWeight,      // of the lighter ones
  kStats
};

// What the backward pass reads of a target and head, `[num_targets, kOfTarget, heads]`.
enum OfTarget { kLogit, kLogSumOfTarget, kDelta, kOfTarget };  // kDelta: <cotangent, out>

constexpr float kNone = -3.0e38f;   // below every score
constexpr float kSlack = 8.0f;      // by how much a score may be above that which sums are relative to

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
  float* stats;  // [kStats, num_targets, heads], in training
  int32_t heads;
  int32_t width;
  float slope;
};

template <typename T, int kVector, bool kTraining>
struct AttentionForward {
  static constexpr int kSums = kTraining ? 2 : 1;  // positive and negative logits apart, or together
  struct State {
    // A score that sums are relative to, then the sums of exponentials and of weighted rows.
    static constexpr int kSize = 1 + kSums * (1 + kVector);
    float values[kSize];
  };
  struct Row {
    float logit;
    int32_t id;
    uint32_t key;
  };
  using Word = Pack<T, kVector>;
  struct Entry {
    Word word;
    float logit;
    int32_t id;
  };

  const AttentionForwardArguments<T>& given;
  const int32_t column, head;

  JHGNN_DEVICE explicit AttentionForward(const AttentionForwardArguments<T>& arguments)
      : given(arguments), column(column_of<kVector>(arguments.tiles)), head(column / arguments.width) {}

  JHGNN_DEVICE bool mine() const { return head < given.heads; }

  JHGNN_DEVICE State empty() const {
    State state;
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state.values[i] = i == 0 ? kNone : 0.0f;
    return state;
  }

  JHGNN_DEVICE Row read_row(int64_t row) const {
    const float logit = mine() ? given.logit_dst[row * given.heads + head] : 0.0f;
    return {logit, given.dropout.receiver(static_cast<int32_t>(row)), 0u};
  }
  JHGNN_DEVICE void enter(Row* row) const { row->key = given.dropout.threshold ? given.dropout.receiver_key(row->id) : 0u; }

  JHGNN_DEVICE Entry read(int32_t, int32_t sender) const {
    Entry entry;
    const int64_t of = sender;
    entry.word = mine() ? load_word<Word>(given.z + of * (given.heads * given.width) + column) : Word{};
    entry.logit = mine() ? given.logit_src[of * given.heads + head] : 0.0f;
    entry.id = given.dropout.sender(sender);
    return entry;
  }

  JHGNN_DEVICE void add(const Row& row, const Entry& entry, State* state) const {
    float* own = state->values;
    const float logit = row.logit + entry.logit;
    const float score = leaky(logit, given.slope);
    // Sums are made relative to another score only where they might grow large, which is seldom after the first one.
    if (score > own[0] + kSlack) {
      const float smaller_by = exponential(own[0] - score);
JHGNN_UNROLL
      for (int i = 1; i < State::kSize; ++i) own[i] *= smaller_by;
      own[0] = score;
    }
    const float weight = exponential(score - own[0]);
    bool kept = true;
    if (given.dropout.threshold) kept = given.dropout.keeps(given.dropout.sender_key(entry.id), row.key, head);
    const float used = kept ? weight : 0.0f;
    if constexpr (kTraining) {
      const bool negative = logit < 0.0f;
      own[1] += negative ? 0.0f : weight;
      own[2 + kVector] += negative ? weight : 0.0f;
      const float positive_used = negative ? 0.0f : used, negative_used = negative ? used : 0.0f;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) {
        own[2 + i] += positive_used * to_float(entry.word.values[i]);
        own[3 + kVector + i] += negative_used * to_float(entry.word.values[i]);
      }
    } else {
      own[1] += weight;
JHGNN_UNROLL
      for (int i = 0; i < kVector; ++i) own[2 + i] += used * to_float(entry.word.values[i]);
    }
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
    float* own = state->values;
    const float top = own[0] > other.values[0] ? own[0] : other.values[0];
    const float by = exponential(own[0] - top), theirs_by = exponential(other.values[0] - top);
JHGNN_UNROLL
    for (int i = 1; i < State::kSize; ++i) own[i] = own[i] * by + other.values[i] * theirs_by;
    own[0] = top;
  }

  JHGNN_DEVICE void store(int32_t row, int32_t, const Row&, const State& state) const {
    if (!mine()) return;
    const float* own = state.values;
    const float positive = own[1], negative = kTraining ? own[2 + kVector] : 0.0f;
    const float total = positive + negative;
    const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
    const float scale = inverse * given.dropout.scale;
    const bool minor_is_negative = negative <= positive;
    const int64_t at = static_cast<int64_t>(row) * (given.heads * given.width) + column;
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
      for (int i = 0; i < kVector; ++i) minor.values[i] = (minor_is_negative ? own[3 + kVector + i] : own[2 + i]) * scale;
      *reinterpret_cast<Pack<float, kVector>*>(given.minor + at) = minor;
      if (column % given.width == 0) {
        const int64_t plane = static_cast<int64_t>(given.csr.num_rows) * given.heads;
        float* stats = given.stats + static_cast<int64_t>(row) * given.heads + head;
        stats[kLogSum * plane] = total > 0.0f ? own[0] + logarithm(total) : 0.0f;
        stats[kMinorIsNegative * plane] = minor_is_negative ? 1.0f : 0.0f;
        stats[kMinorWeight * plane] = (minor_is_negative ? negative : positive) * inverse;
      }
    }
  }
};

template <typename T>
struct AttentionBackwardArguments {
  Csr csr;  // rows are sources, the transposed edges
  Tiles tiles;
  const T* cotangent;      // [num_targets, heads, width]
  const T* z;              // [num_sources, heads, width]
  const float* logit_src;  // [num_sources, heads]
  const float* targets;    // [num_targets, kOfTarget, heads]
  Dropout dropout;
  T* d_z;          // [num_sources, heads, width]
  float* d_logit;  // [num_sources, lanes of a row]: of a source's logits, the part of each lane's columns
  int32_t heads;
  int32_t width;
  float slope;
};

template <typename T, int kVector>
struct AttentionBackward {
  struct State {
    static constexpr int kSize = 1 + kVector;  // of the logit, then of the row
    float values[kSize];
  };
  using Word = Pack<T, kVector>;
  struct Row {
    Word z;
    float logit;
    int32_t id;
    uint32_t key;
  };
  struct Entry {
    Word word;
    float logit, log_sum, delta;
    int32_t id;
  };

  const AttentionBackwardArguments<T>& given;
  const int32_t column, head;

  JHGNN_DEVICE explicit AttentionBackward(const AttentionBackwardArguments<T>& arguments)
      : given(arguments), column(column_of<kVector>(arguments.tiles)), head(column / arguments.width) {}

  JHGNN_DEVICE bool mine() const { return head < given.heads; }
  JHGNN_DEVICE bool leads() const { return column % given.width == 0; }  // counts what the lanes of a head share

  JHGNN_DEVICE State empty() const {
    State state;
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state.values[i] = 0.0f;
    return state;
  }

  JHGNN_DEVICE Row read_row(int64_t row) const {
    const Word z = mine() ? load_word<Word>(given.z + row * (given.heads * given.width) + column) : Word{};
    const float logit = mine() ? given.logit_src[row * given.heads + head] : 0.0f;
    return {z, logit, given.dropout.sender(static_cast<int32_t>(row)), 0u};
  }
  JHGNN_DEVICE void enter(Row* row) const { row->key = given.dropout.threshold ? given.dropout.sender_key(row->id) : 0u; }

  JHGNN_DEVICE Entry read(int32_t, int32_t receiver) const {
    Entry entry;
    const int64_t of = receiver;
    entry.word = mine() ? load_word<Word>(given.cotangent + of * (given.heads * given.width) + column) : Word{};
    const float* target = given.targets + of * (kOfTarget * given.heads) + head;
    entry.logit = mine() ? target[kLogit * given.heads] : 0.0f;
    entry.log_sum = mine() ? target[kLogSumOfTarget * given.heads] : 0.0f;
    entry.delta = mine() && leads() ? target[kDelta * given.heads] : 0.0f;
    entry.id = given.dropout.receiver(receiver);
    return entry;
  }

  JHGNN_DEVICE void add(const Row& row, const Entry& entry, State* state) const {
    float* own = state->values;
#if JHGNN_FAULT == 2  // planted in tests: a wrong transpose, the row's own logit where the other end's belongs
    const float logit = row.logit + row.logit;
#else
    const float logit = row.logit + entry.logit;
#endif
    const float weight = exponential(leaky(logit, given.slope) - entry.log_sum);
    bool kept = true;
    if (given.dropout.threshold) kept = given.dropout.keeps(row.key, given.dropout.receiver_key(entry.id), head);
    const float used = kept ? weight * given.dropout.scale : 0.0f;
    float product = 0.0f;
JHGNN_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const float back = to_float(entry.word.values[i]);
      own[1 + i] += used * back;
      product += to_float(row.z.values[i]) * back;
    }
    const float slope = logit >= 0.0f ? 1.0f : given.slope;
    own[0] += slope * (used * product - weight * entry.delta);
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state->values[i] += other.values[i];
  }

  JHGNN_DEVICE void store(int32_t row, int32_t, const Row&, const State& state) const {
    if (!mine()) return;
    const int32_t columns = given.heads * given.width;
    Word word;
JHGNN_UNROLL
    for (int i = 0; i < kVector; ++i) word.values[i] = from_float<T>(state.values[1 + i]);
    *reinterpret_cast<Word*>(given.d_z + static_cast<int64_t>(row) * columns + column) = word;
    given.d_logit[(static_cast<int64_t>(row) * columns + column) / kVector] = state.values[0];
  }
};

}  // namespace jhgnn::cuda

// neighbor_attention in one pass over the in-edges, and its gradient in one pass over the out-edges.
//
// Forward: the softmax is online: a state holds a score near the largest so far, and sums relative to it. Sums over edges
// whose logit is negative are kept apart from the others, which costs no memory traffic and saves a pass backward: a
// target's d_logit_dst is the sum over the edges of one sign alone (jhgnn/ops/neighbor_attention/bucketed.py has the
// algebra). Kept for the backward pass are three numbers a target and head, and the part of the output from edges of minor
// sign.
//
// Backward: weights are computed again from the logits and those numbers, along the transposed edges. Nothing is kept or
// written for an edge, in either direction. Beside the sum of what comes back, that of each part times the slope at its
// logit is kept, whose product with the source's row is the gradient of the source's logit.
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

  JHGNN_DEVICE bool keeps(int32_t sender_id, int32_t receiver_id, int32_t head) const {
    const uint32_t sender_key = endpoint_key(static_cast<uint32_t>(sender_id), mix(seed[0]));
    const uint32_t receiver_key = endpoint_key(static_cast<uint32_t>(receiver_id), mix(seed[0] + kGolden));
    return edge_bits(sender_key, receiver_key, static_cast<uint32_t>(head)) >= threshold;
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
  static constexpr int kAhead = 4;
  static constexpr int kSums = kTraining ? 2 : 1;  // positive and negative logits apart, or together
  struct State {
    // A score that sums are relative to, then the sums of exponentials and of weighted rows.
    static constexpr int kSize = 1 + kSums * (1 + kVector);
    float values[kSize];
  };
  struct Row {};
  using Word = Pack<T, kVector>;
  struct Entry {
    Word word;
    float sender_logit, receiver_logit;
    int32_t sender, receiver;  // as they are hashed
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

  JHGNN_DEVICE Row open(int32_t) const { return {}; }

  JHGNN_DEVICE Entry read(int32_t, int32_t sender, int32_t receiver) const {
    Entry entry{};
    if (mine()) {
      const int64_t of = sender, to = receiver;
      entry.word = load_word<Word>(given.z + of * (given.heads * given.width) + column);
      entry.sender_logit = given.logit_src[of * given.heads + head];
      entry.receiver_logit = given.logit_dst[to * given.heads + head];
    }
    if (given.dropout.threshold) {
      entry.sender = given.dropout.sender(sender);
      entry.receiver = given.dropout.receiver(receiver);
    }
    return entry;
  }

  JHGNN_DEVICE void add(const Entry& entry, State* state) const {
    float* own = state->values;
    const float logit = entry.receiver_logit + entry.sender_logit;
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
    if (given.dropout.threshold) kept = given.dropout.keeps(entry.sender, entry.receiver, head);
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
  static constexpr int kAhead = 4;
  struct State {
    // Of the logit, of the row, and of the row with each edge times the slope at its logit.
    static constexpr int kSize = 1 + 2 * kVector;
    float values[kSize];
  };
  using Word = Pack<T, kVector>;
  struct Row {
    Word z;
  };
  struct Entry {
    Word word;
    float sender_logit, receiver_logit, log_sum, delta;
    int32_t sender, receiver;  // as they are hashed
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

  JHGNN_DEVICE Row open(int32_t row) const {
    return {mine() ? load_word<Word>(given.z + static_cast<int64_t>(row) * (given.heads * given.width) + column) : Word{}};
  }

  JHGNN_DEVICE Entry read(int32_t, int32_t receiver, int32_t sender) const {
    Entry entry{};
    if (mine()) {
      const int64_t of = receiver, to = sender;
      entry.word = load_word<Word>(given.cotangent + of * (given.heads * given.width) + column);
      const float* target = given.targets + of * (kOfTarget * given.heads) + head;
      entry.receiver_logit = target[kLogit * given.heads];
      entry.log_sum = target[kLogSumOfTarget * given.heads];
      if (leads()) entry.delta = target[kDelta * given.heads];
      entry.sender_logit = given.logit_src[to * given.heads + head];
    }
    if (given.dropout.threshold) {
      entry.sender = given.dropout.sender(sender);
      entry.receiver = given.dropout.receiver(receiver);
    }
    return entry;
  }

  JHGNN_DEVICE void add(const Entry& entry, State* state) const {
    float* own = state->values;
#if JHGNN_FAULT == 2  // planted in tests: a wrong transpose, the row's own logit where the other end's belongs
    const float logit = entry.sender_logit + entry.sender_logit;
#else
    const float logit = entry.sender_logit + entry.receiver_logit;
#endif
    const float weight = exponential(leaky(logit, given.slope) - entry.log_sum);
    bool kept = true;
    if (given.dropout.threshold) kept = given.dropout.keeps(entry.sender, entry.receiver, head);
    const float used = kept ? weight * given.dropout.scale : 0.0f;
    const float slope = logit >= 0.0f ? 1.0f : given.slope;
    own[0] -= weight * slope * entry.delta;
JHGNN_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const float part = used * to_float(entry.word.values[i]);
      own[1 + i] += part;
      own[1 + kVector + i] += slope * part;
    }
  }

  JHGNN_DEVICE void join(const State& other, State* state) const {
JHGNN_UNROLL
    for (int i = 0; i < State::kSize; ++i) state->values[i] += other.values[i];
  }

  JHGNN_DEVICE void store(int32_t row, int32_t, const Row& own, const State& state) const {
    if (!mine()) return;
    const int32_t columns = given.heads * given.width;
    Word word;
    float d_logit = state.values[0];
JHGNN_UNROLL
    for (int i = 0; i < kVector; ++i) {
      word.values[i] = from_float<T>(state.values[1 + i]);
      d_logit += to_float(own.z.values[i]) * state.values[1 + kVector + i];
    }
    *reinterpret_cast<Word*>(given.d_z + static_cast<int64_t>(row) * columns + column) = word;
    given.d_logit[(static_cast<int64_t>(row) * columns + column) / kVector] = d_logit;
  }
};

}  // namespace jhgnn::cuda

// The kernels of one instruction set as a table of functions, and what they are given. No XLA here.
#pragma once

#include <cstdint>

namespace jhgnn {

// Rows of neighbours. `indptr` has been checked (0, ascending, ends at num_edges); indices are checked by the kernels,
// block by block, just before they are followed, when their cache lines are needed anyway.
struct CsrView {
  const int32_t* indptr;
  const int32_t* indices;
  int64_t num_rows, num_edges, num_columns;
  int64_t tile_columns;  // walked at a time by up to kTileRows rows together; 0: each row is walked at once
};

// Element types of features; sums are always float32.
enum class Element { kFloat32, kBfloat16 };

struct Features {
  const void* data;
  Element element;
};

// Numbers a head in the header of a packed source and of a packed target; attention_forward.h and attention_backward.h
// name them.
constexpr int64_t kSourceFactors = 3, kTargetFactors = 4;

// How neighbor_attention lays a vertex out: a header of per-head factors, then its features with heads innermost,
// [width, padded_heads], so that one vector of weights fits every vector of features. All in floats.
struct AttentionLayout {
  int64_t heads, width;
  int64_t padded_heads;  // 1, 2, 4, 8 or a multiple of 16
  int64_t body;          // padded_heads * width, rounded up to 16
  int64_t header;        // kSourceFactors (forward) or kTargetFactors (backward) * padded_heads, rounded up to 16
  int64_t row() const { return header + body; }
};

struct Dropout {
  uint32_t threshold;  // an edge is dropped where its bits are below; 0: no dropout
  uint32_t seed;
  float scale;                 // of what is kept: 1 / (1 - rate)
  const int32_t* sender_ids;   // [sources] what is hashed for a source, or null: its own number
  const int32_t* receiver_ids; // [targets], likewise

  uint32_t sender(int64_t source) const { return static_cast<uint32_t>(sender_ids ? sender_ids[source] : source); }
  uint32_t receiver(int64_t target) const { return static_cast<uint32_t>(receiver_ids ? receiver_ids[target] : target); }
};

struct AttentionForward {
  CsrView incoming;
  AttentionLayout layout;
  Features z;                // [sources, heads, width]
  const float* logit_src;    // [sources, heads]
  const float* logit_dst;    // [targets, heads]
  const float* largest;      // [padded_heads]: of logit_src over all sources
  float* packed;             // [sources, layout.row()]
  uint32_t* keys;            // [sources]: their part of dropout's hash; null without dropout
  float slope;
  Dropout dropout;
  bool prefetch;
  float* out;           // [targets, heads, width]
  float* out_minor;  // [targets, layout.body], or null: out's part from edges whose logit has the sign of less weight
  float* stats;      // [targets, 3, heads]: shift, 1 / sum (negative: see attention.h), their share (negative: as their sign)
};

struct AttentionBackward {
  CsrView outgoing;
  AttentionLayout layout;
  int64_t num_targets;
  Features z;
  const float* logit_src;
  const float* logit_dst;
  const float* largest;
  const float* out;
  const float* out_minor;
  const float* stats;
  Features cotangent;  // [targets, heads, width]
  float* packed;       // [targets, layout.row()]
  uint32_t* keys;      // [targets], likewise
  float slope;
  Dropout dropout;
  bool prefetch;
  bool any_unsafe;
  float* d_z;          // [sources, heads, width]
  float* d_logit_src;  // [sources, heads]
  float* d_logit_dst;  // [targets, heads]
};

struct RowSum {
  CsrView rows;
  int64_t width;
  int64_t first_column, last_column;  // what is summed now; all of them, where columns are tiled
  Features x;                // [num_columns, width]
  const float* values;       // [num_edges] factors of the edges, or null
  const float* index_scale;  // [num_columns] factors of x's rows, or null
  bool mean;                 // divide by the number of neighbours
  bool prefetch;
  void* out;  // [num_rows, width], x's element type
};

struct EdgeDot {
  CsrView rows;
  int64_t width;
  Features x;         // [num_columns, width]
  Features row_side;  // [num_rows, width]
  float* out;         // [num_edges]: x[index] . row_side[row]
};

struct RowMax {
  CsrView rows;
  int64_t width;
  Features x;
  float* out;     // [num_rows, width], 0 for empty rows
  float* counts;  // [num_rows, width]: how many edges reach the maximum
};

struct RowMaxBackward {
  CsrView outgoing;
  int64_t width;
  Features x;           // [num_rows, width]
  const float* out;     // [num_columns, width]
  const float* shares;  // [num_columns, width]: the cotangent divided by the counts
  float* d_x;           // [num_rows, width]
};

struct OuterSum {
  int64_t in_width, out_width;
  int64_t padded;  // out_width, rounded up to 16
  Features x;      // [rows, in_width]
  Features d;      // [rows, out_width]
};

struct LogitColumns {
  int64_t rows, heads, width, vectors;
  const int64_t* places;   // [vectors]: their matrices
  const float* stack;      // [matrices, rows, heads, width]
  const float* attention;  // [vectors, heads, width]
  float* out;              // [rows, vectors, heads]
};

struct LogitColumnsBackward {
  int64_t rows, heads, width, vectors, matrices;
  const int64_t* places;
  const float* stack;
  const float* attention;
  const float* cotangent;  // [rows, vectors, heads]
  float* d_stack;          // [matrices, rows, heads, width]
};

// Rows of combined bases, `value * sum over b of c[matrix, b] v[b, row]`; see basis_rows.h. Each entry is a slot's.
struct BasisRows {
  CsrView slots;  // of each row of the bases: no slot twice
  int64_t matrices, bases, width;
  int64_t padded_bases;      // rounded up to 16
  const int32_t* matrix_of;  // [entries]
  const float* values;       // [entries]
  const float* c;            // [matrices, padded_bases], zeros in the padding
  const float* v;            // [bases, rows, width]
  Features z;                // [slots, width]: written forward, its cotangent backward
  float* d_v;                // [bases, rows, width]
  bool past_caches;          // how d_v is written; its rows then begin and end with lines of the cache
};

constexpr int64_t kBasisVectors = 4;  // of columns at a time,
constexpr int64_t kBasisTile = 4096;  // and floats of a tile, of which two fit the first-level cache

inline int64_t basis_tile_size(const BasisRows& args) {
  const int64_t row = args.padded_bases * kBasisVectors * 16;
  return row > kBasisTile ? row : kBasisTile;
}

// Attention over drawn neighbours, before they are projected; see row_attention.h. `padded` heads are innermost where said.
struct RowAttention {
  int64_t targets, fan_out, sources, in_width, heads, width;
  int64_t padded_heads;          // 1, 2, 4, 8 or 16
  const int32_t* senders;        // [targets, fan_out]
  const int32_t* num_neighbors;  // [targets]: how many of them count
  const float* x;                // [sources, in_width]
  const float* weight;           // [in_width, width, padded]
  const float* columns;          // [in_width, padded]: of the senders' logits
  const float* logit_dst;        // [targets, heads]
  float slope;
  Dropout dropout;
  float* out;  // [targets, heads, width]
  // The backward pass.
  const float* cotangent;  // [targets, heads, width]
  float* d_logit_dst;      // [targets, heads]
  float* factors;          // [targets, fan_out, 2, padded]: an edge's weight, and the gradient of its logit; or null
  const float* stripes;    // [in_width / 16, heads, width, 16]: the weight, for d_x
  float* d_x;              // [sources, in_width], where there are factors
};

constexpr int64_t kMostRowHeads = 16;
constexpr int64_t kRowStripe = 16;

// Functions over a range of rows answer false when an index is out of range. Those over a piece of one row's edges add
// to an accumulator of accumulator_size floats, zero at first; `finish` turns it into the row's results. Rows of more
// than kPieceEdges edges are left to them. Functions over a range of rows are given one accumulator, kTileRows of them where
// columns are tiled. `pack_targets` answers whether any target is unsafe.
struct Kernels {
  const char* name;

  bool (*indices_in_range)(const int32_t* indices, int64_t count, int64_t num_columns);

  void (*largest_of_heads)(const float* logits, int64_t first, int64_t last, int64_t heads, float* largest);
  int64_t (*accumulator_size)(const AttentionLayout&);
  void (*pack_sources)(const AttentionForward&, int64_t first, int64_t last);
  bool (*forward_rows)(const AttentionForward&, int64_t first, int64_t last, float* accumulator);
  void (*forward_edges)(const AttentionForward&, int64_t row, int64_t begin, int64_t end, float* accumulator);
  void (*forward_finish)(const AttentionForward&, int64_t row, float* accumulator);
  bool (*pack_targets)(const AttentionBackward&, int64_t first, int64_t last, float* accumulator);
  bool (*backward_rows)(const AttentionBackward&, int64_t first, int64_t last, float* accumulator);
  void (*backward_edges)(const AttentionBackward&, int64_t row, int64_t begin, int64_t end, float* accumulator);
  void (*backward_finish)(const AttentionBackward&, int64_t row, float* accumulator);

  bool (*sum_rows)(const RowSum&, int64_t first, int64_t last, float* accumulator);
  void (*sum_edges)(const RowSum&, int64_t begin, int64_t end, float* accumulator);
  void (*sum_finish)(const RowSum&, int64_t row, const float* accumulator);

  bool (*dot_rows)(const EdgeDot&, int64_t first, int64_t last);
  bool (*max_rows)(const RowMax&, int64_t first, int64_t last);
  bool (*max_backward_rows)(const RowMaxBackward&, int64_t first, int64_t last);

  void (*logit_columns)(const LogitColumns&, int64_t first, int64_t last);
  void (*logit_columns_backward)(const LogitColumnsBackward&, int64_t first, int64_t last, float* sums);

  void (*outer_rows)(const OuterSum&, int64_t first, int64_t last, int64_t column, int64_t columns, float* panel,
                     float* sums);

  bool (*basis_rows)(const BasisRows&, int64_t first, int64_t last, float* tile);
  bool (*basis_rows_backward)(const BasisRows&, int64_t first, int64_t last, float* scratch, float* d_c);

  int64_t (*row_attention_scratch)(const RowAttention&);
  bool (*row_attention_forward)(const RowAttention&, int64_t first, int64_t last, float* scratch);
  bool (*row_attention_backward)(const RowAttention&, int64_t first, int64_t last, float* scratch, float* gradients);
  void (*row_attention_d_rows)(const RowAttention&, int64_t first, int64_t count);
};

// A row with more edges than this is cut into pieces of as many, summed side by side and added in order, so that one
// hub does not hold up a thread and the result does not depend on how many threads there are.
constexpr int64_t kPieceEdges = 16384;

// Rows whose accumulators wait side by side while all of them walk one tile of columns. More would share a tile's way into
// the cache among more rows; their accumulators have to fit the cache beside it.
constexpr int64_t kTileRows = 64;

// Rows whose outer products are added at a time: their tile of d fits the first-level cache.
constexpr int64_t kOuterPanelRows = 128;

// The best that this processor runs, or the one that JHGNN_INSTRUCTION_SET names (null if that one is not to be had).
const Kernels* kernels();

}  // namespace jhgnn

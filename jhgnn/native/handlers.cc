// What XLA calls: checks buffers, cuts the work into tasks on XLA's threads, and runs the kernels of the instruction set.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "counter_hash.h"
#include "kernels.h"
#include "nonzero.h"
#include "parallel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace jhgnn {
namespace {

using Int32s = ffi::Buffer<ffi::S32>;
using Floats = ffi::Buffer<ffi::F32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;
using Seed = ffi::Buffer<ffi::U32>;

constexpr int64_t kTaskWork = 8192;       // edges, with kRowWork more a row
constexpr int64_t kRowWork = 8;           // a row costs about as much as so many edges
constexpr int64_t kTasksPerThread = 16;   // at least, so that threads end together
constexpr int64_t kTileBytes = 256 << 10;  // half of a small second-level cache; 128 to 384 KiB were as good
constexpr double kTileEdges = 32;         // edges of a row in a tile: fewer do not pay for loading its accumulator again
constexpr int64_t kStripWidth = 128;      // columns of x summed for all rows before the next: their part of x stays in cache,
constexpr int64_t kStripEdges = 32;       // if each row of x is read so often
constexpr int64_t kVertexBlock = 512;     // vertices a task where there are no edges
constexpr int64_t kOuterRows = 512;       // a task's rows of an outer sum, at least,
constexpr int64_t kOuterColumns = 96;     // its columns of x, at most,
constexpr int64_t kOuterTasks = 16;       // and so many tasks, if rows have to be cut for them; not by threads: see run_rows
constexpr int64_t kMaximumBlock = 1 << 16;  // logits a task of their maximum: to wake a thread takes longer than a few
constexpr int64_t kColumnTaskRows = 128;  // a task's rows of logit columns; what they are multiplied with stays in cache
constexpr int64_t kRowTargets = 64;       // a task's receivers whose rows are weighted before they are projected
constexpr int64_t kZeroedTogether = 1 << 20;  // bytes of a result that a task sets to zero before others write to it
constexpr int64_t kRowTasks = 32;         // at most so many tasks that add to gradients of weights
constexpr int64_t kLineFloats = 16;       // of a line of the caches
constexpr int64_t kBasisTasks = 128;      // at most so many tasks that add to gradients of bases' coefficients
constexpr int64_t kPrefetchBytes = 1 << 20;  // what fits the second-level cache needs no prefetching and stays there

ffi::Error invalid(const std::string& what) { return ffi::Error::InvalidArgument("jhgnn: " + what); }

std::string text(ffi::Span<const int64_t> dimensions) {
  std::string joined = "[";
  for (int64_t size : dimensions) joined += (joined.size() > 1 ? ", " : "") + std::to_string(size);
  return joined + "]";
}

// Whether a buffer has these dimensions.
template <typename Buffer>
bool has_shape(const Buffer& buffer, std::initializer_list<int64_t> shape) {
  const auto dimensions = buffer.dimensions();
  return std::equal(dimensions.begin(), dimensions.end(), shape.begin(), shape.end());
}

#define JHGNN_CHECK_SHAPE(buffer, ...)                                                              \
  do {                                                                                              \
    if (!has_shape(buffer, {__VA_ARGS__})) {                                                        \
      return invalid(#buffer " is " + text((buffer).dimensions()) + "; need [" #__VA_ARGS__ "]");   \
    }                                                                                               \
  } while (false)

#define JHGNN_RETURN_IF_ERROR(call)                               \
  do {                                                            \
    if (ffi::Error error = (call); error.failure()) return error; \
  } while (false)

// Checks everything of compressed rows but the range of the indices, which the kernels check as they go.
ffi::Error csr_view(const Int32s& indptr, const Int32s& indices, int64_t num_columns, CsrView* view) {
  if (indptr.dimensions().size() != 1 || indices.dimensions().size() != 1 || indptr.dimensions()[0] < 1) {
    return invalid("indptr " + text(indptr.dimensions()) + " and indices " + text(indices.dimensions()) +
                   " of a graph must be vectors, indptr of one element at least");
  }
  *view = {indptr.typed_data(), indices.typed_data(), indptr.dimensions()[0] - 1, indices.dimensions()[0], num_columns, 0};
  const int32_t* offsets = view->indptr;
  bool ascending = true;
  for (int64_t row = 0; row < view->num_rows; ++row) ascending &= offsets[row] <= offsets[row + 1];
  if (!ascending || offsets[0] != 0 || offsets[view->num_rows] != view->num_edges) {
    return invalid("malformed graph: indptr must ascend from 0 to the number of edges, " +
                   std::to_string(view->num_edges) + "; it goes from " + std::to_string(offsets[0]) + " to " +
                   std::to_string(offsets[view->num_rows]) + (ascending ? "" : " and descends in between"));
  }
  return ffi::Error::Success();
}

ffi::Error out_of_range(const CsrView& csr) {
  return invalid("malformed graph: an index is outside 0 to " + std::to_string(csr.num_columns - 1));
}

ffi::Error features_of(const ffi::AnyBuffer& buffer, Features* features) {
  switch (buffer.element_type()) {
    case ffi::F32:
      *features = {buffer.untyped_data(), Element::kFloat32};
      return ffi::Error::Success();
    case ffi::BF16:
      *features = {buffer.untyped_data(), Element::kBfloat16};
      return ffi::Error::Success();
    default:
      return invalid("the native kernels take float32 and bfloat16 features");
  }
}

ffi::Error check_kernels() {
  return kernels() ? ffi::Error::Success()
                   : invalid("JHGNN_INSTRUCTION_SET names none that this processor and build have (avx512, avx2, baseline)");
}

// How many columns, each of `column_bytes`, rows walk at a time: 0, all at once, where they fit the second-level cache
// together or rows have too few edges a tile to pay for coming back to it.
int64_t tile_columns(const CsrView& csr, int64_t column_bytes) {
  if (csr.num_rows == 0 || csr.num_columns * column_bytes <= kTileBytes) return 0;
  const int64_t columns = kTileBytes / column_bytes;
  const double edges = static_cast<double>(csr.num_edges) / static_cast<double>(csr.num_rows) *
                       static_cast<double>(columns) / static_cast<double>(csr.num_columns);
  return edges >= kTileEdges ? columns : 0;
}

int64_t work_of(const CsrView& csr) { return csr.num_edges + kRowWork * csr.num_rows; }

// Cuts rows into blocks of equal work, wherever rows end.
std::vector<int64_t> equal_blocks(const CsrView& csr, int64_t blocks) {
  const int64_t work = work_of(csr);
  std::vector<int64_t> borders = {0};
  for (int64_t block = 1; block < blocks; ++block) {
    const int64_t before = work / blocks * block;
    int64_t low = borders.back(), high = csr.num_rows;  // the first row with at least that much work before it
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (csr.indptr[middle] + kRowWork * middle < before) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    borders.push_back(low);
  }
  borders.push_back(csr.num_rows);
  return borders;
}

// Rows that belong to each task: about kTaskWork edges, or kTileRows rows where columns are tiled.
std::vector<int64_t> row_blocks(const CsrView& csr, int64_t threads) {
  int64_t blocks = std::max<int64_t>(1, work_of(csr) / kTaskWork);
  if (csr.tile_columns > 0) blocks = std::min(blocks, std::max(csr.num_rows / kTileRows, kTasksPerThread * threads));
  return equal_blocks(csr, blocks);
}

struct Piece {
  int64_t row, begin, end;
};

std::vector<Piece> hub_pieces(const CsrView& csr) {
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < csr.num_rows; ++row) {
    const int64_t begin = csr.indptr[row], end = csr.indptr[row + 1];
    if (end - begin <= kPieceEdges) continue;
    for (int64_t at = begin; at < end; at += kPieceEdges) pieces.push_back({row, at, std::min(at + kPieceEdges, end)});
  }
  return pieces;
}

// For each of `jobs` over the same rows, all of them at once: runs `rows(job, first, last, accumulator)` over blocks of
// rows, and hubs in pieces by `edges(job, piece, accumulator)`, whose accumulators are added in order over `summed` floats
// before `finish(job, row, accumulator)`. The result does not depend on the number of threads. False: an index is out of
// range.
template <typename Rows, typename Edges, typename Finish>
bool run_rows(ffi::ThreadPool& pool, const CsrView& csr, int64_t jobs, int64_t accumulator_size, int64_t summed,
              const Rows& rows, const Edges& edges, const Finish& finish) {
  const std::vector<int64_t> borders = row_blocks(csr, pool.num_threads());
  const std::vector<Piece> pieces = hub_pieces(csr);
  const int64_t num_pieces = static_cast<int64_t>(pieces.size());
  const int64_t tasks = num_pieces + static_cast<int64_t>(borders.size()) - 1;
  std::vector<float> partial(jobs * num_pieces * accumulator_size, 0.0f);
  std::atomic<bool> valid{true};
  parallel_for(pool, jobs * tasks, [&](int64_t number) {
    const int64_t job = number / tasks, task = number % tasks;
    if (task < num_pieces) {
      const Piece& piece = pieces[task];
      if (kernels()->indices_in_range(csr.indices + piece.begin, piece.end - piece.begin, csr.num_columns)) {
        edges(job, piece, partial.data() + (job * num_pieces + task) * accumulator_size);
      } else {
        valid.store(false, std::memory_order_relaxed);
      }
      return;
    }
    const int64_t block = task - num_pieces;
    if (borders[block] == borders[block + 1]) return;
    std::vector<float> accumulator(accumulator_size * (csr.tile_columns > 0 ? kTileRows : 1));
    if (!rows(job, borders[block], borders[block + 1], accumulator.data())) valid.store(false, std::memory_order_relaxed);
  });
  if (!valid.load(std::memory_order_relaxed)) return false;
  for (int64_t job = 0; job < jobs; ++job) {
    float* of_job = partial.data() + job * num_pieces * accumulator_size;
    for (int64_t first = 0, next; first < num_pieces; first = next) {
      float* sums = of_job + first * accumulator_size;
      for (next = first + 1; next < num_pieces && pieces[next].row == pieces[first].row; ++next) {
        const float* more = of_job + next * accumulator_size;
        for (int64_t i = 0; i < summed; ++i) sums[i] += more[i];
      }
      finish(job, pieces[first].row, sums);
    }
  }
  return true;
}

template <typename Rows>
bool run_blocks(ffi::ThreadPool& pool, const CsrView& csr, const Rows& rows) {
  const std::vector<int64_t> borders = row_blocks(csr, pool.num_threads());
  std::atomic<bool> valid{true};
  parallel_for(pool, static_cast<int64_t>(borders.size()) - 1, [&](int64_t block) {
    if (!rows(borders[block], borders[block + 1])) valid.store(false, std::memory_order_relaxed);
  });
  return valid.load(std::memory_order_relaxed);
}

template <typename Body>
void run_vertices(ffi::ThreadPool& pool, int64_t count, const Body& body) {
  parallel_for(pool, (count + kVertexBlock - 1) / kVertexBlock, [&](int64_t block) {
    body(block * kVertexBlock, std::min(count, (block + 1) * kVertexBlock));
  });
}

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Kept in step with `attention_row_size` of jhgnn/ops/neighbor_attention/native.py, which allocates the buffers.
AttentionLayout attention_layout(int64_t heads, int64_t width, int64_t factors) {
  const int64_t padded = heads <= 2 ? heads : heads <= 4 ? 4 : heads <= 8 ? 8 : round_up(heads, 16);
  return {heads, width, padded, round_up(padded * width, 16), round_up(factors * padded, 16)};
}

std::vector<float> largest_logits(ffi::ThreadPool& pool, const float* logits, int64_t count,
                                  const AttentionLayout& layout) {
  const int64_t heads = layout.heads, size = std::max(kVertexBlock, kMaximumBlock / std::max<int64_t>(1, heads));
  const int64_t blocks = (count + size - 1) / size;
  std::vector<float> partial(std::max<int64_t>(1, blocks) * heads, -std::numeric_limits<float>::infinity());
  parallel_for(pool, blocks, [&](int64_t block) {
    const int64_t first = block * size, last = std::min(count, first + size);
    kernels()->largest_of_heads(logits, first, last, heads, partial.data() + block * heads);
  });
  std::vector<float> largest(layout.padded_heads, 0.0f);
  for (int64_t head = 0; head < heads; ++head) {
    largest[head] = partial[head];
    for (int64_t block = 1; block < blocks; ++block) largest[head] = std::max(largest[head], partial[block * heads + head]);
  }
  return largest;
}

// Ids are of the vertices that the hash names by others than their numbers; empty: by their numbers.
ffi::Error dropout_of(const Seed& seed, const Int32s& sender_ids, const Int32s& receiver_ids, int64_t sources,
                      int64_t targets, uint32_t threshold, float scale, Dropout* dropout) {
  if (seed.element_count() != 1) return invalid("the dropout seed must be one uint32");
  if (sender_ids.element_count() > 0) JHGNN_CHECK_SHAPE(sender_ids, sources);
  if (receiver_ids.element_count() > 0) JHGNN_CHECK_SHAPE(receiver_ids, targets);
  *dropout = {threshold, seed.typed_data()[0], scale, sender_ids.element_count() > 0 ? sender_ids.typed_data() : nullptr,
              receiver_ids.element_count() > 0 ? receiver_ids.typed_data() : nullptr};
  return ffi::Error::Success();
}

ffi::Error attention_forward(ffi::ThreadPool pool, Int32s indptr, Int32s indices, ffi::AnyBuffer z, Floats logit_src,
                             Floats logit_dst, Seed seed, Int32s sender_ids, Int32s receiver_ids, float slope,
                             uint32_t threshold, float scale, FloatsOut out, FloatsOut out_minor, FloatsOut stats,
                             FloatsOut packed) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (z.dimensions().size() != 3) return invalid("z must be [sources, heads, width], not " + text(z.dimensions()));
  const int64_t sources = z.dimensions()[0], heads = z.dimensions()[1], width = z.dimensions()[2];
  AttentionForward args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, sources, &args.incoming));
  const int64_t targets = args.incoming.num_rows;
  args.layout = attention_layout(heads, width, kSourceFactors);
  const int64_t body = args.layout.body, row_size = args.layout.row();
  const bool split = out_minor->element_count() > 0 || targets == 0;
  JHGNN_CHECK_SHAPE(logit_src, sources, heads);
  JHGNN_CHECK_SHAPE(logit_dst, targets, heads);
  JHGNN_CHECK_SHAPE(*out, targets, heads, width);
  if (split) JHGNN_CHECK_SHAPE(*out_minor, targets, body);
  JHGNN_CHECK_SHAPE(*stats, targets, 3, heads);
  JHGNN_CHECK_SHAPE(*packed, sources, row_size);
  JHGNN_RETURN_IF_ERROR(
      dropout_of(seed, sender_ids, receiver_ids, sources, targets, threshold, scale, &args.dropout));
  JHGNN_RETURN_IF_ERROR(features_of(z, &args.z));
  args.logit_src = logit_src.typed_data();
  args.logit_dst = logit_dst.typed_data();
  args.packed = packed->typed_data();
  std::vector<uint32_t> keys(threshold != 0 ? sources : 0);
  args.keys = keys.data();
  args.slope = slope;
  args.incoming.tile_columns = tile_columns(args.incoming, row_size * 4);
  args.prefetch = args.incoming.tile_columns == 0 && sources * row_size * 4 > kPrefetchBytes;
  args.out = out->typed_data();
  args.out_minor = split ? out_minor->typed_data() : nullptr;
  args.stats = stats->typed_data();
  const std::vector<float> largest = largest_logits(pool, args.logit_src, sources, args.layout);
  args.largest = largest.data();
  run_vertices(pool, sources, [&](int64_t first, int64_t last) { kernels()->pack_sources(args, first, last); });
  const int64_t size = kernels()->accumulator_size(args.layout);
  const int64_t summed = 2 * body + 2 * std::max<int64_t>(16, args.layout.padded_heads);
  const bool valid = run_rows(
      pool, args.incoming, 1, size, summed,
      [&](int64_t, int64_t first, int64_t last, float* sums) { return kernels()->forward_rows(args, first, last, sums); },
      [&](int64_t, const Piece& piece, float* sums) {
        kernels()->forward_edges(args, piece.row, piece.begin, piece.end, sums);
      },
      [&](int64_t, int64_t row, float* sums) { kernels()->forward_finish(args, row, sums); });
  return valid ? ffi::Error::Success() : out_of_range(args.incoming);
}

ffi::Error attention_backward(ffi::ThreadPool pool, Int32s indptr, Int32s indices, ffi::AnyBuffer z, Floats logit_src,
                              Floats logit_dst, Seed seed, Int32s sender_ids, Int32s receiver_ids, Floats out,
                              Floats out_minor, Floats stats, ffi::AnyBuffer cotangent, float slope,
                              uint32_t threshold, float scale, FloatsOut d_z, FloatsOut d_logit_src,
                              FloatsOut d_logit_dst, FloatsOut packed) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (z.dimensions().size() != 3) return invalid("z must be [sources, heads, width], not " + text(z.dimensions()));
  if (logit_dst.dimensions().size() != 2) return invalid("logit_dst must be [targets, heads]");
  const int64_t sources = z.dimensions()[0], heads = z.dimensions()[1], width = z.dimensions()[2];
  const int64_t targets = logit_dst.dimensions()[0];
  AttentionBackward args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, targets, &args.outgoing));
  args.layout = attention_layout(heads, width, kTargetFactors);
  const int64_t body = args.layout.body, row_size = args.layout.row();
  if (args.outgoing.num_rows != sources) return invalid("the out-edges have another number of sources than z");
  JHGNN_CHECK_SHAPE(logit_src, sources, heads);
  JHGNN_CHECK_SHAPE(logit_dst, targets, heads);
  JHGNN_CHECK_SHAPE(out, targets, heads, width);
  JHGNN_CHECK_SHAPE(out_minor, targets, body);
  JHGNN_CHECK_SHAPE(stats, targets, 3, heads);
  JHGNN_CHECK_SHAPE(cotangent, targets, heads, width);
  JHGNN_CHECK_SHAPE(*d_z, sources, heads, width);
  JHGNN_CHECK_SHAPE(*d_logit_src, sources, heads);
  JHGNN_CHECK_SHAPE(*d_logit_dst, targets, heads);
  JHGNN_CHECK_SHAPE(*packed, targets, row_size);
  JHGNN_RETURN_IF_ERROR(
      dropout_of(seed, sender_ids, receiver_ids, sources, targets, threshold, scale, &args.dropout));
  JHGNN_RETURN_IF_ERROR(features_of(z, &args.z));
  JHGNN_RETURN_IF_ERROR(features_of(cotangent, &args.cotangent));
  args.num_targets = targets;
  args.logit_src = logit_src.typed_data();
  args.logit_dst = logit_dst.typed_data();
  args.out = out.typed_data();
  args.out_minor = out_minor.typed_data();
  args.stats = stats.typed_data();
  args.packed = packed->typed_data();
  std::vector<uint32_t> keys(threshold != 0 ? targets : 0);
  args.keys = keys.data();
  args.slope = slope;
  args.outgoing.tile_columns = tile_columns(args.outgoing, row_size * 4);
  args.prefetch = args.outgoing.tile_columns == 0 && targets * row_size * 4 > kPrefetchBytes;
  args.d_z = d_z->typed_data();
  args.d_logit_src = d_logit_src->typed_data();
  args.d_logit_dst = d_logit_dst->typed_data();
  const std::vector<float> largest = largest_logits(pool, args.logit_src, sources, args.layout);
  args.largest = largest.data();
  std::atomic<bool> any_unsafe{false};
  const int64_t size = kernels()->accumulator_size(args.layout);
  run_vertices(pool, targets, [&](int64_t first, int64_t last) {
    std::vector<float> scratch(size);
    if (kernels()->pack_targets(args, first, last, scratch.data())) any_unsafe.store(true, std::memory_order_relaxed);
  });
  args.any_unsafe = any_unsafe.load(std::memory_order_relaxed);
  const int64_t summed = 2 * body + 2 * std::max<int64_t>(16, args.layout.padded_heads);
  const bool valid = run_rows(
      pool, args.outgoing, 1, size, summed,
      [&](int64_t, int64_t first, int64_t last, float* sums) { return kernels()->backward_rows(args, first, last, sums); },
      [&](int64_t, const Piece& piece, float* sums) {
        kernels()->backward_edges(args, piece.row, piece.begin, piece.end, sums);
      },
      [&](int64_t, int64_t row, float* sums) { kernels()->backward_finish(args, row, sums); });
  return valid ? ffi::Error::Success() : out_of_range(args.outgoing);
}

// Leaves out the entries whose value is zero where they are many; what `args` then reads is in the result.
NonzeroRows leave_out_zeros(ffi::ThreadPool& pool, RowSum* args) {
  // A mean counts its zeros.
  if (!args->values || args->mean || !many_zeros(args->values, args->rows.num_edges)) return {};
  NonzeroRows kept = nonzero_rows(pool, args->rows, args->values, row_blocks(args->rows, pool.num_threads()));
  args->rows.indptr = kept.indptr.data();
  args->rows.indices = kept.indices.get();
  args->rows.num_edges = kept.indptr.back();
  args->values = kept.values.get();
  return kept;
}

struct Sum {
  Features x;
  void* out;
};

// Sums over the same rows, all else than their matrices being that of `args`, whose operands have been checked.
ffi::Error run_row_sums(ffi::ThreadPool& pool, RowSum args, const std::vector<Sum>& sums) {
  if (sums.empty()) return ffi::Error::Success();
  const NonzeroRows kept = leave_out_zeros(pool, &args);
  const int64_t columns = args.rows.num_columns, edges = args.rows.num_edges, width = args.width;
  const int64_t column_bytes = width * (sums[0].x.element == Element::kFloat32 ? 4 : 2);
  if (width > 0 && width % 16 == 0) {  // every instruction set's vectors fill the row
    args.rows.tile_columns = tile_columns(args.rows, column_bytes);
  }
  args.prefetch = args.rows.tile_columns == 0 && columns * column_bytes > kPrefetchBytes;
  const bool in_strips = args.rows.tile_columns == 0 && edges >= kStripEdges * columns;
  const int64_t strips = in_strips ? std::max<int64_t>(1, (width + kStripWidth - 1) / kStripWidth) : 1;
  std::vector<RowSum> jobs(sums.size(), args);
  for (int64_t strip = 0; strip < strips; ++strip) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      RowSum& job = jobs[i];
      job.x = sums[i].x;
      job.out = sums[i].out;
      job.first_column = job.last_column;
      job.last_column = strip + 1 < strips ? round_up(width * (strip + 1) / strips, 16) : width;
    }
    const bool valid = run_rows(
        pool, args.rows, static_cast<int64_t>(jobs.size()), width, width,
        [&](int64_t job, int64_t first, int64_t last, float* accumulator) {
          return kernels()->sum_rows(jobs[job], first, last, accumulator);
        },
        [&](int64_t job, const Piece& piece, float* accumulator) {
          kernels()->sum_edges(jobs[job], piece.begin, piece.end, accumulator);
        },
        [&](int64_t job, int64_t row, float* accumulator) { kernels()->sum_finish(jobs[job], row, accumulator); });
    if (!valid) return out_of_range(args.rows);
  }
  return ffi::Error::Success();
}

ffi::Error row_sum(ffi::ThreadPool pool, Int32s indptr, Int32s indices, Floats values, Floats index_scale,
                   ffi::AnyBuffer x, bool mean, bool weighted, bool scaled, ffi::Result<ffi::AnyBuffer> out) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (x.dimensions().size() != 2) return invalid("x must be [columns, width], not " + text(x.dimensions()));
  const int64_t columns = x.dimensions()[0], width = x.dimensions()[1];
  RowSum args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, columns, &args.rows));
  const int64_t rows = args.rows.num_rows, edges = args.rows.num_edges;
  if (weighted) JHGNN_CHECK_SHAPE(values, edges);
  if (scaled) JHGNN_CHECK_SHAPE(index_scale, columns);
  JHGNN_CHECK_SHAPE(*out, rows, width);
  if (out->element_type() != x.element_type()) return invalid("x and the result have different element types");
  Sum sum{{}, out->untyped_data()};
  JHGNN_RETURN_IF_ERROR(features_of(x, &sum.x));
  args.width = width;
  args.values = weighted ? values.typed_data() : nullptr;
  args.index_scale = scaled ? index_scale.typed_data() : nullptr;
  args.mean = mean;
  return run_row_sums(pool, args, {sum});
}

// Adds the matrices of a buffer, one [rows, width] or a stack of them [matrices, rows, width], to `matrices`.
ffi::Error append_matrices(const ffi::AnyBuffer& buffer, int64_t rows, int64_t* width, std::vector<Features>* matrices) {
  const auto shape = buffer.dimensions();
  const size_t rank = shape.size();
  if ((rank != 2 && rank != 3) || shape[rank - 2] != rows || (*width >= 0 && shape[rank - 1] != *width)) {
    return invalid("a matrix or a stack of matrices is " + text(shape) + "; need " + std::to_string(rows) +
                   " rows, and the same columns as in the others");
  }
  *width = shape[rank - 1];
  Features first{};
  JHGNN_RETURN_IF_ERROR(features_of(buffer, &first));
  const int64_t bytes = rows * *width * (first.element == Element::kFloat32 ? 4 : 2);
  for (int64_t i = 0; i < (rank == 3 ? shape[0] : 1); ++i) {
    matrices->push_back({static_cast<const char*>(first.data) + i * bytes, first.element});
  }
  return ffi::Error::Success();
}

// row_sum of several x, given apart or stacked, to as many results, apart or stacked.
ffi::Error row_sums(ffi::ThreadPool pool, Int32s indptr, Int32s indices, Floats values, int64_t columns,
                    ffi::RemainingArgs xs, ffi::RemainingRets outs) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  RowSum args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, columns, &args.rows));
  const int64_t rows = args.rows.num_rows, edges = args.rows.num_edges;
  JHGNN_CHECK_SHAPE(values, edges);
  args.values = values.typed_data();
  args.width = -1;
  std::vector<Features> from, to;
  for (size_t i = 0; i < xs.size(); ++i) {
    const auto x = xs.get<ffi::AnyBuffer>(i);
    if (x.has_error()) return x.error();
    JHGNN_RETURN_IF_ERROR(append_matrices(*x, columns, &args.width, &from));
  }
  for (size_t i = 0; i < outs.size(); ++i) {
    auto out = outs.get<ffi::AnyBuffer>(i);
    if (out.has_error()) return out.error();
    JHGNN_RETURN_IF_ERROR(append_matrices(**out, rows, &args.width, &to));
  }
  if (from.size() != to.size()) {
    return invalid(std::to_string(from.size()) + " matrices to sum, " + std::to_string(to.size()) + " results");
  }
  std::vector<Sum> sums;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].element != to[i].element) return invalid("x and the result have different element types");
    sums.push_back({from[i], const_cast<void*>(to[i].data)});
  }
  return run_row_sums(pool, args, sums);
}

ffi::Error edge_dot(ffi::ThreadPool pool, Int32s indptr, Int32s indices, ffi::AnyBuffer x, ffi::AnyBuffer row_side,
                    FloatsOut out) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (x.dimensions().size() != 2) return invalid("x must be [columns, width], not " + text(x.dimensions()));
  const int64_t columns = x.dimensions()[0], width = x.dimensions()[1];
  EdgeDot args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, columns, &args.rows));
  const int64_t rows = args.rows.num_rows, edges = args.rows.num_edges;
  JHGNN_CHECK_SHAPE(row_side, rows, width);
  JHGNN_CHECK_SHAPE(*out, edges);
  if (row_side.element_type() != x.element_type()) return invalid("x and row_side have different element types");
  JHGNN_RETURN_IF_ERROR(features_of(x, &args.x));
  JHGNN_RETURN_IF_ERROR(features_of(row_side, &args.row_side));
  args.width = width;
  args.out = out->typed_data();
  const bool valid = run_blocks(pool, args.rows, [&](int64_t first, int64_t last) { return kernels()->dot_rows(args, first, last); });
  return valid ? ffi::Error::Success() : out_of_range(args.rows);
}

ffi::Error row_max(ffi::ThreadPool pool, Int32s indptr, Int32s indices, ffi::AnyBuffer x, FloatsOut out,
                   FloatsOut counts) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (x.dimensions().size() != 2) return invalid("x must be [columns, width], not " + text(x.dimensions()));
  const int64_t columns = x.dimensions()[0], width = x.dimensions()[1];
  RowMax args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, columns, &args.rows));
  const int64_t rows = args.rows.num_rows;
  JHGNN_CHECK_SHAPE(*out, rows, width);
  JHGNN_CHECK_SHAPE(*counts, rows, width);
  JHGNN_RETURN_IF_ERROR(features_of(x, &args.x));
  args.width = width;
  args.out = out->typed_data();
  args.counts = counts->typed_data();
  const bool valid = run_blocks(pool, args.rows, [&](int64_t first, int64_t last) { return kernels()->max_rows(args, first, last); });
  return valid ? ffi::Error::Success() : out_of_range(args.rows);
}

ffi::Error row_max_backward(ffi::ThreadPool pool, Int32s indptr, Int32s indices, ffi::AnyBuffer x, Floats out,
                            Floats shares, FloatsOut d_x) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (x.dimensions().size() != 2 || out.dimensions().size() != 2) return invalid("x and out must be matrices");
  const int64_t rows = x.dimensions()[0], width = x.dimensions()[1], columns = out.dimensions()[0];
  RowMaxBackward args{};
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, indices, columns, &args.outgoing));
  if (args.outgoing.num_rows != rows) return invalid("the out-edges have another number of sources than x");
  JHGNN_CHECK_SHAPE(out, columns, width);
  JHGNN_CHECK_SHAPE(shares, columns, width);
  JHGNN_CHECK_SHAPE(*d_x, rows, width);
  JHGNN_RETURN_IF_ERROR(features_of(x, &args.x));
  args.width = width;
  args.out = out.typed_data();
  args.shares = shares.typed_data();
  args.d_x = d_x->typed_data();
  const bool valid = run_blocks(pool, args.outgoing, [&](int64_t first, int64_t last) { return kernels()->max_backward_rows(args, first, last); });
  return valid ? ffi::Error::Success() : out_of_range(args.outgoing);
}

// Whether `places` name matrices of a stack [matrices, rows, heads * width] for vectors [vectors, heads, width].
ffi::Error check_columns(const Floats& stack, const Floats& vectors, ffi::Span<const int64_t> places) {
  if (stack.dimensions().size() != 3) return invalid("stack must be [matrices, rows, heads * width]");
  if (vectors.dimensions().size() != 3) return invalid("vectors must be [vectors, heads, width]");
  const auto sizes = vectors.dimensions();
  if (stack.dimensions()[2] != sizes[1] * sizes[2]) {
    return invalid("a stack " + text(stack.dimensions()) + " does not fit vectors " + text(sizes));
  }
  if (static_cast<int64_t>(places.size()) != sizes[0]) return invalid("every vector needs the place of its matrix");
  for (const int64_t place : places) {
    if (place < 0 || place >= stack.dimensions()[0]) {
      return invalid("place " + std::to_string(place) + " is outside the stack's 0 to " +
                     std::to_string(stack.dimensions()[0] - 1));
    }
  }
  return ffi::Error::Success();
}

template <typename Body>
void run_column_tasks(ffi::ThreadPool& pool, int64_t rows, const Body& body) {
  parallel_for(pool, (rows + kColumnTaskRows - 1) / kColumnTaskRows, [&](int64_t task) {
    body(task, task * kColumnTaskRows, std::min(rows, (task + 1) * kColumnTaskRows));
  });
}

ffi::Error logit_columns(ffi::ThreadPool pool, Floats stack, Floats vectors, ffi::Span<const int64_t> places,
                         FloatsOut out) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  JHGNN_RETURN_IF_ERROR(check_columns(stack, vectors, places));
  const int64_t rows = stack.dimensions()[1], count = vectors.dimensions()[0], heads = vectors.dimensions()[1];
  JHGNN_CHECK_SHAPE(*out, rows, count * heads);
  const LogitColumns args{rows,           heads, vectors.dimensions()[2], count, places.begin(), stack.typed_data(),
                          vectors.typed_data(), out->typed_data()};
  run_column_tasks(pool, rows, [&](int64_t, int64_t first, int64_t last) { kernels()->logit_columns(args, first, last); });
  return ffi::Error::Success();
}

ffi::Error logit_columns_backward(ffi::ThreadPool pool, Floats stack, Floats vectors, Floats cotangent,
                                  ffi::Span<const int64_t> places, FloatsOut d_stack, FloatsOut d_vectors) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  JHGNN_RETURN_IF_ERROR(check_columns(stack, vectors, places));
  const int64_t matrices = stack.dimensions()[0], rows = stack.dimensions()[1];
  const int64_t count = vectors.dimensions()[0], heads = vectors.dimensions()[1], width = vectors.dimensions()[2];
  JHGNN_CHECK_SHAPE(cotangent, rows, count * heads);
  JHGNN_CHECK_SHAPE(*d_stack, matrices, rows, heads * width);
  JHGNN_CHECK_SHAPE(*d_vectors, count, heads, width);
  const LogitColumnsBackward args{rows,           heads, width, count, matrices, places.begin(), stack.typed_data(),
                                  vectors.typed_data(), cotangent.typed_data(), d_stack->typed_data()};
  const int64_t size = count * heads * width, tasks = (rows + kColumnTaskRows - 1) / kColumnTaskRows;
  std::vector<float> partial(tasks * size, 0.0f);
  run_column_tasks(pool, rows, [&](int64_t task, int64_t first, int64_t last) {
    kernels()->logit_columns_backward(args, first, last, partial.data() + task * size);
  });
  float* sums = d_vectors->typed_data();
  std::fill_n(sums, size, 0.0f);
  for (int64_t task = 0; task < tasks; ++task) {
    for (int64_t i = 0; i < size; ++i) sums[i] += partial[task * size + i];
  }
  return ffi::Error::Success();
}

// The columns of x as matrices of their own, from the left; of any element type.
ffi::Error column_parts(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::RemainingRets outs) {
  if (x.dimensions().size() != 2) return invalid("x must be [rows, columns], not " + text(x.dimensions()));
  const int64_t rows = x.dimensions()[0], element_bytes = static_cast<int64_t>(ffi::ByteWidth(x.element_type()));
  struct Part {
    char* to;
    int64_t begin, num_bytes;  // of a row
  };
  std::vector<Part> parts;
  int64_t columns = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    auto out = outs.get<ffi::AnyBuffer>(i);
    if (out.has_error()) return out.error();
    const auto sizes = (*out)->dimensions();
    if (sizes.size() != 2 || sizes[0] != rows || (*out)->element_type() != x.element_type()) {
      return invalid("a part must be [" + std::to_string(rows) + ", width] of x's element type, not " + text(sizes));
    }
    parts.push_back({static_cast<char*>((*out)->untyped_data()), columns * element_bytes, sizes[1] * element_bytes});
    columns += sizes[1];
  }
  if (columns != x.dimensions()[1]) {
    return invalid("parts of " + std::to_string(columns) + " columns, of x " + text(x.dimensions()));
  }
  const char* from = static_cast<const char*>(x.untyped_data());
  const int64_t row_bytes = columns * element_bytes;
  run_column_tasks(pool, rows, [&](int64_t, int64_t first, int64_t last) {
    for (const Part& part : parts) {
      for (int64_t row = first; row < last; ++row) {
        std::memcpy(part.to + row * part.num_bytes, from + row * row_bytes + part.begin, part.num_bytes);
      }
    }
  });
  return ffi::Error::Success();
}

// x^T d. Each task adds some rows for some columns of x, and then partial sums are added in order.
ffi::Error outer_sum(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer d, FloatsOut out) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (x.dimensions().size() != 2 || d.dimensions().size() != 2) return invalid("x and d must be matrices");
  const int64_t rows = x.dimensions()[0], in_width = x.dimensions()[1], out_width = d.dimensions()[1];
  JHGNN_CHECK_SHAPE(d, rows, out_width);
  JHGNN_CHECK_SHAPE(*out, in_width, out_width);
  OuterSum args{in_width, out_width, round_up(out_width, 16), {}, {}};
  JHGNN_RETURN_IF_ERROR(features_of(x, &args.x));
  JHGNN_RETURN_IF_ERROR(features_of(d, &args.d));
  const int64_t stripes = std::max<int64_t>(1, (in_width + kOuterColumns - 1) / kOuterColumns);
  const int64_t chunks = std::max<int64_t>(1, std::min(rows / kOuterRows, kOuterTasks / stripes));
  const int64_t size = in_width * args.padded;  // floats of one chunk's sums
  std::vector<float> partial(chunks * size, 0.0f);
  const auto column_of = [&](int64_t stripe) { return in_width * stripe / stripes; };
  parallel_for(pool, chunks * stripes, [&](int64_t task) {
    const int64_t chunk = task / stripes, column = column_of(task % stripes);
    const int64_t columns = column_of(task % stripes + 1) - column;
    std::vector<float> panel(kOuterPanelRows * (columns + args.padded), 0.0f);
    kernels()->outer_rows(args, rows * chunk / chunks, rows * (chunk + 1) / chunks, column, columns, panel.data(),
                          partial.data() + chunk * size + column * args.padded);
  });
  run_vertices(pool, in_width, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      float* sums = out->typed_data() + row * out_width;
      std::copy_n(partial.data() + row * args.padded, out_width, sums);
      for (int64_t chunk = 1; chunk < chunks; ++chunk) {
        const float* more = partial.data() + chunk * size + row * args.padded;
        for (int64_t column = 0; column < out_width; ++column) sums[column] += more[column];
      }
    }
  });
  return ffi::Error::Success();
}

// The operands that both passes of basis_rows have, checked; `padded` holds c with its bases rounded up.
ffi::Error basis_rows_of(const Int32s& indptr, const Int32s& slots, const Int32s& matrix_of, const Floats& values,
                         const Floats& c, const Floats& v, const ffi::AnyBuffer& z, std::vector<float>* padded,
                         BasisRows* args) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (c.dimensions().size() != 2 || v.dimensions().size() != 3 || z.dimensions().size() != 2) {
    return invalid("basis_rows needs c [matrices, bases], v [bases, rows, width] and slots [slots, width]");
  }
  *args = {};
  args->matrices = c.dimensions()[0];
  args->bases = c.dimensions()[1];
  args->width = v.dimensions()[2];
  const int64_t rows = v.dimensions()[1];
  JHGNN_RETURN_IF_ERROR(csr_view(indptr, slots, z.dimensions()[0], &args->slots));
  const int64_t entries = args->slots.num_edges;
  JHGNN_CHECK_SHAPE(indptr, rows + 1);
  JHGNN_CHECK_SHAPE(matrix_of, entries);
  JHGNN_CHECK_SHAPE(values, entries);
  JHGNN_CHECK_SHAPE(v, args->bases, rows, args->width);
  JHGNN_CHECK_SHAPE(z, z.dimensions()[0], args->width);
  JHGNN_RETURN_IF_ERROR(features_of(z, &args->z));
  args->padded_bases = round_up(args->bases, 16);
  padded->assign(args->matrices * args->padded_bases, 0.0f);
  for (int64_t matrix = 0; matrix < args->matrices; ++matrix) {
    std::copy_n(c.typed_data() + matrix * args->bases, args->bases, padded->data() + matrix * args->padded_bases);
  }
  args->matrix_of = matrix_of.typed_data();
  args->values = values.typed_data();
  args->c = padded->data();
  args->v = v.typed_data();
  return ffi::Error::Success();
}

ffi::Error bad_slots() { return invalid("malformed slots: a slot or a matrix is out of range"); }

// So many whatever the threads: the result does not depend on them.
std::vector<int64_t> basis_blocks(const CsrView& slots) {
  return equal_blocks(slots, std::max<int64_t>(1, std::min(kBasisTasks, work_of(slots) / kTaskWork)));
}

void set_to_zero(ffi::ThreadPool& pool, void* to, int64_t num_bytes) {
  parallel_for(pool, (num_bytes + kZeroedTogether - 1) / kZeroedTogether, [&](int64_t block) {
    const int64_t first = block * kZeroedTogether;
    std::memset(static_cast<char*>(to) + first, 0, std::min(kZeroedTogether, num_bytes - first));
  });
}

ffi::Error basis_rows(ffi::ThreadPool pool, Int32s indptr, Int32s slots, Int32s matrix_of, Floats values, Floats c,
                      Floats v, ffi::Result<ffi::AnyBuffer> z) {
  BasisRows args;
  std::vector<float> padded;
  JHGNN_RETURN_IF_ERROR(basis_rows_of(indptr, slots, matrix_of, values, c, v, *z, &padded, &args));
  set_to_zero(pool, z->untyped_data(), static_cast<int64_t>(z->size_bytes()));
  const std::vector<int64_t> borders = basis_blocks(args.slots);
  std::atomic<bool> valid{true};
  parallel_for(pool, static_cast<int64_t>(borders.size()) - 1, [&](int64_t block) {
    std::vector<float> tile(basis_tile_size(args));
    if (!kernels()->basis_rows(args, borders[block], borders[block + 1], tile.data())) {
      valid.store(false, std::memory_order_relaxed);
    }
  });
  return valid.load(std::memory_order_relaxed) ? ffi::Error::Success() : bad_slots();
}

ffi::Error basis_rows_backward(ffi::ThreadPool pool, Int32s indptr, Int32s slots, Int32s matrix_of, Floats values,
                               Floats c, Floats v, ffi::AnyBuffer cotangent, FloatsOut d_c, FloatsOut d_v) {
  BasisRows args;
  std::vector<float> padded;
  JHGNN_RETURN_IF_ERROR(basis_rows_of(indptr, slots, matrix_of, values, c, v, cotangent, &padded, &args));
  JHGNN_CHECK_SHAPE(*d_c, args.matrices, args.bases);
  JHGNN_CHECK_SHAPE(*d_v, args.bases, args.slots.num_rows, args.width);
  args.d_v = d_v->typed_data();
  args.past_caches = static_cast<int64_t>(d_v->size_bytes()) > kPrefetchBytes && args.width % kLineFloats == 0 &&
                     reinterpret_cast<uintptr_t>(args.d_v) % (kLineFloats * sizeof(float)) == 0;
  const std::vector<int64_t> borders = basis_blocks(args.slots);
  const int64_t blocks = static_cast<int64_t>(borders.size()) - 1, size = args.matrices * args.padded_bases;
  std::vector<float> sums(blocks * size, 0.0f);
  std::atomic<bool> valid{true};
  parallel_for(pool, blocks, [&](int64_t block) {
    std::vector<float> scratch(2 * basis_tile_size(args));
    if (!kernels()->basis_rows_backward(args, borders[block], borders[block + 1], scratch.data(),
                                        sums.data() + block * size)) {
      valid.store(false, std::memory_order_relaxed);
    }
  });
  if (!valid.load(std::memory_order_relaxed)) return bad_slots();
  for (int64_t block = 1; block < blocks; ++block) {
    for (int64_t i = 0; i < size; ++i) sums[i] += sums[block * size + i];
  }
  for (int64_t matrix = 0; matrix < args.matrices; ++matrix) {
    std::copy_n(sums.data() + matrix * args.padded_bases, args.bases, d_c->typed_data() + matrix * args.bases);
  }
  return ffi::Error::Success();
}

// The operands that both passes of row_attention have, checked; `packed` holds the weight and the logits' columns with
// heads innermost, [in_width, width + 1, padded] in two parts.
ffi::Error row_attention_of(const Int32s& senders, const Int32s& num_neighbors, const Floats& x, const Floats& weight,
                            const Floats& columns, const Floats& logit_dst, const Seed& seed, const Int32s& sender_ids,
                            const Int32s& receiver_ids, float slope, uint32_t threshold, float scale,
                            std::vector<float>* packed, RowAttention* args) {
  JHGNN_RETURN_IF_ERROR(check_kernels());
  if (senders.dimensions().size() != 2 || x.dimensions().size() != 2 || columns.dimensions().size() != 2 ||
      weight.dimensions().size() != 2) {
    return invalid("senders, x, weight and columns of row_attention must be matrices");
  }
  const int64_t targets = senders.dimensions()[0], fan_out = senders.dimensions()[1], sources = x.dimensions()[0];
  const int64_t in_width = x.dimensions()[1], heads = columns.dimensions()[1], out_width = weight.dimensions()[1];
  if (heads < 1 || heads > kMostRowHeads || out_width % heads != 0) {
    return invalid("row_attention needs 1 to 16 heads that divide the weight's columns");
  }
  JHGNN_CHECK_SHAPE(num_neighbors, targets);
  JHGNN_CHECK_SHAPE(weight, in_width, out_width);
  JHGNN_CHECK_SHAPE(columns, in_width, heads);
  JHGNN_CHECK_SHAPE(logit_dst, targets, heads);
  const int64_t padded = heads <= 2 ? heads : heads <= 4 ? 4 : heads <= 8 ? 8 : 16, width = out_width / heads;
  packed->assign(in_width * (width + 1) * padded, 0.0f);
  float* packed_columns = packed->data() + in_width * width * padded;
  for (int64_t column = 0; column < in_width; ++column) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t at = 0; at < width; ++at) {
        (*packed)[(column * width + at) * padded + head] = weight.typed_data()[column * out_width + head * width + at];
      }
      packed_columns[column * padded + head] = columns.typed_data()[column * heads + head];
    }
  }
  *args = {};
  args->targets = targets;
  args->fan_out = fan_out;
  args->sources = sources;
  args->in_width = in_width;
  args->heads = heads;
  args->width = width;
  args->padded_heads = padded;
  args->senders = senders.typed_data();
  args->num_neighbors = num_neighbors.typed_data();
  args->x = x.typed_data();
  args->weight = packed->data();
  args->columns = packed_columns;
  args->logit_dst = logit_dst.typed_data();
  args->slope = slope;
  return dropout_of(seed, sender_ids, receiver_ids, sources, targets, threshold, scale, &args->dropout);
}

ffi::Error bad_table() { return invalid("malformed table: a sender or a number of neighbours is out of range"); }

ffi::Error row_attention_forward(ffi::ThreadPool pool, Int32s senders, Int32s num_neighbors, Floats x, Floats weight,
                                 Floats columns, Floats logit_dst, Seed seed, Int32s sender_ids, Int32s receiver_ids,
                                 float slope, uint32_t threshold, float scale, FloatsOut out) {
  RowAttention args;
  std::vector<float> packed;
  JHGNN_RETURN_IF_ERROR(row_attention_of(senders, num_neighbors, x, weight, columns, logit_dst, seed, sender_ids,
                                         receiver_ids, slope, threshold, scale, &packed, &args));
  JHGNN_CHECK_SHAPE(*out, args.targets, args.heads * args.width);
  args.out = out->typed_data();
  std::atomic<bool> valid{true};
  parallel_for(pool, (args.targets + kRowTargets - 1) / kRowTargets, [&](int64_t block) {
    std::vector<float> scratch(kernels()->row_attention_scratch(args));
    const int64_t first = block * kRowTargets, last = std::min(args.targets, first + kRowTargets);
    if (!kernels()->row_attention_forward(args, first, last, scratch.data())) {
      valid.store(false, std::memory_order_relaxed);
    }
  });
  return valid.load(std::memory_order_relaxed) ? ffi::Error::Success() : bad_table();
}

// d_x is empty where nobody asks for it.
ffi::Error row_attention_backward(ffi::ThreadPool pool, Int32s senders, Int32s num_neighbors, Floats x, Floats weight,
                                  Floats columns, Floats logit_dst, Seed seed, Int32s sender_ids, Int32s receiver_ids,
                                  Floats cotangent, float slope, uint32_t threshold, float scale, FloatsOut d_x,
                                  FloatsOut d_weight, FloatsOut d_columns, FloatsOut d_logit_dst) {
  RowAttention args;
  std::vector<float> packed;
  JHGNN_RETURN_IF_ERROR(row_attention_of(senders, num_neighbors, x, weight, columns, logit_dst, seed, sender_ids,
                                         receiver_ids, slope, threshold, scale, &packed, &args));
  const int64_t in_width = args.in_width, heads = args.heads, width = args.width, padded = args.padded_heads;
  const int64_t out_width = heads * width;
  JHGNN_CHECK_SHAPE(cotangent, args.targets, out_width);
  JHGNN_CHECK_SHAPE(*d_weight, in_width, out_width);
  JHGNN_CHECK_SHAPE(*d_columns, in_width, heads);
  JHGNN_CHECK_SHAPE(*d_logit_dst, args.targets, heads);
  const bool of_rows = d_x->element_count() > 0;
  if (of_rows) JHGNN_CHECK_SHAPE(*d_x, args.sources, in_width);
  args.cotangent = cotangent.typed_data();
  args.d_logit_dst = d_logit_dst->typed_data();
  args.d_x = of_rows ? d_x->typed_data() : nullptr;
  const std::unique_ptr<float[]> factors(of_rows ? new float[args.targets * args.fan_out * 2 * padded] : nullptr);
  args.factors = factors.get();
  // So many tasks whatever the threads, and their sums in order: the result does not depend on the threads.
  const int64_t tasks = std::max<int64_t>(1, std::min(kRowTasks, args.targets / kRowTargets));
  const int64_t size = in_width * (width + 1) * padded;
  std::vector<float> sums(tasks * size, 0.0f);
  std::atomic<bool> valid{true};
  parallel_for(pool, tasks, [&](int64_t task) {
    std::vector<float> scratch(kernels()->row_attention_scratch(args));
    const int64_t first = args.targets * task / tasks, last = args.targets * (task + 1) / tasks;
    if (!kernels()->row_attention_backward(args, first, last, scratch.data(), sums.data() + task * size)) {
      valid.store(false, std::memory_order_relaxed);
    }
  });
  if (!valid.load(std::memory_order_relaxed)) return bad_table();
  for (int64_t task = 1; task < tasks; ++task) {
    for (int64_t i = 0; i < size; ++i) sums[i] += sums[task * size + i];
  }
  for (int64_t column = 0; column < in_width; ++column) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t at = 0; at < width; ++at) {
        d_weight->typed_data()[column * out_width + head * width + at] = sums[(column * width + at) * padded + head];
      }
      d_columns->typed_data()[column * heads + head] = sums[(in_width * width + column) * padded + head];
    }
  }
  if (!of_rows) return ffi::Error::Success();
  const int64_t stripes = (in_width + kRowStripe - 1) / kRowStripe;
  std::vector<float> striped(stripes * out_width * kRowStripe, 0.0f);
  for (int64_t column = 0; column < in_width; ++column) {
    for (int64_t at = 0; at < out_width; ++at) {
      striped[(column / kRowStripe * out_width + at) * kRowStripe + column % kRowStripe] =
          weight.typed_data()[column * out_width + at];
    }
  }
  args.stripes = striped.data();
  set_to_zero(pool, args.d_x, args.sources * in_width * static_cast<int64_t>(sizeof(float)));
  parallel_for(pool, stripes, [&](int64_t stripe) {
    const int64_t first = stripe * kRowStripe;
    kernels()->row_attention_d_rows(args, first, std::min(kRowStripe, in_width - first));
  });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jhgnn

// All else is hidden.
#pragma GCC visibility push(default)

extern "C" {

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_attention_forward, jhgnn::attention_forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()     // indptr
                                  .Arg<jhgnn::Int32s>()     // indices
                                  .Arg<ffi::AnyBuffer>()    // z
                                  .Arg<jhgnn::Floats>()     // logit_src
                                  .Arg<jhgnn::Floats>()     // logit_dst
                                  .Arg<jhgnn::Seed>()       // seed
                                  .Arg<jhgnn::Int32s>()     // sender_ids
                                  .Arg<jhgnn::Int32s>()     // receiver_ids
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Ret<ffi::Buffer<ffi::F32>>()   // out
                                  .Ret<ffi::Buffer<ffi::F32>>()   // out_minor
                                  .Ret<ffi::Buffer<ffi::F32>>()   // stats
                                  .Ret<ffi::Buffer<ffi::F32>>());  // packed

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_attention_backward, jhgnn::attention_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()     // indptr
                                  .Arg<jhgnn::Int32s>()     // indices
                                  .Arg<ffi::AnyBuffer>()    // z
                                  .Arg<jhgnn::Floats>()     // logit_src
                                  .Arg<jhgnn::Floats>()     // logit_dst
                                  .Arg<jhgnn::Seed>()       // seed
                                  .Arg<jhgnn::Int32s>()     // sender_ids
                                  .Arg<jhgnn::Int32s>()     // receiver_ids
                                  .Arg<jhgnn::Floats>()     // out
                                  .Arg<jhgnn::Floats>()     // out_minor
                                  .Arg<jhgnn::Floats>()     // stats
                                  .Arg<ffi::AnyBuffer>()    // cotangent
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Ret<ffi::Buffer<ffi::F32>>()   // d_z
                                  .Ret<ffi::Buffer<ffi::F32>>()   // d_logit_src
                                  .Ret<ffi::Buffer<ffi::F32>>()   // d_logit_dst
                                  .Ret<ffi::Buffer<ffi::F32>>());  // packed

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_sum, jhgnn::row_sum,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()   // indptr
                                  .Arg<jhgnn::Int32s>()   // indices
                                  .Arg<jhgnn::Floats>()   // values
                                  .Arg<jhgnn::Floats>()   // index_scale
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Attr<bool>("mean")
                                  .Attr<bool>("weighted")
                                  .Attr<bool>("scaled")
                                  .Ret<ffi::AnyBuffer>());  // out

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_sums, jhgnn::row_sums,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()  // indptr
                                  .Arg<jhgnn::Int32s>()  // indices
                                  .Arg<jhgnn::Floats>()  // values
                                  .Attr<int64_t>("columns")
                                  .RemainingArgs()    // xs
                                  .RemainingRets());  // outs

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_edge_dot, jhgnn::edge_dot,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()   // indptr
                                  .Arg<jhgnn::Int32s>()   // indices
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<ffi::AnyBuffer>()  // row_side
                                  .Ret<ffi::Buffer<ffi::F32>>());  // out

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_max, jhgnn::row_max,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()   // indptr
                                  .Arg<jhgnn::Int32s>()   // indices
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Ret<ffi::Buffer<ffi::F32>>()   // out
                                  .Ret<ffi::Buffer<ffi::F32>>());  // counts

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_max_backward, jhgnn::row_max_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()   // indptr
                                  .Arg<jhgnn::Int32s>()   // indices
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .Arg<jhgnn::Floats>()   // out
                                  .Arg<jhgnn::Floats>()   // shares
                                  .Ret<ffi::Buffer<ffi::F32>>());  // d_x

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_logit_columns, jhgnn::logit_columns,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Floats>()  // stack
                                  .Arg<jhgnn::Floats>()  // vectors
                                  .Attr<ffi::Span<const int64_t>>("places")
                                  .Ret<ffi::Buffer<ffi::F32>>());  // out

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_logit_columns_backward, jhgnn::logit_columns_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Floats>()  // stack
                                  .Arg<jhgnn::Floats>()  // vectors
                                  .Arg<jhgnn::Floats>()  // cotangent
                                  .Attr<ffi::Span<const int64_t>>("places")
                                  .Ret<ffi::Buffer<ffi::F32>>()   // d_stack
                                  .Ret<ffi::Buffer<ffi::F32>>());  // d_vectors

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_column_parts, jhgnn::column_parts,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()  // x
                                  .RemainingRets());      // parts

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_outer_sum, jhgnn::outer_sum,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()           // x
                                  .Arg<ffi::AnyBuffer>()           // d
                                  .Ret<ffi::Buffer<ffi::F32>>());  // out

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_basis_rows, jhgnn::basis_rows,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()    // indptr
                                  .Arg<jhgnn::Int32s>()    // slots
                                  .Arg<jhgnn::Int32s>()    // matrix_of
                                  .Arg<jhgnn::Floats>()    // values
                                  .Arg<jhgnn::Floats>()    // c
                                  .Arg<jhgnn::Floats>()    // v
                                  .Ret<ffi::AnyBuffer>());  // z

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_basis_rows_backward, jhgnn::basis_rows_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()   // indptr
                                  .Arg<jhgnn::Int32s>()   // slots
                                  .Arg<jhgnn::Int32s>()   // matrix_of
                                  .Arg<jhgnn::Floats>()   // values
                                  .Arg<jhgnn::Floats>()   // c
                                  .Arg<jhgnn::Floats>()   // v
                                  .Arg<ffi::AnyBuffer>()  // cotangent
                                  .Ret<ffi::Buffer<ffi::F32>>()    // d_c
                                  .Ret<ffi::Buffer<ffi::F32>>());  // d_v

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_attention_forward, jhgnn::row_attention_forward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()  // senders
                                  .Arg<jhgnn::Int32s>()  // num_neighbors
                                  .Arg<jhgnn::Floats>()  // x
                                  .Arg<jhgnn::Floats>()  // weight
                                  .Arg<jhgnn::Floats>()  // columns
                                  .Arg<jhgnn::Floats>()  // logit_dst
                                  .Arg<jhgnn::Seed>()    // seed
                                  .Arg<jhgnn::Int32s>()  // sender_ids
                                  .Arg<jhgnn::Int32s>()  // receiver_ids
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Ret<ffi::Buffer<ffi::F32>>());  // out

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_row_attention_backward, jhgnn::row_attention_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<jhgnn::Int32s>()  // senders
                                  .Arg<jhgnn::Int32s>()  // num_neighbors
                                  .Arg<jhgnn::Floats>()  // x
                                  .Arg<jhgnn::Floats>()  // weight
                                  .Arg<jhgnn::Floats>()  // columns
                                  .Arg<jhgnn::Floats>()  // logit_dst
                                  .Arg<jhgnn::Seed>()    // seed
                                  .Arg<jhgnn::Int32s>()  // sender_ids
                                  .Arg<jhgnn::Int32s>()  // receiver_ids
                                  .Arg<jhgnn::Floats>()  // cotangent
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Ret<ffi::Buffer<ffi::F32>>()    // d_x
                                  .Ret<ffi::Buffer<ffi::F32>>()    // d_weight
                                  .Ret<ffi::Buffer<ffi::F32>>()    // d_columns
                                  .Ret<ffi::Buffer<ffi::F32>>());  // d_logit_dst

const char* jhgnn_instruction_set() { return jhgnn::kernels() ? jhgnn::kernels()->name : "none"; }

// For the tests of tiles, which have to know that there are some.
int64_t jhgnn_tile_columns(int64_t rows, int64_t edges, int64_t columns, int64_t column_bytes) {
  return jhgnn::tile_columns({nullptr, nullptr, rows, edges, columns, 0}, column_bytes);
}

// For the test that holds counter_hash.h against jhgnn/random/counter_hash.py.
void jhgnn_edge_bits(uint32_t seed, const uint32_t* senders, const uint32_t* receivers, const uint32_t* heads,
                     int64_t count, uint32_t* bits) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t sender_key = jhgnn::endpoint_key(senders[i], jhgnn::mix(seed));
    const uint32_t receiver_key = jhgnn::endpoint_key(receivers[i], jhgnn::mix(seed + jhgnn::kGolden));
    bits[i] = jhgnn::edge_bits(sender_key, receiver_key, heads[i]);
  }
}

}  // extern "C"

#pragma GCC visibility pop

// What XLA calls on a GPU: checks buffers, lays work over blocks, and starts kernels. The layout of columns and tiles is
// decided in jhgnn/native/cuda/__init__.py, which sizes the buffer of carries by it; here it is checked.
#include <algorithm>
#include <initializer_list>
#include <string>

#include "entries.h"
#include "launch.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace jhgnn::cuda {
namespace {

using Int32s = ffi::Buffer<ffi::S32>;
using Floats = ffi::Buffer<ffi::F32>;
using FloatsOut = ffi::ResultBuffer<ffi::F32>;
using Seed = ffi::Buffer<ffi::U32>;
using AnyOut = ffi::Result<ffi::AnyBuffer>;

ffi::Error invalid(const std::string& what) { return ffi::Error::InvalidArgument("jhgnn: " + what); }
ffi::Error outcome(const std::string& what) {
  return what.empty() ? ffi::Error::Success() : ffi::Error::Internal("jhgnn: " + what);
}

#define JHGNN_RETURN_IF_ERROR(call)                               \
  do {                                                            \
    if (ffi::Error error = (call); error.failure()) return error; \
  } while (false)

template <typename Buffer>
ffi::Error check_shape(const char* name, const Buffer& buffer, std::initializer_list<int64_t> shape) {
  const auto dimensions = buffer.dimensions();
  if (std::equal(dimensions.begin(), dimensions.end(), shape.begin(), shape.end())) return ffi::Error::Success();
  std::string text = std::string(name) + " is [";
  for (int64_t size : dimensions) text += std::to_string(size) + " ";
  text += "]; need [";
  for (int64_t size : shape) text += std::to_string(size) + " ";
  return invalid(text + "]");
}

// How columns are laid over the lanes of a warp.
struct Layout {
  int vector, group, blocks;

  std::string suffix(ffi::DataType type) const {
    return std::string(type == ffi::BF16 ? "bfloat16_" : "float32_") + std::to_string(vector);
  }
};

// Of `columns` columns, of which `together` neighbouring ones share what is read for them.
Layout layout_of(int64_t columns, int64_t together) {
  Layout layout{};
  layout.vector = together % 8 == 0 ? 8 : together % 4 == 0 ? 4 : 1;
  const int64_t words = std::max<int64_t>(1, (columns + layout.vector - 1) / layout.vector);
  layout.group = 1;
  while (layout.group < 32 && layout.group < words) layout.group *= 2;
  layout.blocks = static_cast<int>((words + layout.group - 1) / layout.group);
  return layout;
}

ffi::Error check_type(const ffi::AnyBuffer& x) {
  if (x.element_type() == ffi::F32 || x.element_type() == ffi::BF16) return ffi::Error::Success();
  return invalid("the kernels of the GPU take float32 and bfloat16");
}

// The rows, and how they are cut; `state` floats of a lane are carried.
ffi::Error lay_out(const Int32s& indptr, const Int32s& ends, const Int32s& indices, int64_t tile, int64_t state, const Layout& layout,
                   FloatsOut carries, Csr* csr, Tiles* tiles) {
  if (indptr.dimensions().size() != 1 || indices.dimensions().size() != 1 || indptr.dimensions()[0] < 1 || tile < 1) {
    return invalid("indptr and indices of a graph must be vectors, indptr of one element at least");
  }
  const int64_t rows = indptr.dimensions()[0] - 1;
  if (ends.element_count()) JHGNN_RETURN_IF_ERROR(check_shape("ends", ends, {rows}));
  *csr = {indptr.typed_data(), ends.element_count() ? ends.typed_data() : nullptr, indices.typed_data(),
          static_cast<int32_t>(rows), static_cast<int32_t>(indices.dimensions()[0])};
  const int64_t count = (csr->num_entries + tile - 1) / tile;
  *tiles = {static_cast<int32_t>(tile), static_cast<int32_t>(count), layout.group, layout.blocks, carries->typed_data()};
  return check_shape("carries", *carries, {count > 1 ? count * (2 * layout.blocks * state * layout.group + 1) : 0});
}

// Both kernels of a pair; `state` floats of a lane are joined in shared memory.
template <typename Arguments>
ffi::Error run_pair(void* stream, const std::string& name, int64_t state, const Arguments& given) {
  const int64_t clearing = (given.csr.num_rows + kRowsToClear - 1) / kRowsToClear;
  const int64_t groups = given.tiles.count + clearing, of_block = kTileThreads / given.tiles.group;
  const Grid tiles{(groups + of_block - 1) / of_block, given.tiles.column_blocks, kTileThreads, 0};
  if (tiles.blocks > 0) JHGNN_RETURN_IF_ERROR(outcome(launch(stream, name + "_tiles", tiles, &given)));
  if (given.tiles.count < 2) return ffi::Error::Success();
  constexpr int64_t kJoinWarps = kJoinThreads / 32;
  const int64_t shared_bytes = static_cast<int64_t>(sizeof(float)) * state * kJoinThreads;
  const Grid join{(given.tiles.count + kJoinWarps - 1) / kJoinWarps, given.tiles.column_blocks, kJoinThreads, shared_bytes};
  return outcome(launch(stream, name + "_join", join, &given));
}

template <typename T>
ffi::Error run_row_sum(void* stream, const Int32s& indptr, const Int32s& ends, const Int32s& indices, const Floats& weights,
                       const Floats& scale, const ffi::AnyBuffer& x, AnyOut out, FloatsOut carries, bool mean, int64_t tile) {
  RowSumArguments<T> given{};
  const int64_t width = x.dimensions()[1];
  const Layout layout = layout_of(width, width);
  const int64_t state = layout.vector;
  JHGNN_RETURN_IF_ERROR(lay_out(indptr, ends, indices, tile, state, layout, carries, &given.csr, &given.tiles));
  JHGNN_RETURN_IF_ERROR(check_shape("out", *out, {given.csr.num_rows, width}));
  if (weights.element_count()) JHGNN_RETURN_IF_ERROR(check_shape("weights", weights, {given.csr.num_entries}));
  if (scale.element_count()) JHGNN_RETURN_IF_ERROR(check_shape("scale", scale, {x.dimensions()[0]}));
  given.x = static_cast<const T*>(x.untyped_data());
  given.weights = weights.element_count() ? weights.typed_data() : nullptr;
  given.scale = scale.element_count() ? scale.typed_data() : nullptr;
  given.out = static_cast<T*>(out->untyped_data());
  given.width = static_cast<int32_t>(width);
  given.mean = mean;
  return run_pair(stream, "row_sum_" + layout.suffix(x.element_type()), state, given);
}

ffi::Error row_sum(void* stream, Int32s indptr, Int32s ends, Int32s indices, Floats weights, Floats scale, ffi::AnyBuffer x, AnyOut out,
                   FloatsOut carries, bool mean, int64_t tile) {
  JHGNN_RETURN_IF_ERROR(check_type(x));
  if (x.dimensions().size() != 2) return invalid("x must be [columns, width]");
  if (out->element_type() != x.element_type()) return invalid("x and out have different element types");
  if (x.element_type() == ffi::BF16) {
    return run_row_sum<Bfloat16>(stream, indptr, ends, indices, weights, scale, x, out, carries, mean, tile);
  }
  return run_row_sum<float>(stream, indptr, ends, indices, weights, scale, x, out, carries, mean, tile);
}

Dropout dropout_of(const Seed& seed, const Int32s& senders, const Int32s& receivers, uint32_t threshold, float scale) {
  return {seed.typed_data(), senders.element_count() ? senders.typed_data() : nullptr,
          receivers.element_count() ? receivers.typed_data() : nullptr, threshold, scale};
}

template <typename T>
ffi::Error run_forward(void* stream, const Int32s& indptr, const Int32s& ends, const Int32s& indices, const ffi::AnyBuffer& z,
                       const Floats& logit_src, const Floats& logit_dst, const Dropout& dropout, AnyOut out,
                       FloatsOut minor, FloatsOut stats, FloatsOut carries, float slope, int64_t tile) {
  AttentionForwardArguments<T> given{};
  const int64_t sources = z.dimensions()[0], heads = z.dimensions()[1], width = z.dimensions()[2];
  const bool training = stats->element_count() > 0;
  const Layout layout = layout_of(heads * width, width);
  const int64_t state = 1 + (training ? 2 : 1) * (1 + layout.vector);
  JHGNN_RETURN_IF_ERROR(lay_out(indptr, ends, indices, tile, state, layout, carries, &given.csr, &given.tiles));
  const int64_t targets = given.csr.num_rows;
  JHGNN_RETURN_IF_ERROR(check_shape("logit_src", logit_src, {sources, heads}));
  JHGNN_RETURN_IF_ERROR(check_shape("logit_dst", logit_dst, {targets, heads}));
  JHGNN_RETURN_IF_ERROR(check_shape("out", *out, {targets, heads, width}));
  JHGNN_RETURN_IF_ERROR(check_shape("minor", *minor, {training ? targets : 0, heads, width}));
  JHGNN_RETURN_IF_ERROR(check_shape("stats", *stats, {kStats, training ? targets : 0, heads}));
  given.z = static_cast<const T*>(z.untyped_data());
  given.logit_src = logit_src.typed_data();
  given.logit_dst = logit_dst.typed_data();
  given.dropout = dropout;
  given.out = static_cast<T*>(out->untyped_data());
  given.minor = minor->typed_data();
  given.stats = stats->typed_data();
  given.heads = static_cast<int32_t>(heads);
  given.width = static_cast<int32_t>(width);
  given.slope = slope;
  const std::string name = training ? "attention_training_" : "attention_forward_";
  return run_pair(stream, name + layout.suffix(z.element_type()), state, given);
}

ffi::Error attention_forward(void* stream, Int32s indptr, Int32s ends, Int32s indices, ffi::AnyBuffer z, Floats logit_src,
                             Floats logit_dst, Seed seed, Int32s sender_ids, Int32s receiver_ids, AnyOut out,
                             FloatsOut minor, FloatsOut stats, FloatsOut carries, float slope, uint32_t threshold,
                             float scale, int64_t tile) {
  JHGNN_RETURN_IF_ERROR(check_type(z));
  if (z.dimensions().size() != 3) return invalid("z must be [sources, heads, width]");
  if (out->element_type() != z.element_type()) return invalid("z and out have different element types");
  const Dropout dropout = dropout_of(seed, sender_ids, receiver_ids, threshold, scale);
  if (z.element_type() == ffi::BF16) {
    return run_forward<Bfloat16>(stream, indptr, ends, indices, z, logit_src, logit_dst, dropout, out, minor, stats, carries,
                                 slope, tile);
  }
  return run_forward<float>(stream, indptr, ends, indices, z, logit_src, logit_dst, dropout, out, minor, stats, carries, slope,
                            tile);
}

template <typename T>
ffi::Error run_backward(void* stream, const Int32s& indptr, const Int32s& ends, const Int32s& indices, const ffi::AnyBuffer& cotangent,
                        const ffi::AnyBuffer& z, const Floats& logit_src, const Floats& targets, const Dropout& dropout,
                        AnyOut d_z, FloatsOut d_logit, FloatsOut carries, float slope, int64_t tile) {
  AttentionBackwardArguments<T> given{};
  const int64_t num_targets = cotangent.dimensions()[0], heads = cotangent.dimensions()[1];
  const int64_t width = cotangent.dimensions()[2];
  const Layout layout = layout_of(heads * width, width);
  const int64_t state = 1 + 2 * layout.vector;
  JHGNN_RETURN_IF_ERROR(lay_out(indptr, ends, indices, tile, state, layout, carries, &given.csr, &given.tiles));
  const int64_t sources = given.csr.num_rows;
  JHGNN_RETURN_IF_ERROR(check_shape("logit_src", logit_src, {sources, heads}));
  JHGNN_RETURN_IF_ERROR(check_shape("z", z, {sources, heads, width}));
  JHGNN_RETURN_IF_ERROR(check_shape("targets", targets, {num_targets, kOfTarget, heads}));
  JHGNN_RETURN_IF_ERROR(check_shape("d_z", *d_z, {sources, heads, width}));
  JHGNN_RETURN_IF_ERROR(check_shape("d_logit", *d_logit, {sources, heads, width / layout.vector}));
  given.cotangent = static_cast<const T*>(cotangent.untyped_data());
  given.logit_src = logit_src.typed_data();
  given.z = static_cast<const T*>(z.untyped_data());
  given.targets = targets.typed_data();
  given.dropout = dropout;
  given.d_z = static_cast<T*>(d_z->untyped_data());
  given.d_logit = d_logit->typed_data();
  given.heads = static_cast<int32_t>(heads);
  given.width = static_cast<int32_t>(width);
  given.slope = slope;
  return run_pair(stream, "attention_backward_" + layout.suffix(cotangent.element_type()), state, given);
}

ffi::Error attention_backward(void* stream, Int32s indptr, Int32s ends, Int32s indices, ffi::AnyBuffer cotangent, ffi::AnyBuffer z,
                              Floats logit_src, Floats targets, Seed seed, Int32s sender_ids, Int32s receiver_ids, AnyOut d_z,
                              FloatsOut d_logit, FloatsOut carries, float slope, uint32_t threshold, float scale, int64_t tile) {
  JHGNN_RETURN_IF_ERROR(check_type(cotangent));
  if (cotangent.dimensions().size() != 3) return invalid("a cotangent must be [targets, heads, width]");
  if (d_z->element_type() != cotangent.element_type() || z.element_type() != cotangent.element_type()) {
    return invalid("cotangent, z and d_z have different element types");
  }
  const Dropout dropout = dropout_of(seed, sender_ids, receiver_ids, threshold, scale);
  if (cotangent.element_type() == ffi::BF16) {
    return run_backward<Bfloat16>(stream, indptr, ends, indices, cotangent, z, logit_src, targets, dropout, d_z, d_logit, carries,
                                  slope, tile);
  }
  return run_backward<float>(stream, indptr, ends, indices, cotangent, z, logit_src, targets, dropout, d_z, d_logit, carries, slope,
                             tile);
}

template <typename Word>
ffi::Error run_rows(void* stream, const std::string& name, const Int32s& ids, int64_t words, void* table, void* rows) {
  const int64_t count = static_cast<int64_t>(ids.element_count());
  if (count == 0 || words == 0) return ffi::Error::Success();
  TableRowsArguments<Word> given{static_cast<Word*>(table), static_cast<Word*>(rows), ids.typed_data(),
                                 static_cast<int32_t>(count), static_cast<int32_t>(words)};
  const Grid grid{(count * 32 + kTileThreads - 1) / kTileThreads, 1, kTileThreads, 0};
  return outcome(launch(stream, name + "_" + std::to_string(sizeof(Word)), grid, &given));
}

// By the largest word that divides a row.
ffi::Error copy_rows(void* stream, const std::string& name, const Int32s& ids, int64_t row_bytes, void* table, void* rows) {
  if (row_bytes % 16 == 0) return run_rows<Word16>(stream, name, ids, row_bytes / 16, table, rows);
  if (row_bytes % 4 == 0) return run_rows<uint32_t>(stream, name, ids, row_bytes / 4, table, rows);
  if (row_bytes % 2 == 0) return run_rows<uint16_t>(stream, name, ids, row_bytes / 2, table, rows);
  return invalid("rows of a table must have an even number of bytes");
}

ffi::Error check_rows(const ffi::AnyBuffer& table, const Int32s& ids, const ffi::AnyBuffer& rows) {
  if (table.dimensions().size() != 2 || ids.dimensions().size() != 1) return invalid("a table must be [rows, width]");
  if (table.element_type() != rows.element_type()) return invalid("a table and its rows have different element types");
  return check_shape("rows", rows, {ids.dimensions()[0], table.dimensions()[1]});
}

int64_t row_bytes(const ffi::AnyBuffer& table) {
  return table.dimensions()[1] * static_cast<int64_t>(ffi::ByteWidth(table.element_type()));
}

ffi::Error gather_table(void* stream, ffi::AnyBuffer table, Int32s ids, AnyOut rows) {
  JHGNN_RETURN_IF_ERROR(check_rows(table, ids, *rows));
  return copy_rows(stream, "gather_rows", ids, row_bytes(table), table.untyped_data(), rows->untyped_data());
}

// The table's memory is the result's.
ffi::Error write_table(void* stream, ffi::AnyBuffer table, Int32s ids, ffi::AnyBuffer rows, AnyOut written) {
  JHGNN_RETURN_IF_ERROR(check_rows(table, ids, rows));
  if (written->untyped_data() != table.untyped_data()) return invalid("write_rows needs its table's memory as its result");
  return copy_rows(stream, "write_rows", ids, row_bytes(table), written->untyped_data(), rows.untyped_data());
}

// Loads the kernels before anything is captured.
ffi::Error initialize(void* stream) { return outcome(prepare(stream)); }

#if defined(JHGNN_HOST_WARP)
struct NoStream {};
using Stream = NoStream;
#else
using Stream = ffi::PlatformStream<void*>;
#endif

}  // namespace
}  // namespace jhgnn::cuda

#if defined(JHGNN_HOST_WARP)
// On a CPU handlers get null where a GPU's get their stream.
template <>
struct xla::ffi::CtxDecoding<jhgnn::cuda::NoStream> {
  using Type = void*;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*, DiagnosticEngine&) { return nullptr; }
};
#endif

#pragma GCC visibility push(default)

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_initialize, jhgnn::cuda::initialize,
                              ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>().Ctx<jhgnn::cuda::Stream>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_row_sum, jhgnn::cuda::row_sum,
                              ffi::Ffi::Bind()
                                  .Ctx<jhgnn::cuda::Stream>()
                                  .Arg<jhgnn::cuda::Int32s>()     // indptr
                                  .Arg<jhgnn::cuda::Int32s>()     // ends, or none
                                  .Arg<jhgnn::cuda::Int32s>()     // indices
                                  .Arg<jhgnn::cuda::Floats>()     // weights, or none
                                  .Arg<jhgnn::cuda::Floats>()     // scale, or none
                                  .Arg<ffi::AnyBuffer>()          // x
                                  .Ret<ffi::AnyBuffer>()          // out
                                  .Ret<ffi::Buffer<ffi::F32>>()   // carries
                                  .Attr<bool>("mean")
                                  .Attr<int64_t>("tile"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_attention_forward, jhgnn::cuda::attention_forward,
                              ffi::Ffi::Bind()
                                  .Ctx<jhgnn::cuda::Stream>()
                                  .Arg<jhgnn::cuda::Int32s>()     // indptr
                                  .Arg<jhgnn::cuda::Int32s>()     // ends, or none
                                  .Arg<jhgnn::cuda::Int32s>()     // indices
                                  .Arg<ffi::AnyBuffer>()          // z
                                  .Arg<jhgnn::cuda::Floats>()     // logit_src
                                  .Arg<jhgnn::cuda::Floats>()     // logit_dst
                                  .Arg<jhgnn::cuda::Seed>()       // seed
                                  .Arg<jhgnn::cuda::Int32s>()     // sender_ids, or none
                                  .Arg<jhgnn::cuda::Int32s>()     // receiver_ids, or none
                                  .Ret<ffi::AnyBuffer>()          // out
                                  .Ret<ffi::Buffer<ffi::F32>>()   // minor, in training
                                  .Ret<ffi::Buffer<ffi::F32>>()   // stats, in training
                                  .Ret<ffi::Buffer<ffi::F32>>()   // carries
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Attr<int64_t>("tile"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_attention_backward, jhgnn::cuda::attention_backward,
                              ffi::Ffi::Bind()
                                  .Ctx<jhgnn::cuda::Stream>()
                                  .Arg<jhgnn::cuda::Int32s>()     // indptr
                                  .Arg<jhgnn::cuda::Int32s>()     // ends, or none
                                  .Arg<jhgnn::cuda::Int32s>()     // indices
                                  .Arg<ffi::AnyBuffer>()          // cotangent
                                  .Arg<ffi::AnyBuffer>()          // z
                                  .Arg<jhgnn::cuda::Floats>()     // logit_src
                                  .Arg<jhgnn::cuda::Floats>()     // targets
                                  .Arg<jhgnn::cuda::Seed>()       // seed
                                  .Arg<jhgnn::cuda::Int32s>()     // sender_ids, or none
                                  .Arg<jhgnn::cuda::Int32s>()     // receiver_ids, or none
                                  .Ret<ffi::AnyBuffer>()          // d_z
                                  .Ret<ffi::Buffer<ffi::F32>>()   // d_logit
                                  .Ret<ffi::Buffer<ffi::F32>>()   // carries
                                  .Attr<float>("slope")
                                  .Attr<uint32_t>("threshold")
                                  .Attr<float>("scale")
                                  .Attr<int64_t>("tile"),
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_gather_rows, jhgnn::cuda::gather_table,
                              ffi::Ffi::Bind()
                                  .Ctx<jhgnn::cuda::Stream>()
                                  .Arg<ffi::AnyBuffer>()       // table
                                  .Arg<jhgnn::cuda::Int32s>()  // ids
                                  .Ret<ffi::AnyBuffer>(),      // rows
                              {ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(jhgnn_cuda_write_rows, jhgnn::cuda::write_table,
                              ffi::Ffi::Bind()
                                  .Ctx<jhgnn::cuda::Stream>()
                                  .Arg<ffi::AnyBuffer>()       // table
                                  .Arg<jhgnn::cuda::Int32s>()  // ids
                                  .Arg<ffi::AnyBuffer>()       // rows
                                  .Ret<ffi::AnyBuffer>(),      // the table, in its own memory
                              {ffi::Traits::kCmdBufferCompatible});

#pragma GCC visibility pop

// Every kernel by name: one pair, of tiles and of their joining, for each way that columns are laid over lanes.
//
// JHGNN_ENTRIES(entry) calls entry(name, threads, blocks, arguments, body) for each: how many threads a block has, and how
// many blocks a multiprocessor is to hold. kernels.cu makes kernels of them, host_launch.cc functions that stand for them.
#pragma once

#include "attention.h"
#include "row_sum.h"
#include "table_rows.h"

#define JHGNN_PAIR(entry, name, blocks, arguments, ...)                                           \
  entry(name##_tiles, jhgnn::cuda::kTileThreads, blocks, arguments, (sum_tiles(given.csr, given.tiles, __VA_ARGS__(given))))         \
  entry(name##_join, jhgnn::cuda::kJoinThreads, 2, arguments, (join_tiles(given.csr, given.tiles, __VA_ARGS__(given))))

#define JHGNN_LAYOUTS(entry, type, suffix, vector)                                                            \
  JHGNN_PAIR(entry, row_sum_##suffix, 8, RowSumArguments<type>, RowSum<type, vector>)                            \
  JHGNN_PAIR(entry, attention_forward_##suffix, 4, AttentionForwardArguments<type>,                              \
             AttentionForward<type, vector, false>)                                                           \
  JHGNN_PAIR(entry, attention_training_##suffix, 4, AttentionForwardArguments<type>,                             \
             AttentionForward<type, vector, true>)                                                            \
  JHGNN_PAIR(entry, attention_backward_##suffix, 4, AttentionBackwardArguments<type>, AttentionBackward<type, vector>)

#define JHGNN_ENTRIES(entry)                                                          \
  JHGNN_LAYOUTS(entry, float, float32_1, 1)                                           \
  JHGNN_LAYOUTS(entry, float, float32_4, 4)                                           \
  JHGNN_LAYOUTS(entry, float, float32_8, 8)                                           \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_1, 1)                                       \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_4, 4)                                       \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_8, 8)                                       \
  entry(gather_rows_16, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<Word16>, (gather_rows(given)))             \
  entry(gather_rows_4, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<uint32_t>, (gather_rows(given)))            \
  entry(gather_rows_2, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<uint16_t>, (gather_rows(given)))            \
  entry(write_rows_16, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<Word16>, (write_rows(given)))               \
  entry(write_rows_4, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<uint32_t>, (write_rows(given)))              \
  entry(write_rows_2, jhgnn::cuda::kTileThreads, 1, TableRowsArguments<uint16_t>, (write_rows(given)))

namespace jhgnn::cuda {

using Word16 = Pack<uint32_t, 4>;

constexpr int kTileThreads = 128;
constexpr int kJoinThreads = 256;

}  // namespace jhgnn::cuda

// Every kernel by name: one pair, of tiles and of their joining, for each way that columns are laid over lanes.
//
// JHGNN_ENTRIES(entry) calls entry(name, arguments, body) for each. kernels.cu makes kernels of them, host_launch.cc
// functions that stand for them.
#pragma once

#include "attention.h"
#include "row_sum.h"
#include "table_rows.h"

#define JHGNN_PAIR(entry, name, arguments, ...)                         \
  entry(name##_tiles, arguments, (sum_tiles(given.csr, given.tiles, __VA_ARGS__{given})))  \
  entry(name##_join, arguments, (join_tiles(given.csr, given.tiles, __VA_ARGS__{given})))

#define JHGNN_LAYOUTS(entry, type, suffix, vector, packs)                                                              \
  JHGNN_PAIR(entry, row_sum_##suffix, RowSumArguments<type>, RowSum<type, vector, packs>)                              \
  JHGNN_PAIR(entry, attention_forward_##suffix, AttentionForwardArguments<type>,                                      \
             AttentionForward<type, vector, packs, false>)                                                             \
  JHGNN_PAIR(entry, attention_training_##suffix, AttentionForwardArguments<type>,                                     \
             AttentionForward<type, vector, packs, true>)                                                              \
  JHGNN_PAIR(entry, attention_backward_##suffix, AttentionBackwardArguments<type>,                                    \
             AttentionBackward<type, vector, packs>)

#define JHGNN_ENTRIES(entry)                                                          \
  JHGNN_LAYOUTS(entry, float, float32_1x1, 1, 1)                                      \
  JHGNN_LAYOUTS(entry, float, float32_4x1, 4, 1)                                      \
  JHGNN_LAYOUTS(entry, float, float32_4x2, 4, 2)                                      \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_1x1, 1, 1)                                  \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_4x1, 4, 1)                                  \
  JHGNN_LAYOUTS(entry, Bfloat16, bfloat16_4x2, 4, 2)                                  \
  entry(gather_rows_16, TableRowsArguments<Word16>, (gather_rows(given)))             \
  entry(gather_rows_4, TableRowsArguments<uint32_t>, (gather_rows(given)))            \
  entry(gather_rows_2, TableRowsArguments<uint16_t>, (gather_rows(given)))            \
  entry(write_rows_16, TableRowsArguments<Word16>, (write_rows(given)))               \
  entry(write_rows_4, TableRowsArguments<uint32_t>, (write_rows(given)))              \
  entry(write_rows_2, TableRowsArguments<uint16_t>, (write_rows(given)))

namespace jhgnn::cuda {

using Word16 = Pack<uint32_t, 4>;

constexpr int kThreads = 256;  // of a block, at most

}  // namespace jhgnn::cuda

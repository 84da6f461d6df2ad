// Rows of an embedding table by id: read into a batch, and written back after its update. A warp a row.
#pragma once

#include "device.h"

namespace jhgnn::cuda {

// Rows are copied as they lie in memory, in words of 16, 4 or 2 bytes, whatever their elements are.
template <typename Word>
struct TableRowsArguments {
  Word* table;         // [num_rows, words]
  Word* rows;          // [num_ids, words]
  const int32_t* ids;  // [num_ids]; below 0: none
  int32_t num_ids;
  int32_t words;  // of a row
};

// rows[i] = table[ids[i]]; zeros where there is no id.
template <typename Word>
JHGNN_DEVICE void gather_rows(const TableRowsArguments<Word>& given) {
  const int64_t row = block() * warps() + warp();
  if (row >= given.num_ids) return;
  const int32_t id = given.ids[row];
  for (int32_t word = lane(); word < given.words; word += 32) {
    given.rows[row * given.words + word] = id < 0 ? Word{} : given.table[static_cast<int64_t>(id) * given.words + word];
  }
}

// table[ids[i]] = rows[i], for distinct ids.
template <typename Word>
JHGNN_DEVICE void write_rows(const TableRowsArguments<Word>& given) {
  const int64_t row = block() * warps() + warp();
  if (row >= given.num_ids) return;
  const int32_t id = given.ids[row];
  if (id < 0) return;
  for (int32_t word = lane(); word < given.words; word += 32) {
    given.table[static_cast<int64_t>(id) * given.words + word] = given.rows[row * given.words + word];
  }
}

}  // namespace jhgnn::cuda

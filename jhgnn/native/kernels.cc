// Compiled once for each instruction set, with JHGNN_ISA naming it and the compiler's flags allowing it. Only headers
// without linkable functions may be included here: see vector.h.
#include "kernels.h"

#include <type_traits>

#include "attention_backward.h"
#include "attention_forward.h"
#include "basis_rows.h"
#include "logit_columns.h"
#include "outer_sum.h"
#include "row_attention.h"
#include "row_extra.h"
#include "row_sum.h"

#define JHGNN_TEXT_OF(name) #name
#define JHGNN_TEXT(name) JHGNN_TEXT_OF(name)

namespace jhgnn {
namespace JHGNN_ISA {

extern const Kernels table;
const Kernels table = {
    JHGNN_TEXT(JHGNN_ISA), indices_in_range, largest_of_heads, accumulator_size, pack_sources,      forward_rows,
    forward_edges,         forward_finish,   pack_targets,     backward_rows,    backward_edges,    backward_finish,
    sum_rows,              sum_edges,        sum_finish,       dot_rows,         max_rows,          max_backward_rows,
    logit_columns,         logit_columns_backward, outer_rows,
    basis_rows,            basis_rows_backward,
    row_attention_scratch, row_attention_forward, row_attention_backward, row_attention_d_rows,
};

}  // namespace JHGNN_ISA
}  // namespace jhgnn

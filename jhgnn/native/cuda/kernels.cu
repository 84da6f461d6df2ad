// The kernels of a GPU, by nvcc; handlers.cc launches them by their names.
#include "entries.h"

// Several blocks lie on a multiprocessor, so that some compute while others wait for memory.
#define JHGNN_KERNEL_OF(name, threads, blocks, arguments, body)                   \
  JHGNN_KERNEL void __launch_bounds__(threads, blocks)                            \
      jhgnn_##name(const __grid_constant__ jhgnn::cuda::arguments given) {        \
    using namespace jhgnn::cuda;                                                  \
    body;                                                                         \
  }

namespace jhgnn::cuda {
JHGNN_ENTRIES(JHGNN_KERNEL_OF)
}

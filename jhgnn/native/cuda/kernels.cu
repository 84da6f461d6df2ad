// The kernels of a GPU, by nvcc; handlers.cc launches them by their names.
#include "entries.h"

// How many blocks lie on a multiprocessor, so that some compute while others wait for memory. From compute capability 10.0
// on the compiler takes more registers, and would spill them for as many.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define JHGNN_RESIDENT(blocks) ((blocks) > 1 ? (blocks) - 1 : 1)
#else
#define JHGNN_RESIDENT(blocks) (blocks)
#endif

#define JHGNN_KERNEL_OF(name, threads, blocks, arguments, body)                   \
  JHGNN_KERNEL void __launch_bounds__(threads, JHGNN_RESIDENT(blocks))            \
      jhgnn_##name(const __grid_constant__ jhgnn::cuda::arguments given) {        \
    using namespace jhgnn::cuda;                                                  \
    body;                                                                         \
  }

namespace jhgnn::cuda {
JHGNN_ENTRIES(JHGNN_KERNEL_OF)
}

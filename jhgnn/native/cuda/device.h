// What kernels use of CUDA. Compiled by nvcc it is CUDA itself; by a host compiler, the small stand-in of host_warp.h,
// under which the same sources run on a CPU, thread by thread, for tests and sanitizers.
#pragma once

#include <cstdint>

#ifndef JHGNN_FAULT
#define JHGNN_FAULT 0  // tests plant faults, to see that they are found
#endif

#if defined(__CUDACC__)

#include <cuda_bf16.h>

#define JHGNN_DEVICE __device__ __forceinline__
#define JHGNN_KERNEL extern "C" __global__
#define JHGNN_UNROLL _Pragma("unroll")

namespace jhgnn::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

JHGNN_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
JHGNN_DEVICE int threads() { return static_cast<int>(blockDim.x); }
JHGNN_DEVICE int lane() { return static_cast<int>(threadIdx.x) & 31; }
JHGNN_DEVICE int warp() { return static_cast<int>(threadIdx.x) >> 5; }
JHGNN_DEVICE int warps() { return static_cast<int>(blockDim.x) >> 5; }
JHGNN_DEVICE int64_t block() { return static_cast<int64_t>(blockIdx.x); }
JHGNN_DEVICE int column_block() { return static_cast<int>(blockIdx.y); }
JHGNN_DEVICE void sync_block() { __syncthreads(); }

// Every lane's values from the lane whose number differs by `mask`.
template <int N>
JHGNN_DEVICE void from_lane_xor(float (&values)[N], int mask) {
JHGNN_UNROLL
  for (int i = 0; i < N; ++i) values[i] = __shfl_xor_sync(kAllLanes, values[i], mask);
}

// Of two instructions; its error is that of rounding x / log(2), 1e-6 of the result where that is 1e-9.
JHGNN_DEVICE float exponential(float x) { return __expf(x); }
JHGNN_DEVICE float logarithm(float x) { return logf(x); }

// Shared memory of the block, as large as the launch says.
JHGNN_DEVICE float* shared_floats() {
  extern __shared__ float shared[];
  return shared;
}

using Bfloat16 = __nv_bfloat16;
JHGNN_DEVICE float to_float(Bfloat16 x) { return __bfloat162float(x); }
JHGNN_DEVICE Bfloat16 to_bfloat16(float x) { return __float2bfloat16_rn(x); }

}  // namespace jhgnn::cuda

#else
#include "host_warp.h"
#endif

namespace jhgnn::cuda {

JHGNN_DEVICE float to_float(float x) { return x; }

template <typename T>
JHGNN_DEVICE T from_float(float x);
template <>
JHGNN_DEVICE float from_float<float>(float x) { return x; }
template <>
JHGNN_DEVICE Bfloat16 from_float<Bfloat16>(float x) { return to_bfloat16(x); }

// `kVector` neighbouring elements, read or written as one word.
template <typename T, int kVector>
struct alignas(sizeof(T) * kVector) Pack {
  T values[kVector];
};

template <class Word, typename T>
JHGNN_DEVICE Word load_word(const T* from) {
  return *reinterpret_cast<const Word*>(from);
}

}  // namespace jhgnn::cuda

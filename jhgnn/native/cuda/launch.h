// How handlers start kernels: by name, on a stream of XLA's. gpu_launch.cc does it on a GPU, host_launch.cc on a CPU.
#pragma once

#include <cstdint>
#include <string>

namespace jhgnn::cuda {

struct Grid {
  int64_t blocks;
  int column_blocks;
  int threads;
  int64_t shared_bytes;
};

// Makes the kernels ready for the device of the stream; what went wrong, or nothing. Called before anything is captured
// into a command buffer, when no module can be loaded any more.
std::string prepare(void* stream);

// Starts a kernel with one argument, a structure; what went wrong, or nothing.
std::string launch(void* stream, const std::string& name, const Grid& grid, const void* arguments);

}  // namespace jhgnn::cuda

// The kernels' own sources on a CPU, block after block: for tests.
#include <functional>
#include <map>

#include "entries.h"
#include "launch.h"

namespace jhgnn::cuda {
namespace {

using Body = std::function<void(const void*)>;

#define JHGNN_BODY_OF(name, threads, blocks, arguments, body)     \
  {#name, [](const void* pointer) {                               \
     const arguments& given = *static_cast<const arguments*>(pointer); \
     body;                                                        \
   }},

const std::map<std::string, Body>& bodies() {
  static const std::map<std::string, Body> found = {JHGNN_ENTRIES(JHGNN_BODY_OF)};
  return found;
}

}  // namespace

std::string prepare(void*) { return ""; }

std::string launch(void*, const std::string& name, const Grid& grid, const void* arguments) {
  const auto found = bodies().find(name);
  if (found == bodies().end()) return "no kernel " + name;
  if (grid.threads % 32 != 0 || grid.threads > kJoinThreads) return name + ": blocks of " + std::to_string(grid.threads);
  Block block(grid.threads, grid.shared_bytes);
  for (int column_block = 0; column_block < grid.column_blocks; ++column_block) {
    for (int64_t i = 0; i < grid.blocks; ++i) block.run(i, column_block, [&] { found->second(arguments); });
  }
  return "";
}

}  // namespace jhgnn::cuda

// Which instruction set runs.
#include <cstdlib>
#include <cstring>

#include "kernels.h"

namespace jhgnn {

namespace baseline {
extern const Kernels table;
}
#if defined(JHGNN_X86)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

const Kernels* choose() {
  const char* named = std::getenv("JHGNN_INSTRUCTION_SET");
  const auto wanted = [named](const char* name) { return !named || !*named || std::strcmp(named, name) == 0; };
#if defined(JHGNN_X86)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (has_avx512 && wanted("avx512")) return &avx512::table;
  if (has_avx2 && wanted("avx2")) return &avx2::table;
#endif
  return wanted("baseline") ? &baseline::table : nullptr;
}

}  // namespace

const Kernels* kernels() {
  static const Kernels* const chosen = choose();
  return chosen;
}

}  // namespace jhgnn

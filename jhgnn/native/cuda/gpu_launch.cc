// Starts kernels through CUDA's driver, which is looked for when the first of them runs: this library links nothing of
// CUDA's, so that it loads where there is none. The kernels are the fat binary that nvcc made of kernels.cu.
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <utility>

#include "launch.h"

// The fat binary, between two symbols.
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".global jhgnn_fatbin\n"
    ".hidden jhgnn_fatbin\n"
    "jhgnn_fatbin:\n"
    ".incbin \"" JHGNN_FATBIN "\"\n"
    ".previous\n");
extern "C" const char jhgnn_fatbin[];

namespace jhgnn::cuda {
namespace {

using Context = void*;
using Function = void*;

// What is used of the driver, by the names that its library exports.
struct Driver {
  int (*stream_context)(void* stream, Context* context);
  int (*push)(Context context);
  int (*pop)(Context* context);
  int (*load)(void** module, const void* image);
  int (*find)(Function* function, void* module, const char* name);
  int (*launch)(Function function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                unsigned threads_z, unsigned shared_bytes, void* stream, void** parameters, void** extra);
  int (*error_text)(int error, const char** text);
  std::string missing;
};

template <typename Pointer>
void resolve(void* library, const char* name, Pointer* pointer, std::string* missing) {
  *pointer = reinterpret_cast<Pointer>(dlsym(library, name));
  if (*pointer == nullptr && missing->empty()) *missing = std::string("CUDA's driver has no ") + name;
}

const Driver& driver() {
  static const Driver found = [] {
    Driver driver{};
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      driver.missing = "CUDA's driver, libcuda.so.1, is not on this machine";
      return driver;
    }
    resolve(library, "cuStreamGetCtx", &driver.stream_context, &driver.missing);
    resolve(library, "cuCtxPushCurrent_v2", &driver.push, &driver.missing);
    resolve(library, "cuCtxPopCurrent_v2", &driver.pop, &driver.missing);
    resolve(library, "cuModuleLoadData", &driver.load, &driver.missing);
    resolve(library, "cuModuleGetFunction", &driver.find, &driver.missing);
    resolve(library, "cuLaunchKernel", &driver.launch, &driver.missing);
    resolve(library, "cuGetErrorString", &driver.error_text, &driver.missing);
    return driver;
  }();
  return found;
}

std::string failed(const char* what, int error) {
  const char* text = nullptr;
  if (driver().error_text != nullptr) driver().error_text(error, &text);
  return std::string(what) + ": " + (text != nullptr ? text : "error " + std::to_string(error));
}

// Modules by context and functions by name and module; loaded once, and kept as long as the process.
std::mutex mutex;
std::map<Context, void*> modules;
std::map<std::pair<void*, std::string>, Function> functions;

std::string function_of(void* stream, const std::string& name, Function* function) {
  const Driver& cuda = driver();
  if (!cuda.missing.empty()) return cuda.missing;
  Context context = nullptr;
  if (int error = cuda.stream_context(stream, &context)) return failed("the context of a stream", error);
  const std::lock_guard<std::mutex> lock(mutex);
  void*& module = modules[context];
  if (module == nullptr) {
    if (int error = cuda.push(context)) return failed("the context of a stream", error);
    const int error = cuda.load(&module, jhgnn_fatbin);
    Context popped;
    cuda.pop(&popped);
    if (error) return failed("loading the kernels, which are built for sm_80 and later", error);
  }
  Function& found = functions[{module, name}];
  if (found == nullptr && !name.empty()) {
    if (int error = cuda.find(&found, module, ("jhgnn_" + name).c_str())) return failed(name.c_str(), error);
  }
  *function = found;
  return "";
}

}  // namespace

std::string prepare(void* stream) {
  Function none;
  return function_of(stream, "", &none);
}

std::string launch(void* stream, const std::string& name, const Grid& grid, const void* arguments) {
  Function function = nullptr;
  const std::string error_text = function_of(stream, name, &function);
  if (!error_text.empty()) return error_text;
  void* parameters[] = {const_cast<void*>(arguments)};
  const int error = driver().launch(function, static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.column_blocks), 1,
                                    static_cast<unsigned>(grid.threads), 1, 1, static_cast<unsigned>(grid.shared_bytes),
                                    stream, parameters, nullptr);
  return error ? failed(name.c_str(), error) : "";
}

}  // namespace jhgnn::cuda

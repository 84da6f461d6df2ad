// A parallel loop on XLA's own intra-op threads; the calling thread works too.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "xla/ffi/api/ffi.h"

namespace jhgnn {

// Calls body(task) once for every task below num_tasks and returns when all are done. Tasks are handed out in order, one
// by one. A pool thread that arrives late finds nothing left, so the loop ends even if the pool never runs anything.
template <typename Body>
void parallel_for(xla::ffi::ThreadPool& pool, int64_t num_tasks, const Body& body) {
  struct State {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };
  const int64_t helpers = num_tasks < 2 ? 0 : (pool.num_threads() < num_tasks ? pool.num_threads() : num_tasks) - 1;
  if (helpers <= 0) {
    for (int64_t task = 0; task < num_tasks; ++task) body(task);
    return;
  }
  auto state = std::make_shared<State>();
  const Body* shared_body = &body;  // alive as long as tasks are left to take
  auto drain = [state, shared_body, num_tasks] {
    for (int64_t task; (task = state->next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) {
      (*shared_body)(task);
      state->done.fetch_add(1, std::memory_order_release);
    }
  };
  for (int64_t i = 0; i < helpers; ++i) {
    auto task = drain;
    pool.Schedule(std::move(task));
  }
  drain();
  for (int spins = 0; state->done.load(std::memory_order_acquire) < num_tasks; ++spins) {
    if (spins > 1000) std::this_thread::yield();
  }
}

}  // namespace jhgnn

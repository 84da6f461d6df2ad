// A warp on a CPU: each thread of a block is a fiber that runs until it has to wait for others, at a shuffle or a barrier.
//
// It stands for the parts of CUDA's execution that kernels rely on, and for none of its speed: lanes exchange values only
// when all 32 of a warp ask, barriers let a block pass together, and between two of them threads run in an order that
// the environment may turn around (JHGNN_WARP_ORDER=backwards), so that a result that depends on the order shows.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define JHGNN_DEVICE inline
#define JHGNN_KERNEL inline
#define JHGNN_UNROLL

namespace jhgnn::cuda {

class Block {
 public:
  Block(int threads, int64_t shared_bytes) : threads_(threads), shared_(shared_bytes / sizeof(float) + 1, 0.0f) {
    for (Thread& thread : threads_) thread.stack.resize(kStackBytes);
    const char* order = std::getenv("JHGNN_WARP_ORDER");
    backwards_ = order != nullptr && std::strcmp(order, "backwards") == 0;
  }

  // Runs `body` once a thread, as block (x, y).
  void run(int64_t x, int y, const std::function<void()>& body) {
    index_ = x;
    column_block_ = y;
    body_ = &body;
    // What no thread has written yet is not zero on a GPU either.
    for (float& value : shared_) value = std::nanf("");
    for (Thread& thread : threads_) {
      thread.wait = Wait::kNothing;
      thread.done = false;
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = &scheduler_;
      makecontext(&thread.context, &Block::start, 0);
    }
    current_block() = this;
    while (resume_all()) {
    }
    current_block() = nullptr;
  }

  static Block*& current_block() {
    static thread_local Block* block = nullptr;
    return block;
  }

  int thread() const { return current_; }
  int num_threads() const { return static_cast<int>(threads_.size()); }
  int64_t index() const { return index_; }
  int column_block() const { return column_block_; }
  float* shared() { return shared_.data(); }

  void sync_block() { wait(Wait::kBlock); }

  // Exchanges `count` floats with lane ^ mask of the same warp.
  void exchange(float* values, int count, int mask) {
    Thread& own = threads_[current_];
    own.sent.assign(values, values + count);
    own.mask = mask;
    wait(Wait::kWarp);
    const int partner = (current_ & ~31) | ((current_ & 31) ^ mask);
    const Thread& other = threads_[partner];
    if (static_cast<int>(other.sent.size()) != count || other.mask != mask) {
      std::abort();  // lanes of a warp met at different shuffles
    }
    std::memcpy(values, other.sent.data(), count * sizeof(float));
    wait(Wait::kWarp);  // nobody sends again before all have read
  }

 private:
  static constexpr int64_t kStackBytes = 64 << 10;
  enum class Wait { kNothing, kWarp, kBlock };

  struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    std::vector<float> sent;
    int mask = 0;
    Wait wait = Wait::kNothing;
    bool done = false;
  };

  static void start() {
    Block* block = current_block();
    (*block->body_)();
    block->threads_[block->current_].done = true;
  }

  void wait(Wait what) {
    Thread& own = threads_[current_];
    own.wait = what;
    swapcontext(&own.context, &scheduler_);
  }

  void resume(int thread) {
    current_ = thread;
    threads_[thread].wait = Wait::kNothing;
    swapcontext(&scheduler_, &threads_[thread].context);
  }

  bool all_wait(int begin, int end, Wait what) const {
    bool any = false;
    for (int i = begin; i < end; ++i) {
      if (threads_[i].done) continue;
      if (threads_[i].wait != what) return false;
      any = true;
    }
    return any;
  }

  // One round: every thread that can run does, and those that wait for nobody any more are let go. False at the end.
  bool resume_all() {
    const int count = num_threads();
    bool left = false;
    for (int i = 0; i < count; ++i) {
      const int thread = backwards_ ? count - 1 - i : i;
      if (!threads_[thread].done && threads_[thread].wait == Wait::kNothing) resume(thread);
    }
    for (const Thread& thread : threads_) left |= !thread.done;
    if (!left) return false;
    bool freed = false;
    for (int begin = 0; begin < count; begin += 32) {
      if (all_wait(begin, begin + 32, Wait::kWarp)) {
        for (int i = begin; i < begin + 32; ++i) threads_[i].wait = Wait::kNothing;
        freed = true;
      }
    }
    if (!freed && all_wait(0, count, Wait::kBlock)) {
      for (Thread& thread : threads_) thread.wait = Wait::kNothing;
      freed = true;
    }
    if (!freed) std::abort();  // some wait at a shuffle and others at a barrier: a deadlock on a GPU
    return true;
  }

  std::vector<Thread> threads_;
  std::vector<float> shared_;
  ucontext_t scheduler_;
  const std::function<void()>* body_ = nullptr;
  int current_ = 0;
  int64_t index_ = 0;
  int column_block_ = 0;
  bool backwards_ = false;
};

inline Block& this_block() { return *Block::current_block(); }

inline int thread() { return this_block().thread(); }
inline int threads() { return this_block().num_threads(); }
inline int lane() { return this_block().thread() & 31; }
inline int warp() { return this_block().thread() >> 5; }
inline int warps() { return this_block().num_threads() >> 5; }
inline int64_t block() { return this_block().index(); }
inline int column_block() { return this_block().column_block(); }
inline void sync_block() { this_block().sync_block(); }
inline float* shared_floats() { return this_block().shared(); }
inline float exponential(float x) { return std::exp(x); }
inline float logarithm(float x) { return std::log(x); }

template <int N>
inline void from_lane_xor(float (&values)[N], int mask) {
  this_block().exchange(values, N, mask);
}

struct Bfloat16 {
  uint16_t bits;
};

inline float to_float(Bfloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline Bfloat16 to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};  // to nearest, ties to even
}

}  // namespace jhgnn::cuda

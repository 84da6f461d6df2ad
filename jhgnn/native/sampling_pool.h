// A fixed set of threads that share the tasks of one parallel loop at a time; the caller works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jhgnn::sampling {

class SamplingPool {
 public:
  explicit SamplingPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }

  ~SamplingPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  SamplingPool(const SamplingPool&) = delete;
  SamplingPool& operator=(const SamplingPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, thread) once for every task below num_tasks and waits for all of them. `body` must not throw.
  void run(int num_tasks, const std::function<void(int, int)>& body) {
    if (num_tasks <= 1 || workers_.empty()) {
      for (int task = 0; task < num_tasks; ++task) body(task, 0);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      body_ = &body;
      num_tasks_ = num_tasks;
      next_.store(0, std::memory_order_relaxed);
      busy_ = static_cast<int>(workers_.size());
      ++round_;
    }
    wake_.notify_all();
    drain(0);
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void drain(int thread) {
    for (int task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < num_tasks_;) (*body_)(task, thread);
  }

  void work(int thread) {
    uint64_t seen = 0;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || round_ != seen; });
        if (stopping_) return;
        seen = round_;
      }
      drain(thread);
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int, int)>* body_ = nullptr;
  std::atomic<int> next_{0};
  int num_tasks_ = 0;
  int busy_ = 0;
  uint64_t round_ = 0;
  bool stopping_ = false;
};

}  // namespace jhgnn::sampling

// A fixed set of worker threads that share index ranges; the caller works too.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace halfbyte {

// Work items are claimed in order by whichever thread is free, so an item must not depend on which thread
// runs it: results are then the same for any thread count. Not reentrant: a body must not call parallel_for
// on its own pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // total, the caller included; at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) for every i in [0, items). The first exception stops the handing out of items and is
  // rethrown here.
  void parallel_for(std::int64_t items, const std::function<void(std::int64_t)>& body);

 private:
  void work();
  void run_items();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(std::int64_t)>* body_ = nullptr;
  std::int64_t items_ = 0, next_ = 0;
  std::uint64_t round_ = 0;
  int busy_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

// Cores this process may run on (its affinity mask), at least 1.
int available_cores();

}  // namespace halfbyte

#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "core/fail.h"

namespace halfbyte {
namespace {

TEST(ThreadPool, VisitsEveryItemOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t items : {0, 1, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(items));
      pool.parallel_for(items, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      for (auto& count : visits) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, RethrowsAndGoesOn) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.parallel_for(100,
                                 [](std::int64_t i) {
                                   if (i == 41) fail_input("item {}", i);
                                 }),
               Error);
  std::atomic<int> visits = 0;
  pool.parallel_for(10, [&](std::int64_t) { ++visits; });
  EXPECT_EQ(visits, 10);
}

}  // namespace
}  // namespace halfbyte

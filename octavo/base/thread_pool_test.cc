#include "octavo/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <array>

#include "octavo/base/error.h"
#include "octavo/base/thread_testing_internal.h"

namespace octavo {
namespace {

// Sets a variable for one test; empty means unset, as the library reads it.
class ScopedThreads {
 public:
  explicit ScopedThreads(const char* value) { setenv("OCTAVO_THREADS", value, 1); }
  ~ScopedThreads() { unsetenv("OCTAVO_THREADS"); }
};

class ScopedAffinity {
 public:
  ScopedAffinity() { sched_getaffinity(0, sizeof(before_), &before_); }
  ~ScopedAffinity() { restore(); }
  void restore() { sched_setaffinity(0, sizeof(before_), &before_); }
  void pin_to_first() {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &before_)) continue;
      CPU_SET(core, &one);
      break;
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  [[nodiscard]] int cores() const { return CPU_COUNT(&before_); }

 private:
  cpu_set_t before_{};
};

TEST(ThreadPool, RunsEveryPartOnce) {
  for (const int parts : {0, 1, 2, 3, 7, 64, 1000}) {
    for (const int threads : {-1, 0, 1, 2, 3, 8}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts));
      parallel_for(parts, threads, [&](int part) { ++runs[static_cast<std::size_t>(part)]; });
      for (const std::atomic<int>& count : runs)
        ASSERT_EQ(count, 1) << parts << " parts, " << threads << " threads";
    }
  }
  parallel_for(-5, 0, [](int) { FAIL() << "negative counts have no parts"; });
}

TEST(ThreadPool, OneThreadRunsThePartsInOrderOnTheCaller) {
  std::vector<int> order;
  parallel_for(9, 1, [&](int part) { order.push_back(part); });
  std::vector<int> expected(9);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ThreadPool, KeepsToTheNumberOfThreadsAskedFor) {
  parallel_for(8, 8, [](int) {});  // so that there are more workers than the calls below may use
  for (const int threads : {2, 3}) {
    std::mutex mutex;
    std::set<std::thread::id> seen;
    Meeting meeting(threads);
    parallel_for(100, threads, [&](int part) {
      EXPECT_TRUE(part >= threads || meeting.attend());
      std::this_thread::sleep_for(
          std::chrono::microseconds(200));  // time for others to come, if they may
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(threads));
    EXPECT_TRUE(seen.contains(std::this_thread::get_id()));
  }
}

// A thread that does the same work again finds what belongs to it in its caches.
TEST(ThreadPool, ACallerBeginsWithTheSameParts) {
  const std::thread::id caller = std::this_thread::get_id();
  for (int call = 0; call < 20; ++call) {
    Meeting meeting(2);
    std::array<std::thread::id, 8> by{};
    parallel_for(8, 2, [&](int part) {
      EXPECT_TRUE((part != 0 && part != 4) || meeting.attend());
      by[static_cast<std::size_t>(part)] = std::this_thread::get_id();
    });
    EXPECT_EQ(by[0], caller);
    EXPECT_NE(by[4], caller);
  }
}

// One part that takes as long as all the others together holds up one thread only.
TEST(ThreadPool, HandsOutPartsAsThreadsComeFree) {
  constexpr int kParts = 50;
  std::atomic<int> done{0};
  parallel_for(kParts, 2, [&](int part) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (part == 0 && done < kParts - 1 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::yield();
    EXPECT_TRUE(part != 0 || done == kParts - 1);
    ++done;
  });
}

TEST(ThreadPool, CallsFromAPartRunInLine) {
  for (const int threads : {1, 4}) {
    std::atomic<int> total{0};
    parallel_for(8, threads, [&](int) {
      const std::thread::id outer = std::this_thread::get_id();
      parallel_for(16, 4, [&](int) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        ++total;
      });
    });
    EXPECT_EQ(total, 8 * 16);
  }
  EXPECT_TRUE(two_at_once());  // and afterwards the pool is used again
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  constexpr int kCallers = 6, kCalls = 300, kParts = 17;
  std::atomic<std::int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < kCalls; ++call) {
        int own[kParts] = {};
        parallel_for(kParts, 2 + caller % 3, [&](int part) { own[part] = part + call; });
        for (int part = 0; part < kParts; ++part) total += own[part] - call;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, std::int64_t{kCallers} * kCalls * (kParts * (kParts - 1) / 2));
}

TEST(ThreadPool, CountsTheCoresItMayUse) {
  ScopedAffinity affinity;
  const ScopedThreads not_given("");
  EXPECT_EQ(available_threads(), affinity.cores());
  affinity.pin_to_first();
  EXPECT_EQ(available_threads(), 1);
  {
    const ScopedThreads variable("3");
    EXPECT_EQ(available_threads(), 3);
    Meeting meeting(3);
    parallel_for(3, 0, [&](int) { EXPECT_TRUE(meeting.attend()); });
  }
  const ScopedThreads variable("many");
  EXPECT_THROW((void)available_threads(), Error);
}

// Workers started by a pinned thread must not stay on its core.
TEST(ThreadPool, WorkersFollowTheCallersCores) {
  ScopedAffinity affinity;
  const auto cores_of_parts = [] {
    Meeting meeting(2);
    std::atomic<int> total{0};
    parallel_for(2, 2, [&](int) {
      EXPECT_TRUE(meeting.attend());
      cpu_set_t cores;
      sched_getaffinity(0, sizeof(cores), &cores);
      total += CPU_COUNT(&cores);
    });
    return total.load();
  };
  affinity.pin_to_first();
  EXPECT_EQ(cores_of_parts(), 2);
  affinity.restore();
  EXPECT_EQ(cores_of_parts(), 2 * affinity.cores());
}

TEST(ThreadPool, WorkersLeaveSignalsToTheProgram) {
  const pthread_t caller = pthread_self();
  Meeting meeting(2);
  parallel_for(2, 2, [&](int) {
    EXPECT_TRUE(meeting.attend());
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGINT), pthread_equal(caller, pthread_self()) ? 0 : 1);
  });
}

// A helper does not stay on the core of its caller, where both would run at half speed.
TEST(ThreadPool, HelpersLeaveTheCallersCore) {
  cpu_set_t cores;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  if (CPU_COUNT(&cores) < 2) GTEST_SKIP() << "there is one core only";
  // The scheduler decides which thread moves when, so one attempt on two cores is enough; helpers
  // that are never moved stay on one core for seconds on a busy machine.
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::atomic<int> present{0};
    std::array<int, 2> core{-1, -1};
    parallel_for(2, 2, [&](int part) {
      ++present;
      for (int i = 0; i < 1000000 && present < 2; ++i) sched_yield();
      core[static_cast<std::size_t>(part)] = sched_getcpu();
    });
    if (core[0] != core[1]) return;
  }
  ADD_FAILURE() << "caller and helper were always on one core";
}

}  // namespace
}  // namespace octavo

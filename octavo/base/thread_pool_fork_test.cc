// The pool after fork and at exit. Children end by _exit and under an alarm: a deadlock is then a
// failed test and not a test run that never ends.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/thread_pool.h"
#include "octavo/base/thread_testing_internal.h"

// ThreadSanitizer refuses threads in the child of a threaded process unless told; we test just
// that.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace octavo {
namespace {

constexpr unsigned kChildSeconds = 60;

template <typename Body>
int exit_status_of_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kChildSeconds);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// qemu-user aborts when the child of a threaded process starts a thread. Probed without the pool,
// so that a bug of the pool cannot look like one of the system; detached from the start, because
// ThreadSanitizer takes a joinable thread of the child for one of the parent's.
bool system_starts_threads_after_fork() {
  return exit_status_of_child([] {
           Meeting meeting(2);
           const auto attend = [](void* with) -> void* {
             static_cast<Meeting*>(with)->attend();
             return nullptr;
           };
           pthread_attr_t detached;
           pthread_attr_init(&detached);
           pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
           pthread_t thread{};
           return pthread_create(&thread, &detached, attend, &meeting) == 0 && meeting.attend();
         }) == 0;
}

class ThreadPoolFork : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(two_at_once());
    static const bool possible = system_starts_threads_after_fork();
    if (!possible)
      GTEST_SKIP() << "this system cannot start threads in the child of a threaded process";
  }
};

TEST_F(ThreadPoolFork, ChildHasThreadsOfItsOwn) {
  EXPECT_EQ(exit_status_of_child([] { return two_at_once(); }), 0);
  EXPECT_TRUE(two_at_once());
}

TEST_F(ThreadPoolFork, GrandchildHasToo) {
  EXPECT_EQ(exit_status_of_child([] {
              return two_at_once() && exit_status_of_child([] { return two_at_once(); }) == 0 &&
                     two_at_once();
            }),
            0);
}

// Whatever the pool's locks and counters were doing at that moment, the child starts afresh.
TEST_F(ThreadPoolFork, AtAnyMomentOfOtherThreadsCalls) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&] {
      while (!stop) parallel_for(6, 3, [](int) {});
    });
  }
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(exit_status_of_child([] { return two_at_once(); }), 0) << "fork " << i;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

TEST_F(ThreadPoolFork, FromInsideAPart) {
  Meeting meeting(2);
  parallel_for(2, 2, [&](int part) {
    EXPECT_TRUE(meeting.attend());
    if (part != 0) return;
    EXPECT_EQ(exit_status_of_child([] {
                std::atomic<int> runs{0};
                parallel_for(5, 2, [&](int) { ++runs; });
                return runs == 5;
              }),
              0);
  });
}

// By arithmetic: on x86 std::fegetround asks the x87 unit, which floats do not pass through.
bool rounds_upward() {
  const volatile float one = 1.0F, tiny = 0x1p-30F;
  return one + tiny > 1.0F;
}

// A new pool, because only the thread that starts a worker could pass its environment on.
TEST_F(ThreadPoolFork, WorkersDoNotInheritARoundingDirection) {
  EXPECT_EQ(exit_status_of_child([] {
              std::fesetround(FE_UPWARD);
              const pthread_t caller = pthread_self();
              Meeting meeting(2);
              std::atomic<int> right{0};
              parallel_for(2, 2, [&](int) {
                const bool is_caller = pthread_equal(caller, pthread_self()) != 0;
                right += meeting.attend() && rounds_upward() == is_caller ? 1 : 0;
              });
              return right == 2;
            }),
            0);
}

// exit() runs handlers and static destructors while workers exist; some of those may call us.
TEST_F(ThreadPoolFork, ExitNeitherWaitsNorBreaks) {
  EXPECT_EQ(exit_status_of_child([] {
              if (!two_at_once()) return false;
              std::atexit([] {
                if (!two_at_once()) _exit(2);
              });
              std::exit(0);
            }),
            0);
}

TEST_F(ThreadPoolFork, ExitFromAWorkerEndsTheProcess) {
  EXPECT_EQ(exit_status_of_child([] {
              const pthread_t caller = pthread_self();
              Meeting meeting(2);
              parallel_for(2, 2, [&](int) {
                meeting.attend();
                if (!pthread_equal(caller, pthread_self())) std::_Exit(0);
              });
              return false;
            }),
            0);
}

}  // namespace
}  // namespace octavo

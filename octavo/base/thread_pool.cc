// A pool of detached workers that share a list of jobs.
//
// A caller puts its job (on its own stack) on the list, works on it like any worker, takes it off
// the list, and waits until the last helper has released it. Threads take parts one at a time
// (shared_ranges.h): the caller and each worker begin with the same share in every job of as many
// threads and parts, and help others afterwards. Several callers are several jobs.
//
// Lifetime. The pool is never destroyed: static destructors may still convert arrays, and exit()
// must not wait for a worker. After fork the child has the memory but not the threads, and a mutex
// may be held by a thread that no longer exists; so the child abandons the whole pool, locks
// included, and makes a new one on its next call. Nothing has to be locked around fork.
//
// A child cannot return from the part it was forked in: the other threads of the job are gone. It
// may do anything else there: exec, _exit, or parallel_for, which runs in line.
#include "octavo/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "octavo/base/env.h"
#include "octavo/base/fp_env.h"
#include "octavo/base/shared_ranges.h"

namespace octavo {
namespace {

// Spins before a worker sleeps: some microseconds, about the cost of a wake-up.
constexpr int kSpins = 1000;

inline void relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // unlike `yield`, which most cores ignore, this does pause
#elif defined(__x86_64__)
  asm volatile("pause" ::: "memory");
#endif
}

// All workers want the pool's mutex at once when a job comes, for some nanoseconds each: one that
// fails to get it tries again instead of sleeping, from which the kernel takes microseconds to wake
// it, one after another. A thread that holds it longer, to start or wake threads, is waited for
// asleep.
void lock_soon(std::unique_lock<std::mutex>& lock) {
  for (int i = 0; i < kSpins; ++i) {
    if (lock.try_lock()) return;
    relax();
  }
  lock.lock();
}

// Set while this thread runs a part: calls made from there run in line.
thread_local bool inside_part = false;

struct Job {
  void (*body)(void* context, int part);
  void* context;
  SharedRanges parts;
  int places = 0;                  // helpers that may still join; under the pool's mutex
  std::uint64_t numbers = 0;       // bits: which of the first 64 numbers are left for them
  int caller_core = -1;            // where the caller was
  std::atomic<bool> taken{false};  // are all parts?
  std::atomic<int> helpers{0};     // at work on it now; changed under the pool's mutex
  std::condition_variable all_left{};
  Job* older = nullptr;

  [[nodiscard]] bool wants_help() const {
    return places > 0 && !taken.load(std::memory_order_relaxed);
  }

  // For this many helpers; 0 is the caller's number.
  void offer_places(int helpers_wanted) {
    places = helpers_wanted;
    numbers = (~std::uint64_t{0} >> (63 - std::min(places, 63))) & ~std::uint64_t{1};
  }
  // The number of a helper that joins: that of the worker, or another while there are any, so that
  // two threads do not begin with the same parts.
  int take_place(int worker) {
    --places;
    const bool own = worker < 64 && (numbers >> worker & 1) != 0;
    const int number = own || numbers == 0 ? worker : std::countr_zero(numbers);
    if (number < 64) numbers &= ~(std::uint64_t{1} << number);
    return number;
  }

  // noexcept: a part that throws would unwind a frame that helpers still use; better to end here.
  void work(int thread) noexcept {
    inside_part = true;
    for (std::int64_t part = parts.take(thread); part >= 0; part = parts.take(thread))
      body(context, static_cast<int>(part));
    inside_part = false;
    taken.store(true, std::memory_order_relaxed);
  }
};

void run_in_line(int parts, void (*body)(void*, int), void* context) noexcept {
  const bool before = std::exchange(inside_part, true);
  for (int part = 0; part < parts; ++part) body(context, part);
  inside_part = before;
}

class Pool {
 public:
  // Returns when every part is done.
  void run(Job& job, int helpers) {
    {
      std::unique_lock lock(mutex_, std::defer_lock);
      lock_soon(lock);
      follow_affinity();
      while (static_cast<int>(workers_.size()) < helpers && start_worker()) {
      }
      job.offer_places(std::min(helpers, static_cast<int>(workers_.size())));
      job.caller_core = sched_getcpu();
      job.older = jobs_;
      jobs_ = &job;
      news_.fetch_add(1, std::memory_order_relaxed);
      for (int i = 0; i < std::min(job.places, sleepers_); ++i) work_.notify_one();
    }
    job.work(0);
    {
      std::unique_lock lock(mutex_, std::defer_lock);
      lock_soon(lock);
      Job** link = &jobs_;
      while (*link != &job) link = &(*link)->older;
      *link = job.older;
    }
    for (int i = 0; i < kSpins && job.helpers.load(std::memory_order_relaxed) > 0; ++i) relax();
    // Under the mutex even when the count is zero: the last helper touches the job until it
    // unlocks.
    std::unique_lock lock(mutex_, std::defer_lock);
    lock_soon(lock);
    job.all_left.wait(lock, [&job] { return job.helpers.load(std::memory_order_relaxed) == 0; });
  }

  Pool* forgotten = nullptr;  // the parent's pool, kept reachable for leak checkers

 private:
  static void* worker_main(void* self) {
    pthread_setname_np(pthread_self(), "octavo");
    // A thread inherits the floating-point environment of the thread that started it.
    const FpEnvGuard environment;
    static_cast<Pool*>(self)->serve();
    return nullptr;
  }

  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    const int worker = ++serving_;  // from 1 on
    while (true) {
      Job* job = jobs_;
      while (job != nullptr && !job->wants_help()) job = job->older;
      if (job == nullptr) {
        wait_for_news(lock);
        continue;
      }
      const int thread = job->take_place(worker);
      job->helpers.fetch_add(1, std::memory_order_relaxed);
      const cpu_set_t cores = cores_;
      lock.unlock();
      leave_core(job->caller_core, cores);
      job->work(thread);
      lock_soon(lock);
      if (job->helpers.fetch_sub(1, std::memory_order_relaxed) == 1) job->all_left.notify_one();
    }
  }

  // The scheduler may place a woken or new thread on the core of the thread that woke it, and on a
  // busy machine leave it there for long: both then run at half speed. Removing that core from the
  // affinity mask for a moment moves the thread at once.
  static void leave_core(int core, const cpu_set_t& cores) {
    if (core < 0 || core >= CPU_SETSIZE || sched_getcpu() != core || CPU_COUNT(&cores) < 2) return;
    cpu_set_t others = cores;
    CPU_CLR(core, &others);
    if (sched_setaffinity(0, sizeof(others), &others) == 0)
      sched_setaffinity(0, sizeof(cores), &cores);
  }

  void wait_for_news(std::unique_lock<std::mutex>& lock) {
    const std::uint32_t seen = news_.load(std::memory_order_relaxed);
    lock.unlock();
    for (int i = 0; i < kSpins && news_.load(std::memory_order_relaxed) == seen; ++i) relax();
    lock_soon(lock);
    ++sleepers_;
    while (news_.load(std::memory_order_relaxed) == seen) work_.wait(lock);
    --sleepers_;
  }

  // False when the system refuses another thread; the job then has fewer helpers.
  bool start_worker() {
    // Signals are for the program's own threads (Python wants them on its main thread).
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread{};
    const bool started = pthread_create(&thread, &attributes, &worker_main, this) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started) workers_.push_back(thread);
    return started;
  }

  // Workers inherit the cores of the thread that started them. If that one was pinned, or the
  // process has been moved since, they would crowd the wrong cores for ever.
  void follow_affinity() {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return;
    if (!workers_.empty() && !CPU_EQUAL(&cores, &cores_)) {
      for (const pthread_t worker : workers_) pthread_setaffinity_np(worker, sizeof(cores), &cores);
    }
    cores_ = cores;
  }

  std::mutex mutex_;
  std::condition_variable work_;
  std::atomic<std::uint32_t> news_{0};  // counts jobs; changed under mutex_, spun on without it
  int sleepers_ = 0;
  int serving_ = 0;
  Job* jobs_ = nullptr;
  std::vector<pthread_t> workers_;
  cpu_set_t cores_{};
};

constinit std::atomic<Pool*> the_pool{nullptr};
constinit Pool* forgotten_pools = nullptr;

// No lock that a fork could leave held: the thread that loses the race deletes its pool.
Pool& pool() {
  Pool* found = the_pool.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  Pool* const made = new Pool;
  if (the_pool.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

void forget_pool_in_child() {
  Pool* const parents = the_pool.exchange(nullptr, std::memory_order_relaxed);
  if (parents == nullptr) return;
  parents->forgotten = forgotten_pools;
  forgotten_pools = parents;
}

// At load time, before there can be a pool, so that no fork is missed.
[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, &forget_pool_in_child);

}  // namespace

int available_threads() {
  if (const std::optional<int> wanted = env_threads()) return *wanted;
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return static_cast<int>(
      std::clamp<long>(sysconf(_SC_NPROCESSORS_ONLN), 1, kMaxThreads));  // over 1024 cores
}

void parallel_for(int parts, int threads, void (*body)(void* context, int part), void* context) {
  if (parts <= 0) return;
  if (parts > 1 && threads != 1 && !inside_part) {
    const int wanted = std::min({threads > 0 ? threads : available_threads(), parts, kMaxThreads});
    if (wanted > 1) {
      Job job{.body = body, .context = context, .parts{parts, wanted}};
      pool().run(job, wanted - 1);
      return;
    }
  }
  run_in_line(parts, body, context);
}

}  // namespace octavo

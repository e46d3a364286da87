#include "octavo/base/product_threads.h"

#include <sched.h>

#include <cstdlib>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/base/system_tree_testing_internal.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

std::vector<int> all_of(int cpus) {
  std::vector<int> all(static_cast<std::size_t>(cpus));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// OCTAVO_THREADS for the length of a test; empty: not given.
class ScopedThreads {
 public:
  explicit ScopedThreads(const char* value) {
    if (const char* before = std::getenv("OCTAVO_THREADS")) before_ = before;
    setenv("OCTAVO_THREADS", value, 1);
  }
  ~ScopedThreads() { setenv("OCTAVO_THREADS", before_.c_str(), 1); }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
  std::string before_;
};

TEST(ProductThreads, SiblingsAreLeftIdle) {
  const SystemTree tree;
  write_two_sockets(tree);
  const CpuTopology topology = read_cpu_topology(tree.root());
  const ProductThreads whole = choose_product_threads(topology, all_of(112), std::nullopt);
  EXPECT_EQ(whole.threads, 56);
  EXPECT_EQ(whole.reason, "one per core; its other threads (SMT) are left idle");
  const ProductThreads one_node = choose_product_threads(topology, all_of(28), std::nullopt);
  EXPECT_EQ(one_node.threads, 28);
  EXPECT_EQ(one_node.reason, "one per core");
  const std::vector<int> container = {5, 33, 61};
  EXPECT_EQ(choose_product_threads(topology, container, std::nullopt).threads, 2);
}

TEST(ProductThreads, WithoutSmtAllCpusAreUsed) {
  const CpuTopology unknown;
  EXPECT_EQ(choose_product_threads(unknown, all_of(16), std::nullopt).threads, 16);
  EXPECT_EQ(choose_product_threads(unknown, all_of(kMostCpus), std::nullopt).threads, kMaxThreads);
  EXPECT_EQ(choose_product_threads(unknown, {}, std::nullopt).threads, 1);
}

TEST(ProductThreads, AQuotaIsRoundedUp) {
  const SystemTree tree;
  write_two_sockets(tree);
  const CpuTopology topology = read_cpu_topology(tree.root());
  const auto with = [&](double quota) {
    return choose_product_threads(topology, all_of(112), quota);
  };
  EXPECT_EQ(with(2.5).threads, 3);
  EXPECT_EQ(with(2.5).reason, "the CPU quota is 2.5 of 56 cores");
  EXPECT_EQ(with(0.1).threads, 1);
  EXPECT_EQ(with(55.5).reason, "one per core; its other threads (SMT) are left idle");
  EXPECT_EQ(with(80).threads, 56);
  EXPECT_EQ(with(1e300).threads, 56);
}

TEST(ProductThreads, TheEnvironmentComesFirst) {
  const ScopedThreads given("3");
  EXPECT_EQ(product_threads(), 3);
  EXPECT_EQ(product_threads_with_reason().threads, 3);
  EXPECT_EQ(product_threads_with_reason().reason, "OCTAVO_THREADS says so");
  const ScopedThreads wrong("many");
  EXPECT_THROW((void)product_threads(), Error);
}

TEST(ProductThreads, FollowTheAffinityMask) {
  const ScopedThreads not_given("");
  EXPECT_EQ(product_threads(), product_threads_with_reason().threads);
  EXPECT_LE(product_threads(), available_threads());
  cpu_set_t before, first;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&first);
  CPU_SET(static_cast<std::size_t>(allowed_cpus().front()), &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof(first), &first), 0);
  EXPECT_EQ(product_threads(), 1);
  EXPECT_EQ(allowed_cpus().size(), 1u);
  sched_setaffinity(0, sizeof(before), &before);
}

TEST(ProductThreads, AreAskedForByManyAtOnce) {
  std::vector<std::thread> callers;
  std::vector<int> found(8);
  for (int& one : found)
    callers.emplace_back([&one] { one = product_threads_with_reason().threads; });
  for (std::thread& caller : callers) caller.join();
  for (const int one : found) EXPECT_EQ(one, product_threads());
}

}  // namespace
}  // namespace octavo

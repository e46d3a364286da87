#include "octavo/base/cpu_quota.h"

#include <gtest/gtest.h>

#include "octavo/base/system_tree_testing_internal.h"

namespace octavo {
namespace {

TEST(CpuQuota, OfTheGroup) {
  const SystemTree tree;
  tree.write("proc/self/cgroup", "0::/a\n");
  EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt);
  tree.write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt);
  tree.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(read_cpu_quota(tree.root()), 2.5);
}

TEST(CpuQuota, TheSmallestOfTheGroupsAboveCounts) {
  const SystemTree tree;
  tree.write("proc/self/cgroup", "0::/pod/box/task\n");
  tree.write("sys/fs/cgroup/pod/box/task/cpu.max", "max 100000\n");
  tree.write("sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n");
  tree.write("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(read_cpu_quota(tree.root()), 1.5);
}

// In a container the path is the host's, or leads out; its own group is at the top.
TEST(CpuQuota, WhereTheGroupIsNotVisible) {
  for (const char* path : {"0::/host/only", "0::/../../other", "0::/", "0::relative"}) {
    const SystemTree tree;
    tree.write("proc/self/cgroup", path);
    tree.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
    EXPECT_EQ(read_cpu_quota(tree.root()), 3.0) << path;
  }
  const SystemTree without;
  without.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
  EXPECT_EQ(read_cpu_quota(without.root()), 3.0);
}

TEST(CpuQuota, OfTheFirstVersion) {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    const SystemTree tree;
    const std::string folder = text("sys/fs/cgroup/", mount, "/box/");
    tree.write("proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n0::/\n");
    tree.write(folder + "cpu.cfs_period_us", "50000\n");
    tree.write(folder + "cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt);
    tree.write(folder + "cpu.cfs_quota_us", "75000\n");
    EXPECT_EQ(read_cpu_quota(tree.root()), 1.5);
  }
  const SystemTree other;  // a name that only begins so
  other.write("proc/self/cgroup", "3:cpuset:/\n");
  other.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  other.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(read_cpu_quota(other.root()), std::nullopt);
}

TEST(CpuQuota, WhatIsMalformedIsNone) {
  for (const char* wrong : {"", "100000", "0 100000", "100000 0", "-5 100000", "1e5 100000",
                            "100000 100000 x", "99999999999999999999 1", "max", "\xFF\xFE"}) {
    const SystemTree tree;
    tree.write("proc/self/cgroup", "0::/\n");
    tree.write("sys/fs/cgroup/cpu.max", wrong);
    EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt) << wrong;
  }
  for (const std::string& wrong :
       {std::string("no colons"), std::string(":::::"), std::string("\n\n\n"),
        "0::" + std::string(10000, '/'), "0::/" + std::string(1 << 20, 'x')}) {
    const SystemTree tree;
    tree.write("proc/self/cgroup", wrong);
    EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt);
  }
  std::string deep = "0::";
  for (int i = 0; i < 3000; ++i) deep += "/x";
  const SystemTree tree;
  tree.write("proc/self/cgroup", deep);
  EXPECT_EQ(read_cpu_quota(tree.root()), std::nullopt);
}

}  // namespace
}  // namespace octavo

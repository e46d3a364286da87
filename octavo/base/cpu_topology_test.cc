#include "octavo/base/cpu_topology.h"

#include <sys/stat.h>

#include <gtest/gtest.h>

#include "octavo/base/system_file.h"
#include "octavo/base/system_tree_testing_internal.h"

namespace octavo {
namespace {

using Numbers = std::vector<int>;

std::string shown_counts(const CpuCounts& counts) {
  return text(counts.sockets, " sockets, ", counts.nodes, " nodes, ", counts.cores, " cores, ",
              counts.cpus, " CPUs");
}
std::string counts_of(const SystemTree& tree) {
  return shown_counts(count_cpus(read_cpu_topology(tree.root())));
}
std::string counts_of(const SystemTree& tree, const Numbers& allowed) {
  return shown_counts(count_cpus(read_cpu_topology(tree.root()), allowed));
}

TEST(CpuTopology, OneSocketWithoutSmt) {
  const SystemTree tree;
  tree.write_system("cpu/online", "0-15");
  tree.write_system("node/online", "0");
  tree.write_system("node/node0/cpulist", "0-15");
  for (int cpu = 0; cpu < 16; ++cpu) {
    tree.write_cpu(cpu, "core_cpus_list", text(cpu));
    tree.write_cpu(cpu, "thread_siblings_list", text(cpu));
    tree.write_cpu(cpu, "physical_package_id", "0");
    tree.write_cpu(cpu, "core_id", text(cpu));
  }
  EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 16 cores, 16 CPUs");
}

TEST(CpuTopology, TwoSocketsWithSmt) {
  const SystemTree tree;
  write_two_sockets(tree);
  EXPECT_EQ(counts_of(tree), "2 sockets, 2 nodes, 56 cores, 112 CPUs");
  const LogicalCpu sibling = read_cpu_topology(tree.root()).cpus[56 + 30];
  EXPECT_EQ(sibling.cpu, 86);
  EXPECT_EQ(sibling.core, 30);
  EXPECT_EQ(sibling.socket, 1);
  EXPECT_EQ(sibling.node, 1);
}

TEST(CpuTopology, AContainerHasAPartOfTheMachine) {
  const SystemTree tree;
  write_two_sockets(tree);
  EXPECT_EQ(counts_of(tree, {5, 33, 61}), "2 sockets, 2 nodes, 2 cores, 3 CPUs");  // 5 + 56 is 61
  EXPECT_EQ(counts_of(tree, {5, 6, 7}), "1 sockets, 1 nodes, 3 cores, 3 CPUs");
  EXPECT_EQ(counts_of(tree, {}), "0 sockets, 0 nodes, 0 cores, 0 CPUs");
}

TEST(CpuTopology, CpusThatAreOfflineLeaveHoles) {
  const SystemTree tree;
  tree.write_system("cpu/online", "0,2-3,7");
  for (const auto& [cpu, siblings] :
       {std::pair{0, "0"}, std::pair{2, "2-3"}, std::pair{3, "2-3"}, std::pair{7, "7"}})
    tree.write_cpu(cpu, "core_cpus_list", siblings);
  tree.write_cpu(1, "core_cpus_list", "0-1");  // left behind, and not online
  EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 3 cores, 4 CPUs");
  EXPECT_EQ(counts_of(tree, {0, 1, 2, 3}), "1 sockets, 1 nodes, 3 cores, 4 CPUs");
}

// Numbers of cores begin anew in each cluster; taken alone they would make siblings of CPU 0 and 4.
TEST(CpuTopology, ArmWithClustersAndWithoutSmtFiles) {
  const SystemTree tree;
  tree.write_system("cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    tree.write_cpu(cpu, "physical_package_id", "0");
    tree.write_cpu(cpu, "cluster_id", text(cpu / 4));
    tree.write_cpu(cpu, "core_id", text(cpu % 4));
  }
  EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 8 cores, 8 CPUs");
}

TEST(CpuTopology, IdsTellSiblingsWhereNoListDoes) {
  const SystemTree tree;
  tree.write_system("cpu/online", "0-7");
  for (int cpu = 0; cpu < 8; ++cpu) {
    tree.write_cpu(cpu, "physical_package_id", text(cpu / 2 % 2));
    tree.write_cpu(cpu, "core_id", text(cpu % 2));
  }
  EXPECT_EQ(counts_of(tree), "2 sockets, 1 nodes, 4 cores, 8 CPUs");
  for (int cpu = 0; cpu < 8; ++cpu) tree.write_cpu(cpu, "core_id", "-1");  // unknown
  EXPECT_EQ(counts_of(tree), "2 sockets, 1 nodes, 8 cores, 8 CPUs");
}

TEST(CpuTopology, WithoutFilesEveryCpuIsACore) {
  const SystemTree tree;
  EXPECT_EQ(counts_of(tree), "0 sockets, 0 nodes, 0 cores, 0 CPUs");
  EXPECT_EQ(counts_of(tree, {0, 1, 9}), "1 sockets, 1 nodes, 3 cores, 3 CPUs");
  tree.write_system("cpu/online", "0-2");
  EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 3 cores, 3 CPUs");
}

TEST(CpuTopology, WhatIsMalformedIsNotBelieved) {
  for (const std::string& wrong :
       {std::string("zero"), std::string("0-"), std::string("0-3-5"), std::string("4294967296"),
        std::string("-1"), std::string("0;1"), std::string("\0\xFF\x80", 3), std::string(),
        std::string(1 << 20, '0'), text("0-", kMostCpus)}) {
    const SystemTree tree;
    tree.write_system("cpu/online", "0-3");
    tree.write_system("node/online", wrong);
    tree.write_system("node/node0/cpulist", wrong);
    for (int cpu = 0; cpu < 4; ++cpu)
      for (const char* name : {"core_cpus_list", "thread_siblings_list", "physical_package_id",
                               "core_id", "cluster_id"})
        tree.write_cpu(cpu, name, wrong);
    EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 4 cores, 4 CPUs") << shown(wrong);
    tree.write_system("cpu/online", wrong);
    EXPECT_EQ(counts_of(tree, {0, 1}), "1 sockets, 1 nodes, 2 cores, 2 CPUs") << shown(wrong);
  }
}

TEST(CpuTopology, SiblingsThatDoNotNameTheCpuAreNotBelieved) {
  const SystemTree tree;
  tree.write_system("cpu/online", "0-3");
  for (int cpu = 0; cpu < 4; ++cpu) tree.write_cpu(cpu, "core_cpus_list", "0");
  EXPECT_EQ(counts_of(tree), "1 sockets, 1 nodes, 4 cores, 4 CPUs");
}

TEST(CpuTopology, ListsAsLinuxPrintsThem) {
  EXPECT_EQ(parse_cpu_list("0"), (Numbers{0}));
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11"), (Numbers{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("3,1-2,2"), (Numbers{1, 2, 3}));
  EXPECT_EQ(parse_cpu_list("0-8191").size(), 8192u);
  for (const char* wrong : {"", "0-8192", "8192", "3-1", "1,", ",1", "1,,2", "1 2", "-1", "0--1",
                            "+1", "1-", "0x1", "1\n2"})
    EXPECT_EQ(parse_cpu_list(wrong), Numbers{}) << wrong;
}

TEST(CpuTopology, FilesThatCannotBeReadAreNotThere) {
  const SystemTree tree;
  tree.write("long", std::string(kSystemFileBytes + 1, '1'));
  tree.write("longest", std::string(kSystemFileBytes, '1'));
  tree.write("text", "12 \n\n");
  tree.write("folder/file", "");
  ASSERT_EQ(mkfifo(tree.path("pipe").c_str(), 0600), 0);  // a reader would wait for a writer
  const auto read = [&](const char* name) { return read_system_file(tree.root() + "/" + name); };
  EXPECT_EQ(read("text"), "12");
  EXPECT_EQ(read("folder/file"), "");
  EXPECT_EQ(read("longest")->size(), kSystemFileBytes);
  for (const char* name : {"long", "folder", "pipe", "absent"})
    EXPECT_EQ(read(name), std::nullopt) << name;
}

TEST(CpuTopology, OfThisMachine) {
  const Numbers allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  const CpuCounts usable = count_cpus(cpu_topology(), allowed);
  EXPECT_GE(usable.cores, 1);
  EXPECT_LE(usable.cores, usable.cpus);
  EXPECT_EQ(&cpu_topology(), &cpu_topology());
}

}  // namespace
}  // namespace octavo

// Test helper: the files of /sys and /proc of another machine, in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <string>

#include "octavo/base/error.h"

namespace octavo {

class SystemTree {
 public:
  SystemTree() : root_(::testing::TempDir() + "/octavo_system_XXXXXX") {
    check(mkdtemp(root_.data()) != nullptr, ErrorCode::io, "test", "no temporary folder");
  }
  ~SystemTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  SystemTree(const SystemTree&) = delete;
  SystemTree& operator=(const SystemTree&) = delete;

  [[nodiscard]] const std::string& root() const { return root_; }
  // The name of a file below the root, with the folders above it made.
  [[nodiscard]] std::string path(const std::string& name) const {
    const std::filesystem::path whole = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(whole.parent_path());
    return whole.string();
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  // /sys/devices/system/cpu/cpuN/topology/NAME, and /sys/devices/system/NAME.
  void write_cpu(int cpu, const std::string& name, const std::string& value) const {
    write(text("sys/devices/system/cpu/cpu", cpu, "/topology/", name), value + "\n");
  }
  void write_system(const std::string& name, const std::string& value) const {
    write("sys/devices/system/" + name, value + "\n");
  }

 private:
  std::string root_;
};

// Two sockets of 28 cores with two threads each, a node a socket: CPU c and c + 56 are siblings.
inline void write_two_sockets(const SystemTree& tree) {
  tree.write_system("cpu/online", "0-111");
  tree.write_system("node/online", "0-1");
  tree.write_system("node/node0/cpulist", "0-27,56-83");
  tree.write_system("node/node1/cpulist", "28-55,84-111");
  for (int cpu = 0; cpu < 112; ++cpu) {
    const int core = cpu % 56;
    tree.write_cpu(cpu, "thread_siblings_list", text(core, ',', core + 56));
    tree.write_cpu(cpu, "physical_package_id", text(core / 28));
    tree.write_cpu(cpu, "core_id", text(core % 28));
  }
}

}  // namespace octavo

#include "octavo/base/cpu_features.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

namespace octavo {
namespace {

// The flags in /proc/cpuinfo: an independent source of the same facts. Empty where there are none,
// as under qemu-user, which shows the file of the host's architecture.
std::set<std::string> kernel_flags() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
#if defined(__aarch64__)
    if (line.rfind("Features", 0) != 0) continue;
#else
    if (line.rfind("flags", 0) != 0) continue;
#endif
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(CpuFeatures, AgreeWithTheKernelsList) {
  const std::set<std::string> flags = kernel_flags();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags for this architecture";
  const CpuFeatures& f = cpu_features();
  const auto listed = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(),
                       [&](const char* name) { return flags.contains(name); });
  };
  EXPECT_EQ(f.neon, listed({"asimd"}));
  EXPECT_EQ(f.fp16, listed({"asimdhp"}));
  EXPECT_EQ(f.dotprod, listed({"asimddp"}));
  EXPECT_EQ(f.bf16, listed({"bf16"}));
  EXPECT_EQ(f.i8mm, listed({"i8mm"}));
  EXPECT_EQ(f.sve, listed({"sve"}));
  EXPECT_EQ(f.avx2, listed({"avx2"}));
  EXPECT_EQ(f.avx512, listed({"avx512f", "avx512bw", "avx512vl", "avx512dq"}));
  EXPECT_EQ(f.amx, listed({"amx_tile", "amx_bf16", "amx_int8"}));
}

TEST(CpuFeatures, BelongToTheArchitecture) {
  const CpuFeatures& f = cpu_features();
#if defined(__aarch64__)
  EXPECT_TRUE(f.neon);  // part of the architecture's base
  EXPECT_FALSE(f.avx2 || f.avx512 || f.amx);
#else
  EXPECT_FALSE(f.neon || f.fp16 || f.dotprod || f.bf16 || f.i8mm || f.sve);
  EXPECT_TRUE(f.avx2 || !f.avx512);
#endif
}

TEST(CpuFeatures, NamesAreThosePresent) {
  const std::vector<std::string> names = cpu_feature_names();
  const auto named = [&](const char* name) {
    return std::count(names.begin(), names.end(), name) == 1;
  };
  const CpuFeatures& f = cpu_features();
  EXPECT_EQ(named("neon"), f.neon);
  EXPECT_EQ(named("fp16"), f.fp16);
  EXPECT_EQ(named("dotprod"), f.dotprod);
  EXPECT_EQ(named("bf16"), f.bf16);
  EXPECT_EQ(named("i8mm"), f.i8mm);
  EXPECT_EQ(named("sve"), f.sve);
  EXPECT_EQ(named("avx2"), f.avx2);
  EXPECT_EQ(named("avx512"), f.avx512);
  EXPECT_EQ(named("amx"), f.amx);
}

TEST(CpuFeatures, TheCpuHasANameWithItsCores) {
  const std::string name = cpu_name();
#if defined(__aarch64__)
  EXPECT_EQ(name.rfind("aarch64", 0), 0u) << name;
#else
  EXPECT_EQ(name.rfind("x86_64", 0), 0u) << name;
#endif
  EXPECT_NE(name.find(" core"), std::string::npos) << name;
}

}  // namespace
}  // namespace octavo

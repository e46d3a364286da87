#include "octavo/base/cpu_features.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace octavo {
namespace {

#if defined(__aarch64__)

CpuFeatures probe() {
  const unsigned long caps = getauxval(AT_HWCAP), caps2 = getauxval(AT_HWCAP2);
  return {.neon = (caps & HWCAP_ASIMD) != 0,
          .fp16 = (caps & HWCAP_ASIMDHP) != 0,
          .dotprod = (caps & HWCAP_ASIMDDP) != 0,
          .bf16 = (caps2 & HWCAP2_BF16) != 0,
          .i8mm = (caps2 & HWCAP2_I8MM) != 0,
          .sve = (caps & HWCAP_SVE) != 0};
}

std::string model() { return "aarch64"; }

#elif defined(__x86_64__)

// GCC's builtin checks CPUID and whether the system saves the wide registers (XCR0). It does not
// know AMX before GCC 13, so AMX is probed here.
bool probe_amx() {
  constexpr unsigned kOsxsave = 1u << 27, kAmxBf16 = 1u << 22, kAmxTile = 1u << 24,
                     kAmxInt8 = 1u << 25;
  constexpr unsigned kTileState = 3u << 17;  // XCR0: tile configuration and tile data
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & kOsxsave)) return false;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kAll) != kAll) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

CpuFeatures probe() {
  __builtin_cpu_init();
  CpuFeatures found;
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
  found.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  found.avx512_vbmi = found.avx512 && __builtin_cpu_supports("avx512vbmi");
  found.amx = probe_amx();
  return found;
}

std::string model() {
  std::array<unsigned, 12> brand{};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* const words = &brand[leaf * 4];
    if (!__get_cpuid(0x80000002u + leaf, words, words + 1, words + 2, words + 3)) return "x86_64";
  }
  std::array<char, sizeof(brand) + 1> name{};
  std::memcpy(name.data(), brand.data(), sizeof(brand));
  const std::string padded(name.data());  // with spaces, on either side
  const std::size_t first = padded.find_first_not_of(' ');
  if (first == std::string::npos) return "x86_64";
  return "x86_64 " + padded.substr(first, padded.find_last_not_of(' ') + 1 - first);
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = probe();
  return features;
}

bool amx_permitted() {
#if defined(__x86_64__)
  // Linux gives the large state of tiles only to processes that ask for it.
  static const bool kPermitted = [] {
    constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XTILEDATA
    return cpu_features().amx && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return kPermitted;
#else
  return false;
#endif
}

std::vector<std::string> cpu_feature_names() {
  const CpuFeatures& f = cpu_features();
  const std::pair<bool, const char*> known[] = {
      {f.neon, "neon"}, {f.fp16, "fp16"},     {f.dotprod, "dotprod"},
      {f.bf16, "bf16"}, {f.i8mm, "i8mm"},     {f.sve, "sve"},
      {f.avx2, "avx2"}, {f.avx512, "avx512"}, {f.avx512_vbmi, "avx512_vbmi"},
      {f.amx, "amx"}};
  std::vector<std::string> names;
  for (const auto& [present, name] : known) {
    if (present) names.emplace_back(name);
  }
  return names;
}

std::string cpu_name() {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return text(model(), ", ", counted(cores, "core"));
}

}  // namespace octavo

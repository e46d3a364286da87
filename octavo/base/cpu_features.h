// CPU feature detection (HWCAP on aarch64, CPUID on x86), never by model name: a hypervisor may
// switch off features that the model has.
#pragma once

#include <string>
#include <vector>

namespace octavo {

struct CpuFeatures {
  bool neon = false;     // asimd
  bool fp16 = false;     // asimdhp: half-precision vector arithmetic
  bool dotprod = false;  // asimddp
  bool bf16 = false;     // BFMMLA, BFDOT
  bool i8mm = false;     // SMMLA
  bool sve = false;
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F + BW + VL + DQ
  bool avx512_vbmi = false;
  bool amx = false;  // tile + bf16 + int8
};

const CpuFeatures& cpu_features();
// Asks the kernel, once, for permission to use AMX's tiles in this process.
bool amx_permitted();
std::vector<std::string> cpu_feature_names();  // those present, for people
std::string cpu_name();                        // for people only, e.g. "aarch64, 2 cores"

}  // namespace octavo

#include "octavo/backend/registry.h"

#include <atomic>

#include "octavo/backend/cpu/isa/portable/portable.h"
#include "octavo/backend/cuda.h"
#include "octavo/backend/kernel_clock_internal.h"
#include "octavo/backend/reference/reference.h"
#include "octavo/backend/registry_internal.h"
#include "octavo/backend/registry_testing_internal.h"
#include "octavo/base/cpu_features.h"
#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"

#if defined(__aarch64__)
#include "octavo/backend/cpu/isa/neon/neon.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16.h"
#include "octavo/backend/cpu/isa/neon_dot/neon_dot.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16.h"
#include "octavo/backend/cpu/isa/neon_i8mm/neon_i8mm.h"
#elif defined(__x86_64__)
#include "octavo/backend/cpu/isa/amx/amx.h"
#include "octavo/backend/cpu/isa/avx2/avx2.h"
#include "octavo/backend/cpu/isa/avx512/avx512.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"
#endif

namespace octavo {

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> list;
  const auto add = [&](const char* name, const Kernels* kernels, bool usable, const char* reason) {
    list.push_back({.kernels = kernels,
                    .name = name,
                    .usable = kernels != nullptr && usable,
                    .reason = reason});
  };
#if defined(__aarch64__)
  const CpuFeatures& cpu = cpu_features();
  const bool matrix = cpu.neon && cpu.fp16 && cpu.dotprod && cpu.bf16;
  add("cpu/neon_i8mm", &cpu::kNeonI8mmKernels, matrix && cpu.i8mm,
      cpu.i8mm ? "the CPU reports i8mm" : "the CPU does not report i8mm (int8 matrix products)");
  add("cpu/neon_bf16", &cpu::kNeonBf16Kernels, matrix,
      cpu.bf16 ? "the CPU reports bf16" : "the CPU does not report bf16 (bf16 matrix products)");
  add("cpu/neon_dot", &cpu::kNeonDotKernels, cpu.neon && cpu.fp16 && cpu.dotprod,
      cpu.dotprod ? "the CPU reports asimddp"
                  : "the CPU does not report asimddp (int8 dot products)");
  add("cpu/neon_fp16", &cpu::kNeonFp16Kernels, cpu.neon && cpu.fp16,
      cpu.fp16 ? "the CPU reports asimdhp"
               : "the CPU does not report asimdhp (half-precision vector arithmetic)");
  add("cpu/neon", &cpu::kNeonKernels, cpu.neon,
      cpu.neon ? "the CPU reports asimd" : "the CPU does not report asimd");
  add("cpu/amx", nullptr, false, "built for a CPU that is not x86_64");
  add("cpu/avx512_vbmi", nullptr, false, "built for a CPU that is not x86_64");
  add("cpu/avx512", nullptr, false, "built for a CPU that is not x86_64");
  add("cpu/avx2", nullptr, false, "built for a CPU that is not x86_64");
#else
  const CpuFeatures& cpu = cpu_features();
  const bool vbmi = cpu.avx512 && cpu.avx2 && cpu.avx512_vbmi;
  add("cpu/amx", &cpu::kAmxKernels, vbmi && cpu.amx && amx_permitted(),
      !cpu.amx          ? "the CPU or the system does not offer AMX (tiles, bf16, int8)"
      : amx_permitted() ? "the CPU reports AMX (tiles, bf16, int8), and the kernel permits it"
                        : "the CPU reports AMX, but the kernel does not permit it (arch_prctl)");
  add("cpu/avx512_vbmi", &cpu::kAvx512VbmiKernels, vbmi,
      cpu.avx512_vbmi ? "the CPU reports AVX-512 with VBMI"
                      : "the CPU or the system does not offer AVX-512 VBMI");
  add("cpu/avx512", &cpu::kAvx512Kernels, cpu.avx512 && cpu.avx2,
      cpu.avx512 ? "the CPU reports AVX-512 (F, BW, DQ, VL)"
                 : "the CPU or the system does not offer AVX-512 (F, BW, DQ, VL)");
  add("cpu/avx2", &cpu::kAvx2Kernels, cpu.avx2,
      cpu.avx2 ? "the CPU reports AVX2, F16C and FMA"
               : "the CPU or the system does not offer AVX2, F16C and FMA");
  add("cpu/neon_i8mm", nullptr, false, "built for a CPU that is not aarch64");
  add("cpu/neon_bf16", nullptr, false, "built for a CPU that is not aarch64");
  add("cpu/neon_dot", nullptr, false, "built for a CPU that is not aarch64");
  add("cpu/neon_fp16", nullptr, false, "built for a CPU that is not aarch64");
  add("cpu/neon", nullptr, false, "built for a CPU that is not aarch64");
#endif
  add("cpu/portable", &cpu::kPortableKernels, true, "runs everywhere");
  add("reference", &reference::kReferenceKernels, true,
      "runs everywhere, slowly: it defines the results");
  return list;
}

const Kernels& backend_named(std::string_view name) {
  std::string known;
  for (const BackendInfo& info : backends()) {
    if (info.name == name) {
      check(info.usable, ErrorCode::unsupported, "backend", "'", name,
            "' cannot run here: ", info.reason);
      return *info.kernels;
    }
    known += text(known.empty() ? "" : ", ", info.name);
  }
  fail(ErrorCode::unsupported, "backend", "got '", shown(name), "'; expected one of ", known);
}

namespace {

std::atomic<const Kernels*> cpu_stand_in = nullptr;

const Kernels& chosen_for_cpu() {
  if (const Kernels* instead = cpu_stand_in) return *instead;
  if (const auto forced = env_backend()) {
    try {
      return backend_named(*forced);
    } catch (const Error& error) {
      throw Error(error.code(),
                  text(error.what(), "; OCTAVO_BACKEND names it: change or unset it"));
    }
  }
  static const Kernels* const kFastest = [] {
    for (const BackendInfo& info : backends()) {
      if (info.usable) return info.kernels;
    }
    return &reference::kReferenceKernels;
  }();
  return *kFastest;
}

}  // namespace

const Kernels& cpu_backend() { return clocked(chosen_for_cpu()); }

namespace {

// A test device in the place of CUDA.
std::atomic<const testing::StandIn*> stand_in = nullptr;

const DeviceApi* any_device_api() {
  const testing::StandIn* instead = stand_in;
  return instead != nullptr ? instead->api : cuda::api();
}

}  // namespace

namespace testing {
void set_stand_in(const StandIn* instead) { stand_in = instead; }
void set_cpu_backend(const Kernels* instead) { cpu_stand_in = instead; }
}  // namespace testing

const DeviceApi& device_api(Device device) {
  check(device.kind == DeviceKind::cuda, ErrorCode::internal, "backend", "a CPU is not a device");
  const testing::StandIn* instead = stand_in;
  const std::string problem = instead == nullptr ? cuda::device_problem(device.index)
                              : device.index < 0 || device.index >= instead->device_count
                                  ? "there is no such device"
                                  : "";
  check(problem.empty(), ErrorCode::unsupported, "cuda", problem);
  return *any_device_api();
}

const Kernels& device_backend(Device device, const Kernels* wanted, std::string_view op) {
  const Kernels& kernels = *device_api(device).kernels;
  check(wanted == nullptr || wanted == &kernels, ErrorCode::invalid_argument, op, "got backend '",
        wanted != nullptr ? wanted->name : "", "' for memory on ", to_string(device),
        "; expected '", kernels.name, "' or none");
  return kernels;
}

void fail_not_offered(const Kernels& kernels, std::string_view op, std::string_view what,
                      std::string_view instead) {
  fail(ErrorCode::unsupported, op, "backend '", kernels.name, "' does not offer ", what, "; ",
       instead, "copy to the CPU (x.cpu(), in C++ to_host) and run it there");
}

const Kernels& checked_cpu_backend(const Kernels* wanted, std::string_view op) {
  if (wanted == nullptr) return cpu_backend();
  const DeviceApi* api = any_device_api();
  check(api == nullptr || wanted != api->kernels, ErrorCode::invalid_argument, op, "got backend '",
        wanted->name, "' for memory on the CPU; copy it to the device (to_device), or name none");
  return *wanted;
}

std::string cuda_summary() { return cuda::summary(); }

const Kernels& reference_backend() { return reference::kReferenceKernels; }

Exec make_exec(std::int64_t elements, int threads, Log* log, std::string_view op,
               DefaultThreads default_threads) {
  // Below this number of elements a second thread does not pay, nor does asking how many there are.
  constexpr std::int64_t kWorthThreads = 128 * 1024;
  check(threads >= 0 && threads <= kMaxThreads, ErrorCode::invalid_argument, op,
        "got threads = ", threads, "; expected 0 (all) to ", kMaxThreads);
  const bool small = elements < kWorthThreads;
  return {.threads = small ? 1 : threads > 0 ? threads : default_threads(), .log = log};
}

}  // namespace octavo

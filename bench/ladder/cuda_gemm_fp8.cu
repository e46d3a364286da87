// Products of FP8 on Hopper, e4m3 with 1 x 128 scales by e4m3 with 128 x 128 scales: from a kernel
// that does one thing after the other to the one in the library (octavo/backend/cuda/device).
//
// All versions add up in one order. So each must have the bits of the first, and rows of each are
// held against f64 before it is timed.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/ladder/cuda_gemm_fp8_versions.cuh"
#include "bench/ladder/cuda_gemm_fp8_wanted.cuh"

namespace octavo::cuda::ladder {
namespace {

constexpr int kRepeats = 21;
constexpr auto kWarm = std::chrono::milliseconds(200);

// ---- launches

CUtensorMap map_of(void* data, CUtensorMapDataType type, unsigned each, unsigned size,
                   unsigned box_rows) {
  static const auto encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                          cudaEnableDefault, &found),
         "cuTensorMapEncodeTiled");
    if (entry == nullptr) {
      std::fprintf(stderr, "the driver has no cuTensorMapEncodeTiled\n");
      std::exit(1);
    }
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }();
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {size, size}, pitches[1] = {cuuint64_t{size} * each};
  const cuuint32_t box[2] = {128 / each, box_rows}, steps[2] = {1, 1};
  if (encode(&map, type, 2, data, sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
    std::fprintf(stderr, "the driver made no map of %u x %u\n", size, size);
    std::exit(1);
  }
  return map;
}

// A version that is ready to run, and what its figures are to be divided by.
struct Prepared {
  void (*kernel)(Product);
  Product product{};
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute cluster{};
  int stages_of_first = 0;  // that the first block passes
  int floor = 0;            // cycles of a stage that are multiplication

  void run() {
    static unsigned long long tickets = 0;
    product.ticket = ++tickets;
    config.attrs = &cluster;
    config.numAttrs = 1;
    must(cudaLaunchKernelEx(&config, kernel, product), "launch");
  }
};

// `alone`: one block a multiprocessor, also where more would fit.
template <Version kIs>
Prepared prepare(const Data& data, bool alone) {
  using K = Kernel<kIs>;
  int processors = 0;
  must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "device");
  Prepared made{product_kernel<K>};
  Product& product = made.product;
  const auto size = static_cast<unsigned>(data.size);
  product.rows = map_of(data.rows, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, size, K::kRows / kIs.blocks);
  product.cols = map_of(data.cols, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, size, K::kCols);
  product.out = map_of(data.out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, size, 64);
  product.row_scales = data.row_scales;
  product.col_scales = data.col_scales;
  product.row_pitch = data.row_pitch;
  product.row_count = data.size;
  product.k_blocks = data.k_blocks;
  product.partial = data.partial;
  product.ready = data.ready;
  product.spent = data.spent;
  const int unit_rows = (data.size + K::kRows - 1) / K::kRows,
            unit_cols = data.size / (K::kCols * kIs.blocks), at_once = processors / kIs.blocks;
  GemmSchedule& schedule = product.schedule;
  schedule = kIs.dealt ? make_schedule(unit_rows, unit_cols, data.k_blocks, at_once)
                       : GemmSchedule{.unit_rows = unit_rows,
                                      .unit_cols = unit_cols,
                                      .k_blocks = data.k_blocks,
                                      .clusters = kIs.persistent ? at_once : unit_rows * unit_cols,
                                      .strip = kIs.persistent ? 8 : 1};
  for (int i = 0; i < schedule.items(0); ++i) {
    const GemmItem item = schedule.item(0, i);
    made.stages_of_first += item.end - item.first;
  }
  made.floor = 256 * kIs.groups;  // 64 x 128 x 128 products, 4096 a cycle
  const int shared = alone ? 200 * 1024 : 0;
  made.config.gridDim = static_cast<unsigned>(schedule.clusters * kIs.blocks);
  made.config.blockDim = K::kThreads;
  made.config.dynamicSmemBytes = static_cast<std::size_t>(std::max(shared, K::kSharedBytes));
  made.cluster.id = cudaLaunchAttributeClusterDimension;
  made.cluster.val.clusterDim.x = kIs.blocks;
  made.cluster.val.clusterDim.y = made.cluster.val.clusterDim.z = 1;
  must(cudaFuncSetAttribute(made.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(made.config.dynamicSmemBytes)),
       "shared memory");
  return made;
}

constexpr Version kFirst{}, kRing{.stages = 4}, kThree{.groups = 3, .stages = 4},
    kStrips{.groups = 3, .stages = 4, .persistent = true},
    kPairs{.groups = 3, .stages = 4, .persistent = true, .blocks = 2},
    kAhead{.groups = 3, .stages = 4, .persistent = true, .blocks = 2, .lone = Lone::block_ahead},
    kShuffled{.groups = 3, .stages = 4, .persistent = true, .blocks = 2, .lone = Lone::shuffled},
    kInRing{.groups = 3, .stages = 4, .persistent = true, .blocks = 2, .lone = Lone::in_ring},
    kDealt{.groups = 3,
           .stages = 4,
           .persistent = true,
           .blocks = 2,
           .lone = Lone::in_ring,
           .dealt = true},
    kExchanged{.groups = 3,
               .stages = 4,
               .persistent = true,
               .blocks = 2,
               .lone = Lone::in_ring,
               .dealt = true,
               .exchanged = true};

constexpr struct {
  const char* name;
  Prepared (*prepare)(const Data&, bool);
  bool alone;
} kVersions[] = {
    {"1  64 x 128, one thing after the other", prepare<kFirst>, true},
    {"1b the same, as many blocks as fit", prepare<kFirst>, false},
    {"2  a ring of four stages, loaded ahead", prepare<kRing>, false},
    {"3  192 x 128 by three warpgroups", prepare<kThree>, false},
    {"4  blocks that stay, tiles in strips", prepare<kStrips>, false},
    {"5  pairs of blocks that share rows", prepare<kPairs>, false},
    {"6  scale of B asked for a block ahead", prepare<kAhead>, false},
    {"7  ... up to 32 ahead, by shuffles", prepare<kShuffled>, false},
    {"8  ... through the ring, by a warp", prepare<kInRing>, false},
    {"9  last tiles dealt out by blocks of K", prepare<kDealt>, false},
    {"10 sums and runs in different banks", prepare<kExchanged>, false},
};

// ---- times

// Every version has its own clock, the one that the card's limit of power leaves it: it runs for a
// while before it is timed, and without a pause after that.
double median_us(Prepared& version, const Data& data) {
  for (const auto end = std::chrono::steady_clock::now() + kWarm;
       std::chrono::steady_clock::now() < end;) {
    for (int i = 0; i < 8; ++i) {
      must(cudaMemsetAsync(data.flush, 0, kFlushBytes), "flush");
      version.run();
    }
    must(cudaDeviceSynchronize(), "product");
  }
  struct {
    cudaEvent_t begin, end;
  } events[kRepeats];
  for (auto& [begin, end] : events) {
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    must(cudaMemsetAsync(data.flush, 0, kFlushBytes), "flush");
    must(cudaEventRecord(begin), "event");
    version.run();
    must(cudaEventRecord(end), "event");
  }
  must(cudaDeviceSynchronize(), "product");
  std::vector<float> times;
  for (auto& [begin, end] : events) {
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end), "time");
    times.push_back(milliseconds * 1e3F);
    must(cudaEventDestroy(begin), "event");
    must(cudaEventDestroy(end), "event");
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]);
}

// Whether all versions were right.
bool climb(int size) {
  const Data data(size);
  const Wanted wanted(data);
  const std::size_t out_bytes =
      std::size_t{2} * static_cast<unsigned>(size) * static_cast<unsigned>(size);
  std::printf("\n%-40s %8s %7s %7s %7s %6s %5s %6s\n", (std::to_string(size) + "^3").c_str(), "us",
              "TFLOPS", "before", "cycles", "floor", "GHz", "error");
  double before = 0;
  bool good = true;
  for (const auto& one : kVersions) {
    Prepared version = one.prepare(data, one.alone);
    must(cudaMemset(data.out, 0xFF, out_bytes), "clear");
    must(cudaMemset(data.differences, 0, sizeof(unsigned)), "clear");
    version.run();
    must(cudaDeviceSynchronize(), one.name);
    if (&one == &kVersions[0])
      must(cudaMemcpy(data.first, data.out, out_bytes, cudaMemcpyDeviceToDevice), "copy");
    count_differences<<<static_cast<unsigned>(out_bytes / 1024), 256>>>(
        reinterpret_cast<const std::uint32_t*>(data.out),
        reinterpret_cast<const std::uint32_t*>(data.first), data.differences);
    const unsigned different = fetch(data.differences, 1)[0];
    const double error = wanted.error_of(data);
    if (different != 0 || !(error <= 1)) {
      std::printf(
          "%-40s WRONG: %u pairs differ from the first version's, error %.2f of the bound\n",
          one.name, different, error);
      good = false;
      continue;
    }
    const double us = median_us(version, data);
    const auto spent = fetch(data.spent, 2);
    const auto cycles = static_cast<double>(spent[0]), ns = static_cast<double>(spent[1]);
    const double flops = 2.0 * size * size * size;
    std::printf("%-40s %8.1f %7.0f %7.2f %7.0f %6d %5.2f %6.2f\n", one.name, us, flops * 1e-6 / us,
                before > 0 ? before / us : 1.0, cycles / version.stages_of_first, version.floor,
                cycles / ns, error);
    before = us;
  }
  return good;
}

int run() {
  cudaDeviceProp device{};
  must(cudaGetDeviceProperties(&device, 0), "device");
  if (device.major != 9) {
    std::fprintf(stderr, "%s is no Hopper\n", device.name);
    return 1;
  }
  std::printf(
      "%s. before: times as fast as the version before; cycles: of a stage, in the first block;\n"
      "floor: those that are multiplication; GHz: in that block; error: the largest, of the "
      "bound.\n",
      device.name);
  bool good = true;
  for (const int size : {4096, 8192}) good &= climb(size);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda::ladder

int main() { return octavo::cuda::ladder::run(); }

// FP8 GEMM on Hopper, e4m3 with 1 x 128 scales by e4m3 with 128 x 128 scales: from a kernel without
// a pipeline to the library's (octavo/backend/cuda/gemm).
//
// All versions sum in one order. So each must have the bits of the first, and rows of each are
// compared with f64 before it is timed.
//
// Taught (H200; how many times as fast as the version before at 4096^3, then at 8192^3):
//  1   A stage of one warpgroup takes 1691 cycles, of which 256 are multiplication.
//  1b  Other blocks on the same SM hide half of that: 1.99 times as fast.
//  2   A pipeline with a producer warpgroup (TMA) does no more than those blocks did (1.00): a
//      single consumer warpgroup waits for itself, since nothing multiplies while it promotes.
//  3   Of three consumer warpgroups two multiply while one promotes: 1.51, 1.99. All that follows
//      is worth 1.14 and 1.09 at best.
//  4   A persistent grid, rasterized so that concurrent tiles share operands: 1.02, 1.05.
//  5   Clusters of two that multicast their rows: 1.00, 1.00. L2 is not what a stage waits for.
//  6-8 Where the broadcast scale of B comes from: between 0.99 and 1.02, which is what runs differ
//      by. In the pipeline the consumers have the fewest instructions.
//  9   Stream-K, which splits the last tiles along K, takes a ninth of the stages away at 4096^3
//      (5.33 waves, not 6) and makes each longer, 970 cycles instead of 892: 1.02. At 8192^3 there
//      is next to nothing to take away (20.85 waves, not 21): 0.97.
//  10  Register banks are a part of that. The compiler puts a sum and its run into different banks
//      by itself: the code of versions 1 to 8 has it so. But partial sums that are stored four at a
//      time must be in four consecutive registers, as runs are, and then every FFMA reads both from
//      one bank. Sums exchanged with their neighbours: 1.03, 1.02.
//  11  Scales that are loaded before a stage's wgmmas, not among them, and an unrolled loop with
//      the next addresses ready: 1.01, 1.02.
//  12  Producer warps that multiply the scales of rows by that of B: 1.00, 1.01.
//  13  256 x 128 leaves nothing to be split at 4096^3, 1.03. But two consumer warpgroups have no
//      third one to multiply while they promote, and where wide tiles fill the waves, too, that
//      costs more: 0.92.
//  14-16 For them, scales before wgmmas bring 1.01, 1.00; storing both row passes at once 0.99,
//      0.99; scales multiplied by producer warps 1.01, 1.01.
//  17  128 x 192 reads the fewest bytes of shared memory for a product, and waits as 13 does.
//  18  What stands before the wgmmas of a stage is gone if the next full barrier is waited for, and
//      its scales are loaded, while wgmmas are in flight: 1.00, 1.03 times as fast as 14.
//  19  Sums of one row, then those of the other: an FFMA reads two registers if it has the scale of
//      the one before it: 1.00, 1.01.
// The card is at its power limit: its clock falls to 1.48 GHz, and to 1.29 in the larger product.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bench/ladder/cuda_gemm_fp8_versions.cuh"
#include "bench/ladder/cuda_gemm_fp8_wanted.cuh"

namespace octavo::cuda::ladder {
namespace {

constexpr int kRepeats = 21;
constexpr int kMaxShared = 220 * 1024;  // bytes
constexpr auto kWarm = std::chrono::milliseconds(100);

// ---- launches

CUtensorMap tensor_map_of(void* data, CUtensorMapDataType type, unsigned each, unsigned size,
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

// A version ready to run, and the divisors of its figures.
struct Prepared {
  void (*kernel)(Product);
  Product product{};
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute cluster{};
  int stages_of_first = 0;  // of the first block
  int floor = 0;            // cycles of a stage that are multiplication

  void run() {
    static unsigned long long tickets = 0;
    product.ticket = ++tickets;
    config.attrs = &cluster;
    config.numAttrs = 1;
    must(cudaLaunchKernelEx(&config, kernel, product), "launch");
  }
};

// `alone`: one block per SM, also where more would fit.
template <Version kIs>
Prepared prepare(const Data& data, bool alone) {
  using K = Kernel<kIs>;
  int processors = 0;
  must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "device");
  Prepared made{product_kernel<K>};
  Product& product = made.product;
  const auto size = static_cast<unsigned>(data.size);
  const auto box = [](int lines, bool shared) {
    return static_cast<unsigned>(shared ? lines / kIs.blocks : lines);
  };
  product.rows = tensor_map_of(data.rows, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, size,
                               box(K::kRows, K::kMulticastsRows));
  product.cols = tensor_map_of(data.cols, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, size,
                               box(K::kCols, !K::kMulticastsRows));
  product.out = tensor_map_of(data.out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, size, 64);
  product.row_scales = data.row_scales;
  product.col_scales = data.col_scales;
  product.row_pitch = data.row_pitch;
  product.row_count = data.size;
  product.k_blocks = data.k_blocks;
  product.partial = data.partial;
  product.ready = data.ready;
  product.spent = data.spent;
  const auto units = [&](int lines, bool shared) {
    const int each = shared ? lines : lines * kIs.blocks;
    return (data.size + each - 1) / each;
  };
  const int unit_rows = units(K::kRows, K::kMulticastsRows),
            unit_cols = units(K::kCols, !K::kMulticastsRows), at_once = processors / kIs.blocks;
  StreamKSchedule& schedule = product.schedule;
  schedule = kIs.stream_k
                 ? make_schedule(unit_rows, unit_cols, data.k_blocks, at_once)
                 : StreamKSchedule{.unit_rows = unit_rows,
                                   .unit_cols = unit_cols,
                                   .k_blocks = data.k_blocks,
                                   .clusters = kIs.persistent ? at_once : unit_rows * unit_cols,
                                   .raster_rows = kIs.persistent ? 8 : 1};
  for (int i = 0; i < schedule.work_tiles(0); ++i) {
    const WorkTile work_tile = schedule.work_tile(0, i);
    made.stages_of_first += work_tile.end - work_tile.first;
  }
  made.floor = 2 * kIs.cols * kIs.groups * kIs.row_passes;  // 64 rows x 128 of K, 4096 a cycle
  made.config.gridDim = static_cast<unsigned>(schedule.clusters * kIs.blocks);
  made.config.blockDim = K::kThreads;
  made.config.dynamicSmemBytes = static_cast<std::size_t>(alone ? kMaxShared : K::kSharedBytes);
  made.cluster.id = cudaLaunchAttributeClusterDimension;
  made.cluster.val.clusterDim.x = kIs.blocks;
  made.cluster.val.clusterDim.y = made.cluster.val.clusterDim.z = 1;
  must(cudaFuncSetAttribute(made.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxShared),
       "shared memory");
  return made;
}

// A version derived from another by one change.
template <typename Change>
constexpr Version but(Version version, Change change) {
  change(version);
  return version;
}

constexpr Version kFirst{}, kPipelined{.stages = 4}, kThree{.groups = 3, .stages = 4},
    kPersistent = but(kThree, [](Version&v) { v.persistent = true; }),
    kPairs = but(kPersistent, [](Version&v) { v.blocks = 2; }),
    kAhead = but(kPairs, [](Version&v) { v.broadcast_scale = BroadcastScale::block_ahead; }),
    kShuffled = but(kPairs, [](Version&v) { v.broadcast_scale = BroadcastScale::shuffled; }),
    kInPipeline = but(kPairs, [](Version&v) { v.broadcast_scale = BroadcastScale::in_pipeline; }),
    kStreamK = but(kInPipeline, [](Version&v) { v.stream_k = true; }),
    kExchanged = but(kStreamK, [](Version&v) { v.exchanged = true; }),
    kLean = but(kExchanged,
                [](Version&v) {
                  v.ready = true;
                  v.copies = 4;
                }),
    kMultiplied = but(kLean, [](Version&v) { v.broadcast_scale = BroadcastScale::multiplied; }),
    kTall = but(kExchanged,
                [](Version&v) {
                  v.groups = v.row_passes = 2;
                  v.stages = 3;
                  v.stream_k = false;
                }),
    kTallLean = but(kTall, [](Version&v) { v.ready = true; }),
    kTallTogether = but(kTallLean, [](Version&v) { v.together = true; }),
    kTallMultiplied =
        but(kTallTogether, [](Version&v) { v.broadcast_scale = BroadcastScale::multiplied; }),
    kTallAhead = but(kTallLean, [](Version&v) { v.ahead = true; }),
    kTallRows = but(kTallAhead, [](Version&v) { v.by_row = true; }),
    kBroad = but(kTallLean, [](Version&v) {
      v.row_passes = 1;
      v.stages = 4;
      v.cols = 192;
    });

constexpr struct {
  const char* name;
  Prepared (*prepare)(const Data&, bool);
  bool alone;
} kVersions[] = {
    {"1  64 x 128, no pipeline", prepare<kFirst>, true},
    {"1b the same, as many blocks as fit", prepare<kFirst>, false},
    {"2  TMA pipeline of four stages", prepare<kPipelined>, false},
    {"3  192 x 128, 3 consumer warpgroups", prepare<kThree>, false},
    {"4  persistent grid, rasterized tiles", prepare<kPersistent>, false},
    {"5  clusters of two, rows multicast", prepare<kPairs>, false},
    {"6  scale of B loaded a block ahead", prepare<kAhead>, false},
    {"7  ... up to 32 ahead, by shuffles", prepare<kShuffled>, false},
    {"8  ... in the pipeline, by a warp", prepare<kInPipeline>, false},
    {"9  stream-K for the last tiles", prepare<kStreamK>, false},
    {"10 sums and runs in different banks", prepare<kExchanged>, false},
    {"11 scales before wgmma, unrolled by 4", prepare<kLean>, false},
    {"12 scales of rows times that of B", prepare<kMultiplied>, false},
    {"13 256 x 128, two passes, no stream-K", prepare<kTall>, false},
    {"14 ... scales before wgmma", prepare<kTallLean>, false},
    {"15 ... results of both stored at once", prepare<kTallTogether>, false},
    {"16 ... scales of rows times that of B", prepare<kTallMultiplied>, false},
    {"17 128 x 192, 2 consumer warpgroups", prepare<kBroad>, false},
    {"18 as 14, next scales during wgmma", prepare<kTallAhead>, false},
    {"19 ... promoted one row after the other", prepare<kTallRows>, false},
};

// ---- figures

struct Rung {
  const char* name;
  Prepared version;
  double error = 0;  // as a fraction of the bound
  double us = 0, cycles = 0, gigahertz = 0;
};

// Whether it is within the bound and has the bits of the first version.
bool check(Rung& rung, bool is_first, const Data& data, const Wanted& wanted) {
  const std::size_t bytes = data.values() * 2;
  must(cudaMemset(data.out, 0xFF, bytes), "clear");
  must(cudaMemset(data.differences, 0, sizeof(unsigned)), "clear");
  rung.version.run();
  must(cudaDeviceSynchronize(), rung.name);
  if (is_first) must(cudaMemcpy(data.first, data.out, bytes, cudaMemcpyDeviceToDevice), "copy");
  count_differences<<<static_cast<unsigned>(bytes / 1024), 256>>>(
      reinterpret_cast<const std::uint32_t*>(data.out),
      reinterpret_cast<const std::uint32_t*>(data.first), data.differences);
  const unsigned different = fetch(data.differences, 1)[0];
  rung.error = wanted.error_of(data);
  if (different == 0 && rung.error <= 1) return true;
  std::printf("%s: WRONG, %u pairs differ from the first version's, error %.2f of the bound\n",
              rung.name, different, rung.error);
  return false;
}

// Versions are interleaved without a pause, because the card's clock depends on the power of what
// ran before. The last version warms it up.
void time_interleaved(std::span<Rung> rungs, const Data& data) {
  const auto flush = [&] { must(cudaMemsetAsync(data.flush, 0, kFlushBytes), "flush"); };
  for (const auto end = std::chrono::steady_clock::now() + kWarm;
       std::chrono::steady_clock::now() < end;) {
    for (int i = 0; i < 8; ++i) {
      flush();
      rungs.back().version.run();
    }
    must(cudaDeviceSynchronize(), "product");
  }
  struct Events {
    cudaEvent_t begin, end;
  };
  std::vector<std::vector<Events>> events(rungs.size(), std::vector<Events>(kRepeats));
  for (auto& of_rung : events)
    for (auto& [begin, end] : of_rung) {
      must(cudaEventCreate(&begin), "event");
      must(cudaEventCreate(&end), "event");
    }
  for (std::size_t turn = 0; turn < kRepeats; ++turn)
    for (std::size_t i = 0; i < rungs.size(); ++i) {
      flush();
      must(cudaEventRecord(events[i][turn].begin), "event");
      rungs[i].version.run();
      must(cudaEventRecord(events[i][turn].end), "event");
    }
  must(cudaDeviceSynchronize(), "product");
  for (std::size_t i = 0; i < rungs.size(); ++i) {
    std::vector<float> times;
    for (auto& [begin, end] : events[i]) {
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin, end), "time");
      times.push_back(milliseconds * 1e3F);
      must(cudaEventDestroy(begin), "event");
      must(cudaEventDestroy(end), "event");
    }
    std::sort(times.begin(), times.end());
    rungs[i].us = static_cast<double>(times[times.size() / 2]);
    const auto spent = fetch(rungs[i].version.product.spent, 2);  // by the last call
    const auto cycles = static_cast<double>(spent[0]);
    rungs[i].cycles = cycles / rungs[i].version.stages_of_first;
    rungs[i].gigahertz = cycles / static_cast<double>(spent[1]);
  }
}

// Returns whether all versions were right.
bool climb(int size) {
  const Data data(size);
  std::vector<Rung> rungs;
  bool good = true;
  {
    const Wanted wanted(data);
    for (const auto& one : kVersions) {
      rungs.push_back({one.name, one.prepare(data, one.alone)});
      rungs.back().version.product.spent = data.spent + 2 * (rungs.size() - 1);
      good &= check(rungs.back(), rungs.size() == 1, data, wanted);
    }
  }
  if (!good) return false;
  // The first two draw so little power that they would lend some to their neighbours, and they are
  // slow.
  const std::span<Rung> all(rungs), slow = all.first(2), others = all.subspan(2);
  const bool times_slow = size <= 4096;
  if (times_slow) time_interleaved(slow, data);
  time_interleaved(others, data);
  std::printf("\n%-40s %8s %7s %7s %7s %6s %5s %6s\n", (std::to_string(size) + "^3").c_str(), "us",
              "TFLOPS", "before", "cycles", "floor", "GHz", "error");
  double before = 0;
  for (const Rung& rung : times_slow ? all : others) {
    std::printf("%-40s %8.1f %7.0f ", rung.name, rung.us, 2e-6 * size * size * size / rung.us);
    before > 0 ? std::printf("%7.2f ", before / rung.us) : std::printf("%7s ", "");
    std::printf("%7.0f %6d %5.2f %6.2f\n", rung.cycles, rung.version.floor, rung.gigahertz,
                rung.error);
    before = rung.us;
  }
  return true;
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
      "floor: those of multiplication; GHz: in that block; error: the largest, of the bound.\n",
      device.name);
  bool good = true;
  for (const int size : {4096, 8192}) good &= climb(size);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace octavo::cuda::ladder

int main() { return octavo::cuda::ladder::run(); }

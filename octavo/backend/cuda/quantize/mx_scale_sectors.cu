// Sorts MX scales that the MX columns kernel stored in sectors of sixteen lines into the sectors of
// their own lines: reads 128 sectors at a time and writes them back. Launched after that kernel in
// the same stream.
#include "octavo/backend/cuda/quantize/mx_scale_sectors.h"

#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 2 * kSectorLines;  // half a sector each
constexpr int kWords = 4;                   // of half a sector

constexpr int kGroups = 2;  // of 128 sectors, per block: enough loads in flight

struct SortPlan {
  SharedSectors side[2];
  std::int64_t first_groups, groups;  // of side 0; of both sides
};

__host__ __device__ std::int64_t groups_across(const SharedSectors& side) {
  return side.length / (kSectorTiles * kSectorLines);
}

__global__ void __launch_bounds__(kThreads) sort_kernel(const __grid_constant__ SortPlan plan) {
  // One word of padding against bank conflicts between the lines of a tile.
  __shared__ std::uint32_t words[kGroups][kSectorLines][kSectorTiles + 1];
  const int sector = static_cast<int>(threadIdx.x) / 2, half = static_cast<int>(threadIdx.x) % 2;
  const int tile = sector / kLinesOfTile,
            line = sector % kLinesOfTile * kSectorTiles + half * kWords;
  uint4* memory[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * kGroups + g;
    const bool second = group >= plan.first_groups;
    const SharedSectors& side = plan.side[second ? 1 : 0];
    const std::int64_t at = group - (second ? plan.first_groups : 0);
    const std::int64_t down = at / groups_across(side), across = at - down * groups_across(side);
    memory[g] = reinterpret_cast<uint4*>(side.scales + (down * kSectorLines + sector) * side.pitch +
                                         across * kSectorBytes + half * (kSectorBytes / 2));
    if (group >= plan.groups) memory[g] = nullptr;
  }
  uint4 four[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    if (memory[g] != nullptr) four[g] = *memory[g];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (memory[g] == nullptr) continue;
    words[g][line][tile] = four[g].x;
    words[g][line + 1][tile] = four[g].y;
    words[g][line + 2][tile] = four[g].z;
    words[g][line + 3][tile] = four[g].w;
  }
  __syncthreads();
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const std::uint32_t* sorted = &words[g][sector][half * kWords];
    if (memory[g] != nullptr) *memory[g] = uint4{sorted[0], sorted[1], sorted[2], sorted[3]};
  }
}

}  // namespace

void sort_sectors(const Exec& exec, const SharedSectors& rows, const SharedSectors& columns) {
  SortPlan plan{{rows, columns}, 0, 0};
  const auto count = [](const SharedSectors& side) {
    return side.lines / kSectorLines * groups_across(side);
  };
  plan.first_groups = count(rows);
  plan.groups = plan.first_groups + count(columns);
  if (plan.groups == 0) return;
  sort_kernel<<<blocks_for(plan.groups, kGroups), kThreads, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("sort_kernel");
}

}  // namespace octavo::cuda

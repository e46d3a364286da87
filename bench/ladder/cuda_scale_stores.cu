// How to store the scales of a tile: tiles of 128 x 128 bf16 are cast to two copies of e4m3, as
// rowwise and columnwise MX quantizers write them, and every tile also writes 1 KiB of scales in
// pieces of 4, 8, 16 or 32 bytes, each piece in a line of its own. Bytes are the same.
//
// Taught (H200): to L2 a piece of a 32-byte sector costs as much as a whole one, or more. In pieces
// of 4, 8, 16 and 32 the same bytes cost 20, 14, 9 and 5 us beside 138; as part of a copy they
// would cost 2.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRows = 16384, kCols = 8192, kTile = 128, kThreads = 256, kRepeats = 31;
constexpr std::int64_t kValues = std::int64_t{kRows} * kCols;
constexpr int kSideBytes = 512;  // of scales, per tile and copy

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

__global__ void fill(uint4* values) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const auto bits = static_cast<std::uint32_t>(at) * 2654435761u;
  const auto word = [&](std::uint32_t shift) {
    return 0x3F803F80u ^ (bits >> shift & 0x807F807Fu);
  };
  values[at] = {word(0), word(3), word(5), word(7)};
}

__device__ std::uint32_t two_codes(std::uint32_t pair) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(codes)
      : "f"(__uint_as_float(pair & 0xFFFF0000u)), "f"(__uint_as_float(pair << 16)));
  return codes;
}

// The word at `at` of a tile's scales; kBytes of them are contiguous, then comes another line.
template <int kBytes>
__device__ void store_scales(unsigned char* scales, int pitch, int tile_down, int tile_across,
                             std::uint32_t word) {
  constexpr int kWords = kBytes / 4;  // as many tiles share a piece's place
  const int at = static_cast<int>(threadIdx.x) % kTile;
  const int line = tile_across % kWords * (kTile / kWords) + at / kWords;
  unsigned char* const to = scales + static_cast<std::int64_t>(tile_down * kTile + line) * pitch +
                            tile_across / kWords * kBytes + at % kWords * 4;
  *reinterpret_cast<std::uint32_t*>(to) = word;
}

template <int kBytes>
__global__ void __launch_bounds__(kThreads, 2)
    cast_tile(const uint4* values, uint2* one, uint2* other, unsigned char* row_scales,
              unsigned char* col_scales) {
  constexpr int kAcross = kTile / 8, kDown = kThreads / kAcross, kSteps = kTile / kDown;
  const auto thread = static_cast<int>(threadIdx.x);
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.y) * kTile + thread / kAcross) * (kCols / 8) +
      blockIdx.x * kAcross + thread % kAcross;
  uint4 x[kSteps];
  for (int i = 0; i < kSteps; ++i) x[i] = __ldg(values + first + i * kDown * (kCols / 8));
  std::uint32_t sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const uint2 codes{two_codes(x[i].x) | two_codes(x[i].y) << 16,
                      two_codes(x[i].z) | two_codes(x[i].w) << 16};
    one[first + i * kDown * (kCols / 8)] = codes;
    other[first + i * kDown * (kCols / 8)] = codes;
    sum += codes.x ^ codes.y;
  }
  if constexpr (kBytes > 0) {
    const auto across = static_cast<int>(blockIdx.x), down = static_cast<int>(blockIdx.y);
    if (thread < kTile) {
      store_scales<kBytes>(row_scales, kCols / 32, down, across, sum);
    } else {
      store_scales<kBytes>(col_scales, kRows / 32, across, down, sum);
    }
  }
}

}  // namespace

int main() {
  void *values = nullptr, *one = nullptr, *other = nullptr, *rows = nullptr, *cols = nullptr;
  must(cudaMalloc(&values, kValues * 2), "memory");
  for (void** codes : {&one, &other}) must(cudaMalloc(codes, kValues), "memory");
  for (void** scales : {&rows, &cols}) must(cudaMalloc(scales, kValues / 32), "memory");
  static_assert(kSideBytes * (kValues / (kTile * kTile)) == kValues / 32);
  fill<<<kValues / 8 / kThreads, kThreads>>>(static_cast<uint4*>(values));
  must(cudaDeviceSynchronize(), "fill");
  cudaEvent_t begin, end;
  must(cudaEventCreate(&begin), "event");
  must(cudaEventCreate(&end), "event");
  const struct {
    const char* name;
    decltype(&cast_tile<0>) kernel;
  } versions[] = {{"no scales", cast_tile<0>},
                  {"scales in pieces of 4 bytes", cast_tile<4>},
                  {"of 8", cast_tile<8>},
                  {"of 16", cast_tile<16>},
                  {"of 32", cast_tile<32>}};
  for (const auto& version : versions) {
    std::vector<float> times;
    for (int i = 0; i < kRepeats + 5; ++i) {
      must(cudaEventRecord(begin), "event");
      version.kernel<<<dim3(kCols / kTile, kRows / kTile), kThreads>>>(
          static_cast<uint4*>(values), static_cast<uint2*>(one), static_cast<uint2*>(other),
          static_cast<unsigned char*>(rows), static_cast<unsigned char*>(cols));
      must(cudaEventRecord(end), "event");
      must(cudaEventSynchronize(end), "cast");
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin, end), "time");
      if (i >= 5) times.push_back(milliseconds * 1e3F);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-30s %7.1f us\n", version.name, static_cast<double>(times[times.size() / 2]));
  }
}

// Operands of cuda_gemm_fp8.cu, and its expected results with error bounds.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace octavo::cuda::ladder {

inline void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename T>
T* allocate(std::size_t count) {
  void* made = nullptr;
  must(cudaMalloc(&made, count * sizeof(T)), "memory");
  return static_cast<T*>(made);
}

template <typename T>
std::vector<T> fetch(const T* from, std::size_t count) {
  std::vector<T> made(count);
  must(cudaMemcpy(made.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
  return made;
}

// ---- data

inline __device__ float uniform(std::uint32_t at, std::uint32_t draw) {  // -1 to 1
  std::uint32_t bits = at * 2654435761u + draw * 2246822519u;
  bits = (bits ^ (bits >> 15)) * 2246822519u;
  bits = (bits ^ (bits >> 13)) * 3266489917u;
  return static_cast<float>(static_cast<int>(bits ^ (bits >> 16))) * 0x1p-31F;
}

// About normal, and as large as quantized codes are.
static __global__ void fill_codes(std::uint8_t* codes, std::uint32_t seed) {
  const std::uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0.0F;
  for (std::uint32_t draw = 0; draw < 4; ++draw) sum += uniform(at, 4 * seed + draw);
  codes[at] = __nv_cvt_float_to_fp8(sum * 112.0F, __NV_SATFINITE, __NV_E4M3);
}

static __global__ void fill_scales(float* scales, int count, std::uint32_t seed) {
  const int at = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (at < count)
    scales[at] = 0x1p-8F * (1.0F + 0.5F * uniform(static_cast<std::uint32_t>(at), seed));
}

static __global__ void count_differences(const std::uint32_t* one, const std::uint32_t* other,
                                         unsigned* count) {
  const std::uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  if (one[at] != other[at]) atomicAdd(count, 1u);
}

inline constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  // several times L2
inline constexpr std::size_t kSpent = 24;                           // maximum number of versions
inline constexpr std::size_t kSlots = 1024;  // of warpgroups with partial sums

// Operands and results for M = N = K.
struct Data {
  int size, k_blocks, row_pitch;
  std::uint8_t *rows, *cols;
  float *row_scales, *col_scales;
  std::uint16_t *out, *first;
  unsigned char* flush;
  float4* partial;
  unsigned long long* ready;
  long long* spent;
  unsigned* differences;

  explicit Data(int of) : size(of), k_blocks(of / 128), row_pitch((of + 255) / 192 * 192) {
    const int row_numbers = row_pitch * k_blocks, col_numbers = k_blocks * k_blocks;
    rows = allocate<std::uint8_t>(values());
    cols = allocate<std::uint8_t>(values());
    row_scales = allocate<float>(static_cast<std::size_t>(row_numbers));
    col_scales = allocate<float>(static_cast<std::size_t>(col_numbers));
    out = allocate<std::uint16_t>(values());
    first = allocate<std::uint16_t>(values());
    flush = allocate<unsigned char>(kFlushBytes);
    partial = allocate<float4>(kSlots * 128 * 16);
    ready = allocate<unsigned long long>(kSlots);
    must(cudaMemset(ready, 0, kSlots * sizeof(*ready)), "clear");
    spent = allocate<long long>(2 * kSpent);
    differences = allocate<unsigned>(1);
    const auto grid = static_cast<unsigned>(values() / 256);
    fill_codes<<<grid, 256>>>(rows, 1);
    fill_codes<<<grid, 256>>>(cols, 2);
    fill_scales<<<row_numbers / 256 + 1, 256>>>(row_scales, row_numbers, 3);
    fill_scales<<<col_numbers / 256 + 1, 256>>>(col_scales, col_numbers, 4);
    must(cudaDeviceSynchronize(), "fill");
  }
  [[nodiscard]] std::size_t values() const {
    return static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  ~Data() {
    const std::initializer_list<void*> all = {
        rows, cols, row_scales, col_scales, out, first, flush, partial, ready, spent, differences};
    for (void* memory : all) cudaFree(memory);
  }
};

// ---- expected results

// Some rows in f64 and how far from them a result may be.
//
// The tensor cores sum 32 products and the accumulator C. All 33 are truncated to multiples of 2^(E
// - 13), 2^E being no more than the largest of |C| and of 2^(exponent of a code + exponent of the
// other); the sum is truncated to 13 bits of its own. So an instruction is off by less than 33
// units of that and by 2^-13 of |C| (docs/numerics/gemm.md), and four of them make a run. Besides,
// the product of scales has a rounding, and every run one where it is promoted to f32: at most
// (runs + 2) 2^-24 of all that is added; and the result has one to bf16, 2^-8 of it.
struct Wanted {
  std::vector<int> rows;
  std::vector<double> values, bounds;

  explicit Wanted(const Data& data) : rows{0, 77, 190, data.size / 2 + 5, data.size - 1} {
    const auto size = static_cast<std::size_t>(data.size);
    const auto cols = fetch(data.cols, size * size);
    const auto row_scales = fetch(data.row_scales, static_cast<std::size_t>(data.row_pitch) *
                                                       static_cast<std::size_t>(data.k_blocks));
    const auto col_scales =
        fetch(data.col_scales, static_cast<std::size_t>(data.k_blocks * data.k_blocks));
    double value[256], lead[256];
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      value[code] = (code & 128) != 0 ? -magnitude : magnitude;
      lead[code] = magnitude == 0 ? 0.0 : std::ldexp(1.0, std::max(exponent, 1) - 7);
    }
    std::vector<double> a(size), a_lead(size);
    for (const int row : rows) {
      const auto codes = fetch(data.rows + static_cast<std::size_t>(row) * size, size);
      for (std::size_t k = 0; k < size; ++k) {
        a[k] = value[codes[k]];
        a_lead[k] = lead[codes[k]];
      }
      for (int col = 0; col < data.size; ++col) {
        const std::uint8_t* const b = &cols[static_cast<std::size_t>(col) * size];
        double sum = 0, off = 0, all = 0;
        for (int block = 0; block < data.k_blocks; ++block) {
          double run = 0, run_off = 0;
          for (int step = 0; step < 4; ++step) {
            double largest = std::abs(run) + run_off;
            for (int i = 0; i < 32; ++i) {
              const auto k = static_cast<std::size_t>(block * 128 + step * 32 + i);
              run += a[k] * value[b[k]];
              largest = std::max(largest, a_lead[k] * lead[b[k]]);
            }
            run_off += 33 * 0x1p-13 * largest;
            run_off += 0x1p-13 * (std::abs(run) + run_off);
          }
          const double scale =
              static_cast<double>(
                  row_scales[static_cast<std::size_t>(block * data.row_pitch + row)]) *
              static_cast<double>(
                  col_scales[static_cast<std::size_t>(col / 128 * data.k_blocks + block)]);
          sum += run * scale;
          off += run_off * scale;
          all += (std::abs(run) + run_off) * scale;
        }
        off += (data.k_blocks + 2) * 0x1p-24 * all;
        values.push_back(sum);
        bounds.push_back(off + 0x1p-8 * (std::abs(sum) + off));
      }
    }
  }

  // The largest error of the result, as a fraction of the bound; NaN where an element was not
  // stored.
  [[nodiscard]] double error_of(const Data& data) const {
    const auto size = static_cast<std::size_t>(data.size);
    double largest = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto made = fetch(data.out + static_cast<std::size_t>(rows[r]) * size, size);
      for (std::size_t col = 0; col < size; ++col) {
        const auto result = std::bit_cast<float>(std::uint32_t{made[col]} << 16);
        const double error =
            std::abs(static_cast<double>(result) - values[r * size + col]) / bounds[r * size + col];
        if (!(error <= largest)) largest = error;
        if (std::isnan(error)) return error;
      }
    }
    return largest;
  }
};

}  // namespace octavo::cuda::ladder

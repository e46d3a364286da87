// GEMM of MXFP4 and MXFP6 on the FP8 tensor cores: codes of six bits or fewer are transcoded to
// e4m3, which has all their values. Scales are unchanged.
#include <algorithm>
#include <optional>

#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/gemm/gemm_exact_types.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBits = 6;

struct CodeTable {
  unsigned char of[1 << kMaxBits];
};

CodeTable table_of(const Format& format) {
  CodeTable table{};
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code)
    table.of[code] =
        static_cast<unsigned char>(encode_value(e4m3fn, decode(format, code), {}).code);
  return table;
}

// Eight codes per thread. The lookup table is 16 words in 16 banks: no bank conflicts.
__global__ void __launch_bounds__(kThreads)
    recode_kernel(const __grid_constant__ Matrix from, const __grid_constant__ CodeTable table,
                  unsigned char* to, std::int64_t pitch, int stored_bits, bool vectors) {
  __shared__ unsigned char codes_of[1 << kMaxBits];
  if (threadIdx.x < (1 << kMaxBits)) codes_of[threadIdx.x] = table.of[threadIdx.x];
  __syncthreads();
  const std::int64_t vector = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t first = vector * kVector;
  if (first >= from.cols) return;
  for (std::int64_t row = blockIdx.y; row < from.rows; row += gridDim.y) {
    std::uint32_t codes[kVector];
    if (vectors) {
      load_codes(row_start(from, row), vector, stored_bits, codes);
    } else {
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        codes[i] = first + i < from.cols ? load_code(from, row, first + i) : 0;
    }
#pragma unroll
    for (int i = 0; i < kVector; ++i) codes[i] = codes_of[codes[i] & ((1 << kMaxBits) - 1)];
    // Rows of `to` have room for whole vectors.
    reinterpret_cast<uint2*>(to + row * pitch)[vector] = packed_bytes(codes);
  }
}

bool is_small(const GemmOperand& operand) {
  if (!operand.is_quantized()) return false;
  const Format& format = operand.quantized.codes.format;
  return format.bits() <= kMaxBits && !format.has_nan() && !format.has_inf &&
         holds(e4m3fn, reach_of(format));
}

// The operand with e4m3 codes at `memory`; used with any memory to test what kernels accept.
GemmOperand recoded(const GemmOperand& operand, void* memory, std::int64_t pitch) {
  GemmOperand made = operand;
  made.quantized.codes = {.data = memory,
                          .dtype = DType::code,
                          .format = e4m3fn,
                          .rows = operand.rows(),
                          .cols = operand.cols(),
                          .row_pitch = pitch,
                          .col_stride = 1};
  return made;
}

class Recoded {
 public:
  Recoded(const Exec& exec, const GemmOperand& operand)
      : pitch_((operand.cols() + 15) / 16 * 16),
        memory_(exec, static_cast<std::size_t>(pitch_ * operand.rows())),
        made_(recoded(operand, memory_.as<void>(), pitch_)) {
    const Matrix& codes = operand.quantized.codes;
    const std::int64_t vectors = (codes.cols + kVector - 1) / kVector;
    const dim3 grid(blocks_for(vectors, kThreads),
                    static_cast<unsigned>(std::min<std::int64_t>(codes.rows, 65535)));
    recode_kernel<<<grid, kThreads, 0, stream_of(exec)>>>(
        codes, table_of(codes.format), memory_.as<unsigned char>(), pitch_, stored_bits_of(codes),
        has_vectors(codes));
    OCTAVO_CUDA_LAUNCHED("recode_kernel");
  }
  [[nodiscard]] const GemmOperand& operand() const { return made_; }

 private:
  std::int64_t pitch_;
  Scratch memory_;
  GemmOperand made_;
};

}  // namespace

bool fits_recoded(const GemmJob& job) {
  if (job.accumulator != Accumulator::native || (!is_small(job.a) && !is_small(job.b)))
    return false;
  GemmJob made = job;
  for (GemmOperand* operand : {&made.a, &made.b})
    if (is_small(*operand))
      *operand = recoded(*operand, operand->quantized.codes.data, operand->cols());
  return fits_fp8(made) || fits_mx(made);
}

void gemm_recoded(const Exec& exec, const GemmJob& job) {
  const Exec inner = without_workspace(exec);  // the workspace is for the GEMM itself
  GemmJob made = job;
  std::optional<Recoded> a, b;
  if (is_small(job.a)) made.a = a.emplace(inner, job.a).operand();
  if (is_small(job.b)) made.b = b.emplace(inner, job.b).operand();
  fits_fp8(made) ? gemm_fp8(exec, made) : gemm_mx(exec, made);
}

}  // namespace octavo::cuda

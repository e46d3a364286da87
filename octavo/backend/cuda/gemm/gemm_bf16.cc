// GEMM on the bf16 and f16 tensor cores with f32 accumulators. Values are used as they are; codes
// are decoded to scratch first, except on the small M path. A scale that is a power of two, or has
// few bits like those of NVFP4, is multiplied into the element, exactly; other scales are applied
// to sums.
#include <algorithm>
#include <optional>

#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "octavo/backend/cuda/gemm/gemm_exact_types.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kBlock = 64;  // of K per stage
constexpr std::int64_t kSquareSide = kSquare.unit_cols();
static_assert(kSquareSide == kSquare.unit_rows());

// Rows of A (M) by FP4 weights. Up to kSmallMFp4Rows the small M kernel, which decodes in
// registers, is faster than tiles. Tiles are faster than decoding all weights to bf16 in a pass
// before a bf16 GEMM up to at least kMaxFp4Rows; f32 results, which cuBLASLt then does not do, use
// tiles for any M, as do results of row blocks.
constexpr std::int64_t kSmallMFp4Rows = 16, kMaxFp4Rows = 4096;

enum class Conversion : std::uint8_t {
  none,
  values,       // unchanged
  decoded,      // codes alone; scales are applied to sums
  dequantized,  // codes times block scales; the per-tensor scale is applied to sums
};

bool scales_wait(const GemmOperand& operand) {
  const QuantizedMatrix& q = operand.quantized;
  const std::int64_t along = tile_extent(q.tile.cols, operand.cols());
  return q.tensor_scale == nullptr && (along >= operand.cols() || along % kBlock == 0);
}

// How an operand becomes 16-bit elements. A value beyond the range of bf16 is beyond that of f32,
// too; a power of two may move one below 2^-126, where bf16 has fewer bits.
Conversion conversion_of(const GemmOperand& operand, DType dtype) {
  if (!operand.is_quantized())
    return operand.values.dtype == dtype ? Conversion::values : Conversion::none;
  const Format& wide = dtype == DType::bf16 ? bf16_format : f16_format;
  const QuantizedMatrix& q = operand.quantized;
  const Reach codes = reach_of(q.codes.format);
  if (!holds(wide, codes)) return Conversion::none;
  if (q.scales.dtype != DType::code)
    return q.scales.dtype != DType::f64 && scales_wait(operand) ? Conversion::decoded
                                                                : Conversion::none;
  if (q.scales.format == e8m0fnu)
    return dtype == DType::bf16 ? Conversion::dequantized
                                : (scales_wait(operand) ? Conversion::decoded : Conversion::none);
  return holds(wide, codes * reach_of(q.scales.format)) ? Conversion::dequantized
                                                        : Conversion::none;
}

bool scales_change(const GemmOperand& operand, Conversion conversion) {
  return conversion == Conversion::decoded &&
         tile_extent(operand.quantized.tile.cols, operand.cols()) < operand.cols();
}

// The 16-bit type that holds both operands exactly, if there is one. f16 kernels have no scales
// along K.
std::optional<DType> common_type(const GemmJob& job) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Conversion a = conversion_of(job.a, dtype), b = conversion_of(job.b, dtype);
    if (a == Conversion::none || b == Conversion::none) continue;
    if (dtype == DType::bf16 || (!scales_change(job.a, a) && !scales_change(job.b, b)))
      return dtype;
  }
  return std::nullopt;
}

// An operand as the kernels take it: 16-bit elements in place of codes, and scales.
class Operand16 {
 public:
  Operand16(const Exec& exec, const GemmOperand& operand, DType dtype)
      : conversion_(conversion_of(operand, dtype)),
        unchanged_(conversion_ == Conversion::values && has_plain_rows(operand.values)),
        pitch_((operand.cols() * kBytes + 15) / 16 * 16),
        memory_(exec, unchanged_ ? 0 : static_cast<std::size_t>(pitch_ * operand.rows())) {
    QuantizedMatrix& made = made_.quantized;
    made = operand.quantized;
    made.codes = {.data = memory_.as<void>(),
                  .dtype = dtype,
                  .rows = operand.rows(),
                  .cols = operand.cols(),
                  .row_pitch = pitch_,
                  .col_stride = kBytes};
    if (conversion_ == Conversion::decoded) {
      decode_matrix(exec, operand.quantized.codes, made.codes);
      return;
    }
    if (unchanged_) made.codes = operand.values;
    if (conversion_ == Conversion::values && !unchanged_)
      copy_rows(exec, operand.values, made.codes);
    if (conversion_ == Conversion::dequantized) {
      QuantizedMatrix blocks = operand.quantized;
      blocks.tensor_scale = nullptr;
      dequantize_matrix(exec, blocks, made.codes);
    }
    float* scale = operand.quantized.tensor_scale;
    made.scales = {.data = scale != nullptr ? scale : scale_of_one(),
                   .dtype = DType::f32,
                   .rows = 1,
                   .cols = 1,
                   .row_pitch = sizeof(float),
                   .col_stride = sizeof(float)};
    made.tile = {};
    made.tensor_scale = nullptr;
  }
  [[nodiscard]] const GemmOperand& operand() const { return made_; }
  [[nodiscard]] bool changes_along_k() const { return scales_change(made_, conversion_); }

 private:
  static constexpr std::int64_t kBytes = 2;

  Conversion conversion_;
  bool unchanged_;
  std::int64_t pitch_;
  Scratch memory_;
  GemmOperand made_{};
};

// Whether A can be given as bf16 rows at multiples of 16 bytes with a per-tensor scale, and the job
// meets the other conditions of the small M and FP4 kernels.
bool fits_rows_of_bf16(const GemmJob& job) {
  if ((job.accumulator != Accumulator::f32 && job.accumulator != Accumulator::native) ||
      job.out.dtype == DType::f64 || job.group_count > 0)
    return false;
  const Conversion conversion = conversion_of(job.a, DType::bf16);
  return conversion == Conversion::dequantized ||
         (conversion == Conversion::values && fits_tensor_map(job.a.values));
}

}  // namespace

bool fits_small_m_by_fp4(const GemmJob& job) {
  return job.a.rows() <= kMaxSmallMFp4 && fits_fp4(job);
}

// A product of a group must have the order of sums of the grouped GEMM.
bool fits_small_m_by_fp8(const GemmJob& job) {
  return job.a.rows() <= kMaxSmallMFp8 && !job.is_group && fits_small_m_fp8_weights(job.b) &&
         fits_rows_of_bf16(job);
}

void gemm_small_m_by_fp8(const Exec& exec, const GemmJob& job) {
  const Operand16 a(without_workspace(exec), job.a, DType::bf16);
  const QuantizedMatrix& x = a.operand().quantized;
  gemm_small_m_fp8(exec, x.codes, static_cast<const float*>(x.scales.data), job);
}

bool fits_fp4(const GemmJob& job) {
  if (!fits_small_m_fp4_weights(job.b) || !fits_rows_of_bf16(job)) return false;
  const bool in_tiles = job.a.rows() <= kMaxFp4Rows || job.out.dtype == DType::f32;
  return job.a.rows() <= kMaxSmallMFp4 || (in_tiles && fits_fp4_tiles(job));
}

void gemm_fp4(const Exec& exec, const GemmJob& job) {
  const Operand16 a(without_workspace(exec), job.a, DType::bf16);
  const QuantizedMatrix& x = a.operand().quantized;
  const auto* const scale = static_cast<const float*>(x.scales.data);
  if (job.a.rows() <= kSmallMFp4Rows || !fits_fp4_tiles(job))
    return gemm_small_m_fp4(exec, x.codes, scale, job);
  gemm_fp4_tiles(exec, x.codes, scale, job);
}

bool fits_bf16(const GemmJob& job) {
  return sizes_fit(job) &&
         (job.accumulator == Accumulator::f32 || job.accumulator == Accumulator::native) &&
         common_type(job).has_value();
}

void gemm_bf16(const Exec& exec, const GemmJob& job) {
  const Exec inner = without_workspace(exec);  // the workspace is for the GEMM itself
  const DType dtype = common_type(job).value();
  const Operand16 a(inner, job.a, dtype), b(inner, job.b, dtype);
  GemmJob made = job;
  made.a = a.operand();
  made.b = b.operand();
  if (gemm_cublaslt_if_chosen(exec, made)) return;
  // Large tiles (kSquare), where there are enough of them for all SMs.
  const auto squares = [](std::int64_t size) { return (size + kSquareSide - 1) / kSquareSide; };
  const bool large = job.group_count == 0 &&
                     std::min(job.a.rows(), job.b.rows()) > kSquareSide / 2 &&
                     squares(job.a.rows()) * squares(job.b.rows()) >= clusters_on(exec, 2);
  gemm_fp8(exec, made, large && !a.changes_along_k() && !b.changes_along_k() ? &kSquare : nullptr);
}

}  // namespace octavo::cuda

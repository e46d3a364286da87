// GEMM of MX operands on the FP8 tensor cores. Launches, in this order: exponents aligned by row
// and a GEMM, exponents aligned by 128 columns and a GEMM, and a GEMM of unaligned operands in bf16
// (gemm_mx_exact.cu). A number on the device (AlignMode) gates them: kernels of the modes that are
// not wanted exit at once.
#include <optional>

#include "octavo/backend/align_job.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/quantize/exponent_alignment.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

std::size_t round_up(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
}

bool is_mx(const GemmOperand& operand) {
  const QuantizedMatrix& q = operand.quantized;
  return operand.is_quantized() && is_fp8_format(q.codes.format) &&
         (operand.cols() <= 1 || q.codes.col_stride == 1) && q.tensor_scale == nullptr &&
         q.scales.dtype == DType::code && q.scales.format == e8m0fnu && q.tile.rows == 1 &&
         q.tile.cols == kMxBlock && operand.cols() > kMxBlock;
}

// An operand with exponents aligned by row, or by 128 columns, in the same memory. At most one of
// the two is valid, and only the device knows which.
class Aligned {
 public:
  Aligned(const Exec& exec, const GemmOperand& operand, AlignFound* found,
          unsigned long long* changed)
      : rows_(operand.rows()),
        cols_(operand.cols()),
        code_pitch_((cols_ + 15) / 16 * 16),
        plane_pitch_((rows_ + 3) / 4 * 4),
        codes_bytes_(round_up(code_pitch_ * rows_)),
        memory_(exec,
                codes_bytes_ + round_up(plane_pitch_ * ((cols_ + kAlignRun - 1) / kAlignRun) * 4)) {
    const Matrix& codes = operand.quantized.codes;
    job_ = {.from = operand.quantized,
            .found = found,
            .codes = memory_.as<unsigned char>(),
            .code_pitch = code_pitch_,
            .planes = planes(),
            .plane_pitch = plane_pitch_,
            .changed = changed,
            .vectors = has_aligned_rows(codes, 16)};
  }

  void by_row(const Exec& exec) const { align_by_row(exec, job_); }
  void by_columns(const Exec& exec) const { align_by_columns(exec, job_); }

  [[nodiscard]] GemmOperand operand(bool by_row) const {
    GemmOperand made;
    QuantizedMatrix& q = made.quantized;
    q.codes = {.data = memory_.as<void>(),
               .dtype = DType::code,
               .format = job_.from.codes.format,
               .rows = rows_,
               .cols = cols_,
               .row_pitch = code_pitch_,
               .col_stride = 1};
    q.tile = {1, by_row ? 0 : kAlignRun};
    q.scales = {.data = planes(),
                .dtype = DType::f32,
                .rows = rows_,
                .cols = tile_count(q.tile.cols, cols_),
                .row_pitch = sizeof(float),
                .col_stride = plane_pitch_ * static_cast<std::int64_t>(sizeof(float))};
    return made;
  }

 private:
  [[nodiscard]] float* planes() const {
    return reinterpret_cast<float*>(memory_.as<unsigned char>() + codes_bytes_);
  }
  std::int64_t rows_, cols_, code_pitch_, plane_pitch_;
  std::size_t codes_bytes_;
  Scratch memory_;
  AlignJob job_{};
};

}  // namespace

bool fits_mx(const GemmJob& job) {
  if (job.accumulator != Accumulator::native || (!is_mx(job.a) && !is_mx(job.b))) return false;
  GemmJob aligned = job;  // as after alignment, for what else the FP8 kernels require
  for (GemmOperand* operand : {&aligned.a, &aligned.b})
    if (is_mx(*operand)) {
      operand->quantized.tile.cols = 0;
      operand->quantized.scales.cols = 1;
    }
  return fits_fp8(aligned);
}

void gemm_mx(const Exec& exec, const GemmJob& job) {
  const Exec inner = without_workspace(exec);  // the workspace is for the GEMM itself
  const Scratch memory(inner, sizeof(AlignFound));
  memory.clear();
  auto* const found = memory.as<AlignFound>();
  std::optional<Aligned> a, b;
  if (is_mx(job.a)) a.emplace(inner, job.a, found, job.aligned);
  if (is_mx(job.b)) b.emplace(inner, job.b, found, job.aligned);
  const auto predicate = [&](AlignMode mode) {
    return LaunchPredicate{.number = &found->mode, .wanted = static_cast<unsigned>(mode)};
  };
  const auto multiply = [&](AlignMode mode) {
    GemmJob part = job;
    if (a) part.a = a->operand(mode == AlignMode::by_row);
    if (b) part.b = b->operand(mode == AlignMode::by_row);
    const LaunchPredicate its = predicate(mode);
    gemm_fp8(exec, part, nullptr, &its);
  };
  if (a) a->by_row(inner);
  if (b) b->by_row(inner);
  multiply(AlignMode::by_row);
  if (a) a->by_columns(inner);
  if (b) b->by_columns(inner);
  multiply(AlignMode::by_columns);
  gemm_mx_exact(exec, job, predicate(AlignMode::as_they_are));
  if (job.aligned != nullptr) take_count(inner, found, job.aligned);
}

}  // namespace octavo::cuda

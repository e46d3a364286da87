#include "octavo/backend/cuda/attention/forward/forward_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/backend/cuda/attention/forward/forward_kernel_shape.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

// What indices in f32 and int32 allow, with room for sums.
constexpr std::int64_t kMostRows = 1 << 30, kMostWork = 1 << 30;
constexpr float kFastFactor = 256.0F;  // p_factor that the kernel of `fast` has built in

// The head size that a kernel pads to; 0: none.
int padded_depth(std::int64_t depth) {
#ifdef OCTAVO_CUDA_ONE_CONFIG
  return depth <= 128 ? 128 : 0;
#else
  return depth <= 64 ? 64 : depth <= 128 ? 128 : depth <= 256 ? 256 : 0;
#endif
}

bool is_codes(const AttentionOperand& operand, const Format& format) {
  const QuantizedMatrix& q = operand.first.quantized;
  return operand.first.is_quantized() && q.codes.format == format && !q.codes.packed;
}
bool has_row_scales(const AttentionOperand& operand) {
  const QuantizedMatrix& q = operand.first.quantized;
  return tile_count(q.tile.cols, q.codes.cols) == 1;
}
bool has_column_scales(const AttentionOperand& operand) {
  const QuantizedMatrix& q = operand.first.quantized;
  return tile_count(q.tile.rows, q.codes.rows) == 1;
}
bool is_plain(const AttentionJob& job) {
  const Matrix& out = job.out.first.values;
  const auto positive = [](double x) { return x > 1e-30 && x < 1e30; };
  return job.pages.table == nullptr && job.bias.first == nullptr && job.soft_cap == 0.0 &&
         !job.dropout.exists() && positive(job.softmax_scale) && job.queries > 0 && job.keys > 0 &&
         job.batches > 0 && job.heads > 0 && job.queries <= kMostRows && job.keys <= kMostRows &&
         job.values != DType::f64 &&
         (out.dtype == DType::f32 || out.dtype == DType::f16 || out.dtype == DType::bf16) &&
         out.col_stride == element_bytes(out.dtype, {}) &&
         job.batches * job.heads * ((job.queries + 63) / 64) <= kMostWork &&
         (job.ranges == nullptr || (job.range_count <= kMostWork / kRangeParts &&
                                    (job.key_shift == nullptr || job.log_sum_exp == nullptr)));
}

// Values as bf16, or codes that it holds with scales of channels.
bool fits_values(const AttentionOperand& v) {
  if (!v.first.is_quantized()) return v.first.values.dtype != DType::f64;
  const Matrix& codes = v.first.quantized.codes;
  return !codes.packed && codes.format.bits() == 8 && fits_bf16(codes.format) &&
         has_column_scales(v) && v.first.quantized.scales.dtype != DType::f64;
}

std::optional<ForwardForm> form_of(const AttentionJob& job) {
  const bool q_codes = job.q.first.is_quantized(), k_codes = job.k.first.is_quantized();
  if (job.p == AttentionP::f32 || job.p == AttentionP::f64 || job.p == AttentionP::f16 ||
      job.p == AttentionP::fp8_normalized || q_codes != k_codes || !fits_values(job.v))
    return std::nullopt;
  if (!q_codes)
    return job.p == AttentionP::bf16 && job.values == DType::bf16 && !job.v.first.is_quantized() &&
                   job.q.first.values.dtype != DType::f64 && job.k.first.values.dtype != DType::f64
               ? std::optional(ForwardForm::bf16)
               : std::nullopt;
  if (!has_row_scales(job.q) || !has_row_scales(job.k)) return std::nullopt;
  // Values that are not bf16 and are not rounded to it stay what they are.
  if (!job.v.first.is_quantized() && job.v.first.values.dtype != DType::bf16 &&
      job.values != DType::bf16)
    return std::nullopt;
  if (is_codes(job.q, mxint8) && is_codes(job.k, mxint8))
    return job.p == AttentionP::bf16 ? std::optional(ForwardForm::balanced) : std::nullopt;
  if (!is_codes(job.q, e4m3fn) || !is_codes(job.k, e4m3fn)) return std::nullopt;
  // MX operands are for finer weights.
  const bool fast = job.p == AttentionP::fp8 && job.p_factor == kFastFactor &&
                    is_codes(job.v, e4m3fn) && job.k.first.quantized.scales.dtype == DType::f32 &&
                    job.q.first.cols() <= 128 && job.v.first.cols() <= 128;
  return fast ? ForwardForm::fast : ForwardForm::strict;
}

}  // namespace

bool has_plain_scales(const AttentionOperand& operand, bool of_rows) {
  const QuantizedMatrix& q = operand.first.quantized;
  const std::int64_t tile = of_rows ? q.tile.rows : q.tile.cols,
                     size = of_rows ? q.codes.rows : q.codes.cols;
  return q.scales.dtype == DType::f32 && q.tensor_scale == nullptr &&
         (tile == 1 || tile_count(tile, size) == 1);
}

bool fits_heads_map(const AttentionOperand& operand, std::int64_t heads, std::int64_t batches) {
  const Matrix& matrix = operand.first.elements();
  const auto fits = [](std::int64_t pitch, std::int64_t count) {
    return count <= 1 || (pitch > 0 && pitch % 16 == 0);
  };
  return (matrix.cols <= 1 || matrix.col_stride == element_bytes(matrix.dtype, matrix.format)) &&
         matrix.row_pitch > 0 && has_aligned_pitch(matrix, 16) && fits(operand.head_pitch, heads) &&
         fits(operand.batch_pitch, batches);
}

std::optional<ForwardChoice> forward_choice(const AttentionJob& job) {
  if (!is_plain(job)) return std::nullopt;
  const std::optional<ForwardForm> form = form_of(job);
  const std::int64_t depth = job.q.first.cols(), width = job.v.first.cols();
  const int padded = padded_depth(std::max(depth, width));
  if (!form || padded == 0 || depth == 0 || width == 0) return std::nullopt;
  ForwardChoice choice{.form = *form, .depth = padded};
  choice.is_uneven = job.left >= 0 || job.right >= 0 || job.query_lengths != nullptr ||
                     job.key_lengths != nullptr || job.ranges != nullptr;
  const auto direct = [&](const AttentionOperand& operand, std::int64_t heads) {
    return operand.first.elements().dtype == DType::bf16 &&
           fits_heads_map(operand, heads, job.batches);
  };
  choice.copies_v = choice.form == ForwardForm::fast || !direct(job.v, job.kv_heads);
  if (choice.copies_v && width % (choice.form == ForwardForm::fast ? 16 : 8) != 0)
    return std::nullopt;
  if (choice.form == ForwardForm::bf16) {
    choice.copies_q = !direct(job.q, job.heads);
    choice.copies_k = !direct(job.k, job.kv_heads);
    if ((choice.copies_q || choice.copies_k) && depth % 8 != 0) return std::nullopt;
    return choice;
  }
  if (!fits_heads_map(job.q, job.heads, job.batches) ||
      !fits_heads_map(job.k, job.kv_heads, job.batches))
    return std::nullopt;
  const QuantizedMatrix& k = job.k.first.quantized;
  // One scale for a head needs no array of scales; kernels of balanced and of 256 have no such
  // form.
  choice.key_scales = choice.form == ForwardForm::balanced || padded > 128 ||
                      tile_count(k.tile.rows, k.codes.rows) > 1 || !has_plain_scales(job.k, true);
  choice.copies_q_scales = !has_plain_scales(job.q, true);
  choice.copies_v_scales = job.v.first.is_quantized() && !has_plain_scales(job.v, false);
  return choice;
}

ForwardTile forward_tile(const ForwardChoice& choice) {
  const auto tile_of = [&]<ForwardForm kForm>() -> ForwardTile {
    const auto tile = [&]<int kDepth>() -> ForwardTile {
      using Kernel = ForwardKernel<kForm, kDepth, true>;
      return ForwardTile{Kernel::kRows, Kernel::kKeys, Kernel::kLine};
    };
    if (choice.depth == 64) return tile.template operator()<64>();
    if (choice.depth == 128) return tile.template operator()<128>();
    return tile.template operator()<256>();
  };
  switch (choice.form) {
    case ForwardForm::bf16:
      return tile_of.template operator()<ForwardForm::bf16>();
    case ForwardForm::fast:
      if (choice.depth > 128) return {};
      return choice.depth == 64
                 ? ForwardTile{ForwardKernel<ForwardForm::fast, 64, true>::kRows, 128, 64}
                 : ForwardTile{ForwardKernel<ForwardForm::fast, 128, true>::kRows, 128, 128};
    default:
      return tile_of.template operator()<ForwardForm::strict>();
  }
}

}  // namespace octavo::cuda

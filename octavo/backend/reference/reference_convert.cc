#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/decode.h"
#include "octavo/round/encode.h"
#include "octavo/round/stochastic.h"

namespace octavo::reference {

void encode_matrix(const Exec&, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy, Counts* counts) {
  const FpEnvGuard guard;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      std::uint32_t random = 0;
      if (policy.rounding == Rounding::stochastic) {
        const std::uint64_t index =
            policy.first_index + static_cast<std::uint64_t>(row * values.cols + col);
        random = stochastic_draw(policy.seed, index, policy.stochastic_bits);
      }
      const Encoded encoded =
          encode_value(codes.format, load_value(values, row, col), policy, random);
      store_code(codes, row, col, encoded.code);
      if (counts != nullptr) *counts += {encoded.saturated, encoded.flushed, encoded.nan};
    }
  }
}

void decode_matrix(const Exec&, const Matrix& codes, const Matrix& values) {
  const FpEnvGuard guard;
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    for (std::int64_t col = 0; col < codes.cols; ++col) {
      store_value(values, row, col, decode(codes.format, load_code(codes, row, col)));
    }
  }
}

std::int64_t count_nan(const Exec&, const Matrix& values) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      const double value = load_value(values, row, col);
      count += value != value;
    }
  }
  return count;
}

const Kernels kReferenceKernels{.name = "reference",
                                .description = "scalar loops that define every result",
                                .encode = encode_matrix,
                                .decode = decode_matrix,
                                .quantize = quantize_matrix,
                                .dequantize = dequantize_matrix,
                                .amax = amax_matrix,
                                .count_magnitudes = count_magnitudes,
                                .add_fit_squares = add_fit_squares,
                                .tensor_scale = tensor_scale,
                                .align_exponents = align_exponents_matrix,
                                .produce = produce_matrix,
                                .rope = rope,
                                .fuses = fuses,
                                .delayed_update = delayed_update,
                                .gemm = gemm,
                                .column_sums = column_sums,
                                .attention = attention,
                                .attention_backward = attention_backward,
                                .attention_prepare = attention_prepare,
                                .attention_statistics = attention_statistics,
                                .count_nan = count_nan,
                                .row_error = row_error,
                                .row_error_reads_codes = row_error_reads_codes,
                                .largest_bits = largest_bits,
                                .subtract_f64 = subtract_f64,
                                .transpose = transpose,
                                .encode_scaled = encode_scaled_matrix,
                                .decode_scaled = decode_scaled_matrix,
                                .append_tokens = append_tokens,
                                .attention_norms = attention_norms,
                                .attention_rounding = attention_rounding};

}  // namespace octavo::reference

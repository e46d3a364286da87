// Scaled conversions by their definition: products in integers, rounded once.
#include "octavo/backend/reference/elements_internal.h"
#include "octavo/backend/reference/reference_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/encode.h"
#include "octavo/round/product.h"
#include "octavo/round/stochastic.h"

namespace octavo::reference {
namespace {

// The factor of an element. A dynamic one is made here, and written once.
class FactorOf {
 public:
  FactorOf(const Factors& factors, const Format& format) : factors_(factors), one_(factors.value) {
    if (factors.amax == nullptr) return;
    one_ = dynamic_factor(*factors.amax, max_value(format), factors.rule);
    if (factors.made != nullptr) *factors.made = one_;
  }
  double operator()(std::int64_t row, std::int64_t col) const {
    return factors_.is_array() ? load_value(factors_.each, row, col) : one_;
  }

 private:
  const Factors& factors_;
  double one_;
};

}  // namespace

void encode_scaled_matrix(const Exec&, const Matrix& values, const Matrix& codes,
                          const Factors& factors, const EncodePolicy& policy, Counts* counts) {
  const FpEnvGuard guard;
  const FactorOf factor_of(factors, codes.format);
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t col = 0; col < values.cols; ++col) {
      std::uint32_t random = 0;
      if (policy.rounding == Rounding::stochastic) {
        const std::uint64_t index =
            policy.first_index + static_cast<std::uint64_t>(row * values.cols + col);
        random = stochastic_draw(policy.seed, index, policy.stochastic_bits);
      }
      const double product = product_to_odd(load_value(values, row, col), factor_of(row, col));
      const Encoded encoded = encode_value(codes.format, product, policy, random);
      store_code(codes, row, col, encoded.code);
      if (counts != nullptr) *counts += {encoded.saturated, encoded.flushed, encoded.nan};
    }
  }
}

void decode_scaled_matrix(const Exec&, const Matrix& codes, const Matrix& values,
                          const Factors& factors) {
  const FpEnvGuard guard;
  const FactorOf factor_of(factors, codes.format);
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    for (std::int64_t col = 0; col < codes.cols; ++col) {
      double value = decode(codes.format, load_code(codes, row, col));
      const double factor = factor_of(row, col);
      if (value == value) {  // NaN keeps its sign
        value = factors.divide               ? value / factor
                : values.dtype == DType::f64 ? value * factor
                                             : product_to_odd(value, factor);
      }
      store_value(values, row, col, value);
    }
  }
}

}  // namespace octavo::reference

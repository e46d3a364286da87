// GptqFactor: a damped Hessian as what the column walk needs: H = M diag(d) M^T with M upper
// triangular and ones on its diagonal, columns in the order in which they are rounded.
//
// For a row of weights w and codes' values q with e = w - q the layer's squared error is e H e^T =
// sum over j of d_j r_j^2 with r_j = e_j + sum over i < j of e_i M_ij: so when the columns before j
// are rounded, column j does best to round w_j + sum of e_i M_ij. That is GPTQ's update, without
// the inverse of H that its paper factors.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/model/gptq/gptq.h"
#include "octavo/tensor/tensor.h"

namespace octavo::gptq_detail {

struct GptqFactor {
  std::int64_t width = 0;
  Tensor below{};                     // f32 [K, K]: row j has M_ij for i < j, the rest is zero
  std::vector<double> diagonal{};     // d
  std::vector<std::int64_t> order{};  // the column that is rounded i-th; empty: natural
  double damping = 0.0;               // what was added to the diagonal
};

// What can be known to be wrong before there is a Hessian. Throws what gptq() throws.
void check_gptq_options(const GptqOptions& options);

// The lower triangle of a symmetric matrix [width, width] in f64, whose memory is freed. `what`
// names it in messages. Throws what gptq() throws. A matrix of zeros counts as the identity.
[[nodiscard]] GptqFactor factor_hessian(std::vector<double> hessian, std::int64_t width,
                                        const GptqOptions& options, std::string_view what);

// `weight` by a factor that is shared by several (Q, K and V have one input).
[[nodiscard]] GptqResult gptq_with(const GptqFactor& factor, const View& weight,
                                   const Scaling& scaling, const GptqOptions& options,
                                   std::string_view what);

}  // namespace octavo::gptq_detail

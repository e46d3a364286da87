// Shared by the tests of gradients of attention: a case, its gradients, and how near they must be.
#pragma once

#include "tests/attention/attention_cases.h"

namespace octavo::testing {

struct Gradients {
  Tensor q, k, v, sinks{};
};

struct BackwardCase {
  std::string name;
  Sizes sizes;
  AttentionMask mask{};
  std::vector<std::int64_t> query_lengths{}, key_lengths{};
  DType dtype = DType::f32;
  double soft_cap = 0.0;
  std::vector<float> sinks{};
  AttentionDropout dropout{};
};

inline Gradients gradients_of(const BackwardCase& how, const Made& made, const Tensor& d_out,
                              const Kernels* backend, int threads, Log* log = nullptr) {
  AttentionMask mask = how.mask;
  mask.query_lengths = how.query_lengths;
  mask.key_lengths = how.key_lengths;
  const AttentionGradients got = attention_backward(made.q, made.k, made.v, d_out.view(),
                                                    {.rung = AttentionRung::f32,
                                                     .mask = mask,
                                                     .soft_cap = how.soft_cap,
                                                     .sinks = view_of_sinks(how.sinks),
                                                     .dropout = how.dropout,
                                                     .threads = threads,
                                                     .backend = backend,
                                                     .log = log});
  return {got.q, got.k, got.v, got.sinks};
}

inline Tensor gradient_of_out(const BackwardCase& how) {
  Sizes sizes = how.sizes;
  sizes.keys = sizes.queries;
  sizes.kv_heads = sizes.heads;
  return make_inputs(sizes, Kind::normal, 77, how.dtype).v;
}

inline void expect_near(const Tensor& got, const Tensor& want, double bound,
                        const std::string& name) {
  double error2 = 0.0, want2 = 0.0;
  std::int64_t other = 0;
  for (std::int64_t batch = 0; batch < want.shape()[0]; ++batch)
    for (std::int64_t head = 0; head < want.shape()[1]; ++head) {
      const oracle::Rows a = rows_of(want.view(), batch, head),
                         b = rows_of(got.view(), batch, head);
      for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t d = 0; d < a[i].size(); ++d) {
          if (std::isnan(a[i][d]) || std::isnan(b[i][d])) {
            other += std::isnan(a[i][d]) != std::isnan(b[i][d]);
            continue;
          }
          error2 += (a[i][d] - b[i][d]) * (a[i][d] - b[i][d]);
          want2 += a[i][d] * a[i][d];
        }
    }
  EXPECT_EQ(other, 0) << name << ": NaN elsewhere";
  EXPECT_LE(std::sqrt(error2), bound * std::sqrt(want2)) << name;
}

inline void expect_near_sinks(const Gradients& got, const Gradients& want, double bound,
                              const std::string& name) {
  if (want.sinks.owner() == nullptr) return;
  double error2 = 0.0, want2 = 0.0;
  for (std::size_t i = 0; i < want.sinks.span<float>().size(); ++i) {
    const double a = static_cast<double>(want.sinks.span<float>()[i]),
                 b = static_cast<double>(got.sinks.span<float>()[i]);
    error2 += (a - b) * (a - b);
    want2 += a * a;
  }
  EXPECT_LE(std::sqrt(error2), bound * std::sqrt(want2)) << name << ", sinks";
}

// x is at most about D sqrt(1/D) 1.5^2 for normal rows, 25 at D = 128; results of 16 bits round.
inline double bound_of(DType dtype) {
  return 1e-5 + (dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0.0);
}

}  // namespace octavo::testing

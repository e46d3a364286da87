// The oracle of norms and activations: their values and error bounds, computed in long double from
// the formulas of docs/numerics/producers.md without the library's code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace oracle {

using Long = long double;

enum class Made { layer_norm, rms_norm, gelu, gelu_tanh, relu, silu };
struct Norm {
  std::vector<double> weight{}, bias{};  // empty: left out
  double epsilon = 1e-5;
  bool zero_centred = false;
};

inline constexpr Long kU = 0x1p-24L;          // half a unit in the last place of an f32 near 1
inline constexpr Long kTiny = 0x1p-149L;      // the smallest f32
inline constexpr Long kFaintest = 0x1p-117L;  // what exp in f32 may lose below or above its range

struct Truth {
  Long value = 0;
  // From `value`: of one that computes in f64 (the reference, the CPUs), and of one in f32.
  Long bound_f64 = 0, bound_f32 = 0;
  // Inf or NaN, depending on whether an activation has become zero, which depends on the range of
  // what it was computed in.
  bool not_finite = false;
};

// What all that comes out has been through: rounded to f32.
inline Long rounded_bound(Long value) { return kU * std::fabs(value) + kTiny; }

struct RowTruth {
  std::vector<Truth> values{};
  Long mean = 0, inv_std = 0;
};

inline RowTruth norm_of(Made kind, const std::vector<double>& x, const Norm& norm) {
  const auto n = static_cast<Long>(x.size());
  Long sum = 0, sizes = 0, squares = 0;
  for (const double v : x) {
    sum += v;
    sizes += std::fabs(static_cast<Long>(v));
  }
  const bool centred = kind == Made::layer_norm;
  const Long mean = centred ? sum / n : 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  const Long inv_std = 1 / std::sqrt(squares / n + norm.epsilon);
  RowTruth row{.mean = mean, .inv_std = inv_std};
  // Terms of a sum are rounded as often as they are added to something: in f64 at most n times; in
  // f32, by a warp's 32 lanes and then a tree, n / 32 + 16 times.
  const Long gamma64 = n * 0x1p-53L, gamma32 = (n / 32 + 16) * kU;
  const Long spread = centred ? sizes / n * inv_std : 0;  // mean |x| in standard deviations
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Long weight =
        norm.weight.empty() ? 1 : static_cast<Long>(norm.weight[i]) + (norm.zero_centred ? 1 : 0);
    const Long product = (x[i] - mean) * inv_std * weight;
    const Long value = product + (norm.bias.empty() ? 0 : static_cast<Long>(norm.bias[i]));
    const auto bound = [&](Long gamma, Long u) {
      const Long shift = (gamma + u) * spread;
      return std::fabs(weight) * shift +
             std::fabs(product) * (gamma / 2 + 10 * u + shift * shift / 2) + u * std::fabs(value);
    };
    row.values.push_back({.value = value,
                          .bound_f64 = bound(gamma64, 0x1p-53L) + rounded_bound(value),
                          .bound_f32 = bound(gamma32, kU) + rounded_bound(value)});
  }
  return row;
}

inline Truth activation_of(Made kind, Long x) {
  const Long two = 2, pi = std::acos(static_cast<Long>(-1));
  Long value = 0, in_u = 0;  // the relative error in f32, in units of kU
  if (kind == Made::gelu) {
    value = x * (std::erfc(-x / std::sqrt(two)) / 2);
    in_u = 12 + 2 * x * x;
  } else if (kind == Made::gelu_tanh) {
    const Long z = std::sqrt(2 / pi) * (x + static_cast<Long>(0.044715) * x * x * x);
    value = x / (1 + std::exp(-2 * z));
    in_u = 12 + 14 * std::fabs(z);
  } else if (kind == Made::silu) {
    value = x / (1 + std::exp(-x));
    in_u = 12 + 2 * std::fabs(x);
  } else {
    value = x <= 0 ? 0 : x;
  }
  // In f64 the CPUs' exp and erfc are good to 6e-10 together: a hundredth of kU.
  const Long size = std::fabs(value);
  return {.value = value,
          .bound_f64 = kU / 64 * size,
          .bound_f32 = in_u > 0 && size > 0 ? in_u * kU * size + kFaintest : 0};
}

// `gate` is null, or what the activation is multiplied by.
inline Truth produced_of(Made kind, double x, const double* gate) {
  Truth truth = activation_of(kind, x);
  if (gate != nullptr) {
    truth.not_finite = std::isinf(*gate);
    truth.value *= *gate;
    truth.bound_f64 *= std::fabs(static_cast<Long>(*gate));
    truth.bound_f32 =
        truth.bound_f32 * std::fabs(static_cast<Long>(*gate)) + kU * std::fabs(truth.value);
  }
  truth.bound_f64 += rounded_bound(truth.value);
  truth.bound_f32 += rounded_bound(truth.value);
  return truth;
}

}  // namespace oracle

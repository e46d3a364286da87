// Shared by the tests of producers: arrays of every type with awkward values in them, and every
// producer.
#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/format/named_formats.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/norm.h"
#include "octavo/round/encode.h"
#include "octavo/tensor/tensor.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/produce_oracle.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {

inline constexpr DType kValueTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

// A dense array, and the numbers in it as they are after rounding to its type.
struct Values {
  Tensor tensor;
  std::vector<double> numbers;
};

inline Values values_of(const Shape& shape, DType dtype, const std::vector<double>& wanted) {
  Values made{.tensor = Tensor::values(shape, dtype), .numbers = {}};
  auto* bytes = static_cast<std::byte*>(made.tensor.view().data);
  const auto put = [&](std::size_t i, auto element, double value) {
    std::memcpy(bytes + i * sizeof(element), &element, sizeof(element));
    made.numbers.push_back(value);
  };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const EncodePolicy policy{.overflow = Overflow::ieee};
    if (dtype == DType::f64) {
      put(i, wanted[i], wanted[i]);
    } else if (dtype == DType::f32) {
      put(i, static_cast<float>(wanted[i]), static_cast<double>(static_cast<float>(wanted[i])));
    } else if (dtype == DType::f16) {
      const auto code =
          static_cast<std::uint16_t>(encode_value(f16_format, wanted[i], policy).code);
      put(i, code, oracle::value_of_f16(code));
    } else {
      const auto code =
          static_cast<std::uint16_t>(encode_value(bf16_format, wanted[i], policy).code);
      put(i, code, oracle::value_of_bf16(code));
    }
  }
  return made;
}

// Around zero, some of them far out, and a row that is far from zero itself.
inline std::vector<double> random_numbers(std::int64_t count, std::uint32_t seed,
                                          std::int64_t cols = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, 1.5);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) {
    double value = normal(random);
    if (random() % 16 == 0) value *= 8.0;
    if (i / cols % 5 == 3) value += 40.0;
    numbers.push_back(value);
  }
  return numbers;
}

struct NamedProducer {
  std::string name;
  oracle::Made kind;
  bool gated = false, weighted = false, biased = false, zero_centred = false;
  [[nodiscard]] bool is_norm() const {
    return kind == oracle::Made::layer_norm || kind == oracle::Made::rms_norm;
  }
};

inline void PrintTo(const NamedProducer& producer, std::ostream* out) { *out << producer.name; }

inline std::vector<NamedProducer> every_producer() {
  using oracle::Made;
  return {{"layer_norm", Made::layer_norm},
          {"layer_norm_weight", Made::layer_norm, false, true},
          {"layer_norm_bias", Made::layer_norm, false, false, true},
          {"layer_norm_weight_bias", Made::layer_norm, false, true, true},
          {"layer_norm_zero_centred", Made::layer_norm, false, true, true, true},
          {"rms_norm", Made::rms_norm},
          {"rms_norm_weight", Made::rms_norm, false, true},
          {"rms_norm_zero_centred", Made::rms_norm, false, true, false, true},
          {"gelu", Made::gelu},
          {"gelu_tanh", Made::gelu_tanh},
          {"relu", Made::relu},
          {"silu", Made::silu},
          {"geglu", Made::gelu, true},
          {"geglu_tanh", Made::gelu_tanh, true},
          {"reglu", Made::relu, true},
          {"swiglu", Made::silu, true}};
}

// A producer over an array; keeps what it points to.
struct Production {
  NamedProducer named;
  oracle::Norm norm{};
  Tensor weight{}, bias{};

  Production(const NamedProducer& of, std::int64_t cols, DType weight_type) : named(of) {
    norm.zero_centred = of.zero_centred;
    const auto vector = [&](bool wanted, std::uint32_t seed, Tensor& tensor,
                            std::vector<double>& numbers) {
      if (!wanted) return;
      Values made = values_of({cols}, weight_type, random_numbers(cols, seed));
      tensor = made.tensor;
      numbers = made.numbers;
    };
    vector(of.weighted, 71, weight, norm.weight);
    vector(of.biased, 72, bias, norm.bias);
  }

  [[nodiscard]] Produced of(const View& x, const View& mean = {}, const View& inv_std = {}) const {
    using oracle::Made;
    if (named.kind == Made::layer_norm)
      return produced(x, LayerNorm{.weight = weight.view(),
                                   .bias = bias.view(),
                                   .epsilon = norm.epsilon,
                                   .zero_centred = norm.zero_centred,
                                   .mean = mean,
                                   .inv_std = inv_std});
    if (named.kind == Made::rms_norm)
      return produced(x, RmsNorm{.weight = weight.view(),
                                 .epsilon = norm.epsilon,
                                 .zero_centred = norm.zero_centred,
                                 .inv_rms = inv_std});
    const ActivationKind kind = named.kind == Made::gelu        ? ActivationKind::gelu
                                : named.kind == Made::gelu_tanh ? ActivationKind::gelu_tanh
                                : named.kind == Made::silu      ? ActivationKind::silu
                                                                : ActivationKind::relu;
    return produced(x, Activation{.kind = kind, .gated = named.gated});
  }

  // Of one row of x.
  [[nodiscard]] oracle::RowTruth truth(const std::vector<double>& row) const {
    if (named.is_norm()) return oracle::norm_of(named.kind, row, norm);
    oracle::RowTruth truth;
    const std::size_t cols = named.gated ? row.size() / 2 : row.size();
    for (std::size_t i = 0; i < cols; ++i)
      truth.values.push_back(
          oracle::produced_of(named.kind, row[i], named.gated ? &row[cols + i] : nullptr));
    return truth;
  }
};

inline std::vector<const Kernels*> producing_backends() {
  std::vector<const Kernels*> list;
  for (const BackendInfo& info : support::every_backend())
    if (info.kernels->produce != nullptr) list.push_back(info.kernels);
  return list;
}

}  // namespace octavo::testing

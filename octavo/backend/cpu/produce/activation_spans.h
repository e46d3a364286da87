// Activations of contiguous f64, in loops that compilers vectorise (Isa::activate).
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/produce/activation_math.h"
#include "octavo/backend/producer.h"

namespace octavo::cpu {
namespace {

template <typename Activate>
void activate_each(const double* x, const double* gate, float* out, std::int64_t n,
                   const Activate& activate) {
  if (gate == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(activate(x[i]));
  } else {
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(activate(x[i]) * gate[i]);
  }
}

inline void activate_span(ProducerKind kind, const double* x, const double* gate, float* out,
                          std::int64_t n) {
  const auto with = [&](const auto& activate) { activate_each(x, gate, out, n, activate); };
  switch (kind) {
    case ProducerKind::gelu:
      return with([](double value) { return gelu_of(value); });
    case ProducerKind::gelu_tanh:
      return with([](double value) { return gelu_tanh_of(value); });
    case ProducerKind::silu:
      return with([](double value) { return silu_of(value); });
    default:
      return with([](double value) { return relu_of(value); });
  }
}

}  // namespace
}  // namespace octavo::cpu

// What layers do element by element on a CPU, in f32, beside the producers of ops: sums of hidden
// states, gates, soft-capping. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/tensor/view.h"

namespace octavo {

void multiply(std::span<float> values, float by);
// values += added.
void add(std::span<float> values, std::span<const float> added, int threads);
// cap * tanh(value / cap).
void soft_cap(std::span<float> values, double cap, int threads);

// gpt-oss: the first half of a row is the gate, the second what is gated; both are clamped to
// limit, the gate from above alone: gate * sigmoid(alpha * gate) * (up + 1).
struct ClampedGate {
  double limit = 0.0, alpha = 1.0;
};
void clamped_gate_into(std::span<const float> gate_up, std::int64_t cols, const ClampedGate& gate,
                       std::span<float> out, int threads);

// Rows of `rows` times sigmoid of their number in `gates`.
void multiply_by_sigmoid(std::span<float> rows, std::int64_t cols, std::span<const float> gates,
                         int threads);

}  // namespace octavo

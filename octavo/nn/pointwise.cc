#include <algorithm>
#include <cmath>

#include "octavo/base/thread_pool.h"
#include "octavo/nn/pointwise_internal.h"

namespace octavo {
namespace {

// Parts of about this many elements, so that a thread is worth its waking.
constexpr std::int64_t kPart = 64 * 1024;

// visit(first, last) for ranges of [0, count), each of a fixed number of elements.
template <typename Visit>
void in_parts(std::int64_t count, std::int64_t each, int threads, const Visit& visit) {
  const std::int64_t wanted = std::max<std::int64_t>(1, count * each / kPart);
  const int parts = static_cast<int>(
      std::min<std::int64_t>({wanted, std::max<std::int64_t>(count, 1), kMaxThreads}));
  parallel_for(parts, threads,
               [&](int part) { visit(count * part / parts, count * (part + 1) / parts); });
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

}  // namespace

void multiply(std::span<float> values, float by) {
  for (float& value : values) value *= by;
}

void add(std::span<float> values, std::span<const float> added, int threads) {
  in_parts(static_cast<std::int64_t>(values.size()), 1, threads,
           [&](std::int64_t first, std::int64_t last) {
             float* to = values.data();
             const float* from = added.data();
             for (std::int64_t i = first; i < last; ++i) to[i] += from[i];
           });
}

void soft_cap(std::span<float> values, double cap, int threads) {
  const auto most = static_cast<float>(cap);
  in_parts(static_cast<std::int64_t>(values.size()), 8, threads,
           [&](std::int64_t first, std::int64_t last) {
             float* to = values.data();
             for (std::int64_t i = first; i < last; ++i) to[i] = most * std::tanh(to[i] / most);
           });
}

void clamped_gate_into(std::span<const float> gate_up, std::int64_t cols, const ClampedGate& gate,
                       std::span<float> out, int threads) {
  const auto limit = static_cast<float>(gate.limit), alpha = static_cast<float>(gate.alpha);
  in_parts(static_cast<std::int64_t>(out.size()) / std::max<std::int64_t>(cols, 1), 8 * cols,
           threads, [&](std::int64_t first, std::int64_t last) {
             for (std::int64_t row = first; row < last; ++row) {
               const float* in = gate_up.data() + 2 * cols * row;
               float* to = out.data() + cols * row;
               for (std::int64_t i = 0; i < cols; ++i) {
                 const float g = std::min(in[i], limit);
                 const float up = std::clamp(in[cols + i], -limit, limit);
                 to[i] = (up + 1.0F) * (g * sigmoid(alpha * g));
               }
             }
           });
}

void multiply_by_sigmoid(std::span<float> rows, std::int64_t cols, std::span<const float> gates,
                         int threads) {
  in_parts(static_cast<std::int64_t>(gates.size()), cols, threads,
           [&](std::int64_t first, std::int64_t last) {
             for (std::int64_t row = first; row < last; ++row)
               multiply(rows.subspan(static_cast<std::size_t>(row * cols),
                                     static_cast<std::size_t>(cols)),
                        sigmoid(gates[static_cast<std::size_t>(row)]));
           });
}

}  // namespace octavo

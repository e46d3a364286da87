// Rotary position embedding: tokens are split among threads; the cosines and sines of a token are
// computed once for all heads of all sequences. About 40 ns a pair and token for those, and for the
// rest the speed of memory. Same bits as the reference.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/narrow.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/backend/rope_job.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPairs = 128;  // rotated at a time

struct Angles {
  alignas(64) float cosines[kPairs], sines[kPairs];
};

void find_angles(const RopeJob& job, std::int64_t token, std::int64_t first, std::int64_t n,
                 Angles& angles) {
  const auto position = static_cast<float>(job.first_position + token);
  for (std::int64_t i = 0; i < n; ++i) {
    const auto angle = static_cast<double>(position * job.inverse_frequencies[first + i]);
    angles.cosines[i] = static_cast<float>(std::cos(angle)) * job.factor;
    angles.sines[i] = static_cast<float>(std::sin(angle)) * job.factor;
  }
}

// Elements of both halves are read before any is written: the two may be the same memory.
void rotate_f32(const float* x, float* out, std::int64_t pairs, std::int64_t n,
                const Angles& angles) {
  alignas(64) float left[kPairs], right[kPairs];
  for (std::int64_t i = 0; i < n; ++i) {
    left[i] = x[i] * angles.cosines[i] - x[i + pairs] * angles.sines[i];
    right[i] = x[i + pairs] * angles.cosines[i] + x[i] * angles.sines[i];
  }
  std::memcpy(out, left, static_cast<std::size_t>(n) * sizeof(float));
  std::memcpy(out + pairs, right, static_cast<std::size_t>(n) * sizeof(float));
}

void rotate_bf16(const Isa& isa, const Narrower& narrow, const std::uint16_t* x, std::uint16_t* out,
                 std::int64_t pairs, std::int64_t n, const Angles& angles) {
  alignas(64) float halves[2 * kPairs];
  widen_bf16(isa, x, halves, n);
  widen_bf16(isa, x + pairs, halves + kPairs, n);
  rotate_f32(halves, halves, kPairs, n, angles);
  narrow(halves, reinterpret_cast<std::byte*>(out), n);
  narrow(halves + kPairs, reinterpret_cast<std::byte*>(out + pairs), n);
}

}  // namespace

void rope_heads(const Isa& isa, const Exec& exec, const RopeJob& job) {
  const Narrower narrow(isa, DType::bf16);
  const std::int64_t width = element_bytes(job.dtype), rotated = 2 * job.pairs;
  const auto rest = static_cast<std::size_t>((job.size - rotated) * width);
  const auto head_of = [&](const RopeOperand& of, std::int64_t batch, std::int64_t token,
                           std::int64_t head) {
    return static_cast<std::byte*>(of.data) + batch * of.batch_stride + token * of.token_stride +
           head * of.head_stride;
  };
  const std::int64_t elements = job.batches * job.tokens * job.heads * job.size;
  parallel_units(job.tokens, useful_threads(exec, elements), [&](std::int64_t token) {
    Angles angles;
    const auto each_head = [&](auto&& visit) {
      for (std::int64_t batch = 0; batch < job.batches; ++batch)
        for (std::int64_t head = 0; head < job.heads; ++head)
          visit(head_of(job.x, batch, token, head), head_of(job.out, batch, token, head));
    };
    for (std::int64_t first = 0; first < job.pairs; first += kPairs) {
      const std::int64_t n = std::min(kPairs, job.pairs - first);
      find_angles(job, token, first, n, angles);
      each_head([&](const std::byte* x, std::byte* out) {
        if (job.dtype == DType::f32)
          return rotate_f32(reinterpret_cast<const float*>(x) + first,
                            reinterpret_cast<float*>(out) + first, job.pairs, n, angles);
        rotate_bf16(isa, narrow, reinterpret_cast<const std::uint16_t*>(x) + first,
                    reinterpret_cast<std::uint16_t*>(out) + first, job.pairs, n, angles);
      });
    }
    if (rest == 0 || job.x.data == job.out.data) return;
    each_head([&](const std::byte* x, std::byte* out) {
      std::memcpy(out + rotated * width, x + rotated * width, rest);
    });
  });
}

}  // namespace octavo::cpu

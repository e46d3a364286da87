#include "octavo/backend/cpu/gemm/gemm_epilogue.h"

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/produce/activation_math.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPiece = 512;

// Adds a row of values of any type.
void add_values(const Isa& isa, const Matrix& values, std::int64_t row, std::int64_t col,
                std::int64_t n, double* to) {
  alignas(64) std::byte gathered[kPiece * 8];
  alignas(64) double wide[kPiece];
  const void* from = gather(values, row, col, n, gathered);
  switch (values.dtype) {
    case DType::f64:
      for (std::int64_t i = 0; i < n; ++i) to[i] += static_cast<const double*>(from)[i];
      return;
    case DType::f32:
      for (std::int64_t i = 0; i < n; ++i)
        to[i] += static_cast<double>(static_cast<const float*>(from)[i]);
      return;
    default:
      break;
  }
  const Decoder decoder{.format = values.dtype == DType::f16 ? f16_format : bf16_format,
                        .target = DType::f64};
  isa.decode(decoder)(decoder, from, wide, n);
  for (std::int64_t i = 0; i < n; ++i) to[i] += wide[i];
}

template <typename Function>
void each(double* values, std::int64_t n, const Function& function) {
  for (std::int64_t i = 0; i < n; ++i) values[i] = function(values[i]);
}

void activate(ProducerKind kind, double* values, std::int64_t n) {
  switch (kind) {
    case ProducerKind::gelu:
      return each(values, n, gelu_of);
    case ProducerKind::gelu_tanh:
      return each(values, n, gelu_tanh_of);
    case ProducerKind::silu:
      return each(values, n, silu_of);
    default:
      return each(values, n, relu_of);
  }
}

}  // namespace

GemmEpilogue::GemmEpilogue(const Isa& isa, const GemmJob& job)
    : isa_(isa), job_(job), narrow_(isa, job.out.dtype) {}

void GemmEpilogue::store(std::int64_t row, std::int64_t col, std::int64_t n,
                         const float* values) const {
  alignas(64) std::byte narrow[kPiece * 2];
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  if (job_.out.dtype != DType::f32) {
    narrow_(values, narrow, n);
    bytes = narrow;
  }
  scatter(job_.out, row, col, n, bytes);
}

bool GemmEpilogue::is_plain() const {
  return job_.bias.data == nullptr && !job_.activation && job_.residual.data == nullptr;
}

bool GemmEpilogue::is_plain_f32() const {
  return is_plain() && job_.out.dtype == DType::f32 && is_contiguous(job_.out);
}

float* GemmEpilogue::place_of(std::int64_t row, std::int64_t col) const {
  return reinterpret_cast<float*>(element(job_.out, row, col));
}

std::int64_t GemmEpilogue::pitch() const {
  return job_.out.row_pitch / static_cast<std::int64_t>(sizeof(float));
}

// Adding one f32 to the sum in f32 rounds as f64 followed by f32 would.
const Matrix* GemmEpilogue::only_addend() const {
  const bool has_bias = job_.bias.data != nullptr;
  const Matrix& one = has_bias ? job_.bias : job_.residual;
  const bool is_only = !job_.activation && (!has_bias || job_.residual.data == nullptr);
  return is_only && one.dtype == DType::f32 ? &one : nullptr;
}

void GemmEpilogue::operator()(std::int64_t row, std::int64_t col, std::int64_t cols,
                              const float* sums) const {
  const bool plain = is_plain();
  for (std::int64_t done = 0; done < cols; done += kPiece) {
    const std::int64_t n = std::min(kPiece, cols - done);
    if (plain) {
      store(row, col + done, n, sums + done);
      continue;
    }
    alignas(64) float rounded[kPiece];
    if (const Matrix* one = only_addend()) {
      alignas(64) std::byte gathered[kPiece * sizeof(float)];
      const auto* added = static_cast<const float*>(
          gather(*one, one == &job_.bias ? 0 : row, col + done, n, gathered));
      for (std::int64_t i = 0; i < n; ++i) rounded[i] = sums[done + i] + added[i];
      store(row, col + done, n, rounded);
      continue;
    }
    alignas(64) double values[kPiece];
    for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<double>(sums[done + i]);
    if (job_.bias.data != nullptr) add_values(isa_, job_.bias, 0, col + done, n, values);
    if (job_.activation) activate(*job_.activation, values, n);
    if (job_.residual.data != nullptr) add_values(isa_, job_.residual, row, col + done, n, values);
    for (std::int64_t i = 0; i < n; ++i) rounded[i] = static_cast<float>(values[i]);
    store(row, col + done, n, rounded);
  }
}

}  // namespace octavo::cpu

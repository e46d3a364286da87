// THE door between what is asked (convert, quant, ops) and who does it (a backend). Everything that
// crosses it is plain data that has been checked already: kernels print nothing, allocate nothing
// that grows with the data and keep nothing from one call to the next; those of a CPU throw
// nothing.
//
// On a device every pointer here, those to single numbers and counts included, is memory of that
// device, and a call returns when its work is queued on the stream (device.h has the rest).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/base/log.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"
#include "octavo/scale/delayed_step.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/tensor/quantized_view.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Where and how to run. On a device, `stream` is its queue and views point into its memory.
struct Exec {
  Device device{};
  void* stream = nullptr;
  std::span<std::byte> workspace{};
  int threads = 1;  // on a CPU: at most this many
  Log* log = nullptr;
};

// Values to quantize: a matrix of values, or (requantize) codes with scales.
struct QuantizeSource {
  Matrix values{};
  QuantizedMatrix quantized{};

  [[nodiscard]] bool is_quantized() const { return quantized.wanted(); }
  // All else is worked on in f32.
  [[nodiscard]] bool works_in_f64() const { return !is_quantized() && values.dtype == DType::f64; }
  [[nodiscard]] std::int64_t rows() const {
    return is_quantized() ? quantized.codes.rows : values.rows;
  }
  [[nodiscard]] std::int64_t cols() const {
    return is_quantized() ? quantized.codes.cols : values.cols;
  }
};

// One quantization of a matrix. Columnwise means: of the transpose, stored as such, so its matrices
// have the rows and columns of the source swapped.
struct QuantizeJob {
  QuantizeSource source{};
  QuantizedMatrix rowwise{}, columnwise{};  // either may be not wanted
  ScaleSpec scale{};
  EncodePolicy encode{};
  AmaxPolicy policy = AmaxPolicy::max;
  double percentile = 100.0;
  // Random Hadamard transform of every 16 values along a row before anything else (of the copies
  // it is asked for); bit i is the sign of element i. A group cut off by the edge is left alone.
  bool hadamard_rowwise = false, hadamard_columnwise = false;
  std::uint16_t hadamard_signs = 0;

  // Instead of looking for them: the amax of the one tile there is; or what values are multiplied
  // by, in which case the scale is its reciprocal (delayed scaling).
  const float* given_amax = nullptr;
  const float* given_inverse = nullptr;
  // Where scales have two levels: the amax that the tensor's scale was made from, if it is known.
  const float* tensor_amax = nullptr;

  float* amax = nullptr;     // if given, becomes the maximum of itself and the matrix's amax
  Counts* counts = nullptr;  // if given, is added to (rowwise copy, else columnwise)
};

// A null entry is not offered. On a CPU the caller falls back to `reference`; on a device it is an
// error, because data would have to be copied.
struct Kernels {
  const char* name = "";
  const char* description = "";

  // Values (or codes of another format) to codes; element i of row r draws stochastic bits with
  // index policy.first_index + r * cols + i. When `codes` and `values` start at the same address
  // the conversion is in place. `counts`, if given, is added to.
  void (*encode)(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                 Counts* counts) = nullptr;

  // Codes to values, rounded to nearest even where the value type is narrower than the format.
  void (*decode)(const Exec&, const Matrix& codes, const Matrix& values) = nullptr;

  void (*quantize)(const Exec&, const QuantizeJob&) = nullptr;

  // Scale times value, rounded to f32 (exact in f64), then to the type asked for.
  void (*dequantize)(const Exec&, const QuantizedMatrix&, const Matrix& values) = nullptr;

  // The largest magnitude of a matrix, of the values that `of` says; `amax` becomes the maximum of
  // itself and that.
  void (*amax)(const Exec&, const QuantizeSource&, AmaxOf of, float* amax) = nullptr;

  // The second level of two-level scales, from the amax of the whole tensor.
  void (*tensor_scale)(const Exec&, const ScaleSpec&, const Format& element, const float* amax,
                       float* scale) = nullptr;

  // The end of a step of delayed scaling; delayed_step says what happens to one tensor.
  void (*delayed_update)(const Exec&, const DelayedJob&) = nullptr;

  // How many elements are NaN. A number for the host: on a device this waits.
  std::int64_t (*count_nan)(const Exec&, const Matrix& values) = nullptr;
};

}  // namespace octavo

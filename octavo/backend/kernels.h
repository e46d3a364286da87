// THE door between what is asked (convert, quant, ops) and who does it (a backend). Everything that
// crosses it is plain data that has been checked already: kernels print nothing, allocate nothing
// that grows with the data and keep nothing from one call to the next; those of a CPU throw
// nothing.
//
// On a device every pointer here, those to single numbers and counts included, is memory of that
// device (a Producer itself is the host's, what it points to is not), and a call returns when its
// work is queued on the stream (device.h has the rest).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/backend/gemm_job.h"
#include "octavo/backend/producer.h"
#include "octavo/base/log.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"
#include "octavo/scale/delayed_step.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/tensor/quantized_view.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct MxAlignJob;  // align_job.h
// attention_job.h
struct AttentionJob;
struct AttentionBackwardJob;
struct AttentionPrepareJob;
struct AttentionStatisticsJob;
// row_error_job.h
struct RowErrorJob;
struct RowErrorSums;

// Where and how to run. On a device, `stream` is its queue and views point into its memory.
struct Exec {
  Device device{};
  void* stream = nullptr;
  std::span<std::byte> workspace{};
  int threads = 1;  // on a CPU: at most this many
  Log* log = nullptr;
};

// Values to quantize: a matrix of values, what a producer makes of one, or (requantize) codes with
// scales.
struct QuantizeSource {
  Matrix values{};
  QuantizedMatrix quantized{};
  const Producer* producer =
      nullptr;  // null: values as they are. Only where Kernels::fuses says so

  [[nodiscard]] constexpr bool is_quantized() const { return quantized.wanted(); }
  // All else is worked on in f32, all that is produced included.
  [[nodiscard]] constexpr bool works_in_f64() const {
    return !is_quantized() && producer == nullptr && values.dtype == DType::f64;
  }
  // Of what is quantized: of what is produced, where there is a producer.
  [[nodiscard]] constexpr std::int64_t rows() const {
    return is_quantized() ? quantized.codes.rows : values.rows;
  }
  [[nodiscard]] constexpr std::int64_t cols() const {
    if (is_quantized()) return quantized.codes.cols;
    return producer != nullptr ? producer->cols(values.cols) : values.cols;
  }
};

// One quantization of a matrix; columnwise: of the transpose, stored as such. Where neither copy is
// wanted, only `amax` is: of the values as a Hadamard-transformed copy would have them.
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
  const float* given_inv_scale = nullptr;
  // Where scales have two levels: the amax that the tensor's scale was made from, if it is known.
  const float* tensor_amax = nullptr;

  float* amax = nullptr;     // if given, becomes the maximum of itself and the matrix's amax
  Counts* counts = nullptr;  // if given, is added to (rowwise copy, else columnwise)
};

// Rows of Kernels::column_sums that are added up one after the other.
inline constexpr std::int64_t kColumnRun = 64;

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

  // MX codes with one power of two a row, or one for 128 columns: align_job.h.
  void (*align_exponents)(const Exec&, const MxAlignJob&) = nullptr;

  // Values to such codes in one pass over them: the bits of quantize and then fold. True where it
  // was done; else nothing was written, and the caller has both done. `mx` is the quantization,
  // whose rowwise codes are the memory of `to` and whose scales have none; `changed` as align_job.h
  // has it. Null: never.
  bool (*quantize_aligned)(const Exec&, const QuantizeJob& mx, const QuantizedMatrix& to,
                           std::int64_t* changed) = nullptr;

  // What the producer makes of x, to f32, or to f16 or bf16 by way of f32. `out` is elsewhere.
  void (*produce)(const Exec&, const Matrix& x, const Producer&, const Matrix& out) = nullptr;

  // Do quantize and amax take this job, whose source has a producer? Null: never. Where they do not
  // the caller has it produced, a few rows at a time if the scaling allows that.
  bool (*fuses)(const QuantizeJob&) = nullptr;

  // The end of a step of delayed scaling; delayed_step says what happens to one tensor.
  void (*delayed_update)(const Exec&, const DelayedJob&) = nullptr;

  // A product; one may offer some of them only: see gemm_offered. `out` shares memory with no
  // operand. Exec::workspace has at least gemm_workspace(exec, job) bytes, aligned to 64.
  void (*gemm)(const Exec&, const GemmJob&) = nullptr;
  std::int64_t (*gemm_workspace)(const Exec&, const GemmJob&) = nullptr;  // null: none
  bool (*gemm_offered)(const GemmJob&) = nullptr;                         // null: all of them

  // One row: of every column of `values` its sum, and `before`, where it has data, added to that.
  // Sums of kColumnRun rows, each from its first row on, are rows of the next ones, until there is
  // one: in f32, in f64 where values or `sums` are, then in f64 and rounded once. That order is all
  // there is to the bits, on any device. CPUs multiply by ones instead, and leave this empty.
  void (*column_sums)(const Exec&, const Matrix& values, const Matrix& before,
                      const Matrix& sums) = nullptr;

  // Attention, forward; one may offer some only. `out` shares memory with no operand. Workspace as
  // for gemm.
  void (*attention)(const Exec&, const AttentionJob&) = nullptr;
  std::int64_t (*attention_workspace)(const Exec&, const AttentionJob&) = nullptr;  // null: none
  bool (*attention_offered)(const AttentionJob&) = nullptr;  // null: all of them
  void (*attention_backward)(const Exec&, const AttentionBackwardJob&) = nullptr;
  std::int64_t (*attention_backward_workspace)(const Exec&, const AttentionBackwardJob&) = nullptr;
  bool (*attention_backward_offered)(const AttentionBackwardJob&) = nullptr;
  // `to` is other memory than `from`.
  void (*attention_prepare)(const Exec&, const AttentionPrepareJob&) = nullptr;
  void (*attention_statistics)(const Exec&, const AttentionStatisticsJob&) = nullptr;

  // How many elements are NaN. A number for the host: on a device this waits.
  std::int64_t (*count_nan)(const Exec&, const Matrix& values) = nullptr;

  // For what looks at whole files on a CPU; devices leave these empty.
  //
  // Adds a stretch of a row to error sums (row_error_job.h). Returns a bit for every block with an
  // error beyond most_error, in which something may have saturated.
  std::uint32_t (*row_error)(const Exec&, const RowErrorJob&, RowErrorSums&) = nullptr;
  // Does row_error take codes of this format as they are (mantissa_bits), faster than decoded ones?
  // Null: never.
  bool (*row_error_reads_codes)(const Format&) = nullptr;

  // The largest magnitude of so many dense values as bits, which have the order of magnitudes: Inf
  // and NaN are larger than all others.
  std::uint64_t (*largest_bits)(const Exec&, DType, const void* values,
                                std::int64_t count) = nullptr;

  // Elements of 2, 4 or 8 bytes, dense [rows, cols] to dense [cols, rows] elsewhere.
  void (*transpose)(const Exec&, const Matrix& from, const Matrix& to) = nullptr;
};

}  // namespace octavo

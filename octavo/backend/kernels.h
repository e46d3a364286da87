// The kernel interface: `Kernels`, a table of function pointers between the operations (convert,
// quant, ops) and the backends. All arguments are plain data that has been checked already: kernels
// print nothing and keep no state between calls. CPU kernels throw nothing and take memory that
// grows with the data from the workspace alone; a device's may take it from a pool (HACKING.md).
//
// On a device every pointer here, those to single numbers and counts included, is memory of that
// device (a Producer itself is in host memory, what it points to is not), and a call returns when
// its work is queued on the stream (device.h has the rest).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/backend/factors.h"
#include "octavo/backend/gemm_job.h"
#include "octavo/backend/producer.h"
#include "octavo/base/log.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"
#include "octavo/scale/delayed_job.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/tensor/quantized_view.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct MxAlignJob;  // align_job.h
struct RankDigit;   // scale/fit.h
struct RopeJob;     // rope_job.h
struct AppendJob;   // append_job.h
// attention_job.h
struct AttentionJob;
struct AttentionBackwardJob;
struct AttentionPrepareJob;
struct AttentionStatisticsJob;
// attention_norms_job.h
struct AttentionNormsJob;
struct AttentionRounding;
// row_error_job.h
struct RowErrorJob;
struct RowErrorSums;

// Where and how to run. On a device, `stream` is its queue and views point into its memory.
struct Exec {
  Device device{};
  void* stream = nullptr;
  std::span<std::byte> workspace{};
  int threads = 1;  // CPU: maximum number of threads
  Log* log = nullptr;
};

// Values to quantize: a matrix of values, the output of a producer (norm, activation) on one, or
// (requantize) codes with scales.
struct QuantizeSource {
  Matrix values{};
  QuantizedMatrix quantized{};
  const Producer* producer =
      nullptr;  // null: values as they are. Only where Kernels::fuses returns true

  [[nodiscard]] constexpr bool is_quantized() const { return quantized.wanted(); }
  // All other sources are processed in f32, the output of a producer included.
  [[nodiscard]] constexpr bool works_in_f64() const {
    return !is_quantized() && producer == nullptr && values.dtype == DType::f64;
  }
  // Shape of what is quantized: of the producer's output, where there is a producer.
  [[nodiscard]] constexpr std::int64_t rows() const {
    return is_quantized() ? quantized.codes.rows : values.rows;
  }
  [[nodiscard]] constexpr std::int64_t cols() const {
    if (is_quantized()) return quantized.codes.cols;
    return producer != nullptr ? producer->cols(values.cols) : values.cols;
  }
};

// One quantization of a matrix, into a rowwise copy, a columnwise copy (of the transpose, stored
// transposed) or both. Where neither copy is wanted, only `amax` is computed: of the values after
// the Hadamard transform of the copy.
struct QuantizeJob {
  QuantizeSource source{};
  QuantizedMatrix rowwise{}, columnwise{};  // either may be not wanted
  ScaleSpec scale{};
  EncodePolicy encode{};
  AmaxPolicy policy = AmaxPolicy::max;
  double percentile = 100.0;
  // Policy wmse, of a rowwise copy: the weight of every column's squared errors.
  const float* column_weights = nullptr;
  // Random Hadamard transform of every 16 values along a row before anything else (of the copies it
  // is asked for); bit i is the sign of element i. A group cut off by the edge is not transformed.
  // hadamard_to_bf16: its results are rounded to bf16, before any amax of them is taken.
  bool hadamard_rowwise = false, hadamard_columnwise = false, hadamard_to_bf16 = false;
  std::uint16_t hadamard_signs = 0;

  // Instead of computing them: the amax of the single tile; or inv_scale, what values are
  // multiplied by (delayed scaling; the scale is its reciprocal).
  const float* given_amax = nullptr;
  const float* given_inv_scale = nullptr;
  // Where scales have two levels: the amax that the tensor's scale was made from, if it is known.
  const float* tensor_amax = nullptr;

  float* amax = nullptr;     // if given, becomes the maximum of itself and the matrix's amax
  Counts* counts = nullptr;  // if given, is added to (rowwise copy, else columnwise)
};

// Rows that Kernels::column_sums adds in sequence.
inline constexpr std::int64_t kColumnRun = 64;

// C -= A B^T in f64. A and B are packed in panels of kF64Panel rows, each [depth][kF64Panel], the
// last one filled up with anything; C is row-major. For every element the products are added in
// order of k, and then subtracted: no bit depends on how C is cut into calls.
inline constexpr std::int64_t kF64Panel = 16;
struct F64Update {
  const double* a = nullptr;
  const double* b = nullptr;
  double* c = nullptr;
  std::int64_t pitch = 0;  // of C, in elements
  std::int64_t rows = 0, cols = 0, depth = 0;
};

// The kernel table of a backend. A null entry is not offered. On a CPU the caller falls back to
// `reference`; on a device it is an error, because data would have to be copied.
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

  // Searches for one scale of several matrices (scale/fit.h; those of one matrix are part of
  // quantize). Each call adds a matrix to results in host memory: `counts` of magnitudes that begin
  // with the digit's prefix, or the `squares` of errors of every candidate for this amax. The job
  // is that of a rowwise copy, which is not written.
  void (*count_magnitudes)(const Exec&, const QuantizeJob&, const RankDigit&,
                           std::int64_t* counts) = nullptr;
  void (*add_fit_squares)(const Exec&, const QuantizeJob&, float amax, double* squares) = nullptr;

  // The second level of two-level scales, from the amax of the whole tensor.
  void (*tensor_scale)(const Exec&, const ScaleSpec&, const Format& element, const float* amax,
                       float* scale) = nullptr;

  // MX exponent alignment: one power-of-two scale a row, or one for 128 columns (align_job.h).
  void (*align_exponents)(const Exec&, const MxAlignJob&) = nullptr;

  // Quantization and exponent alignment in one pass: the bits of quantize followed by
  // align_exponents. Returns false, with nothing written, where it cannot; the caller then calls
  // both. `mx` is the quantization, whose rowwise codes are the memory of `to` and whose scales
  // have no memory; `changed` as in align_job.h. Null: never.
  bool (*quantize_aligned)(const Exec&, const QuantizeJob& mx, const QuantizedMatrix& to,
                           std::int64_t* changed) = nullptr;

  // The producer's output on x, to f32, or to f16 or bf16 rounded from f32. `out` does not overlap
  // x.
  void (*produce)(const Exec&, const Matrix& x, const Producer&, const Matrix& out) = nullptr;

  // Rotary position embedding (rope_job.h).
  void (*rope)(const Exec&, const RopeJob&) = nullptr;

  // Do quantize and amax accept this job, whose source has a producer (fusion)? Null: never.
  // Otherwise the caller runs the producer first, by row blocks if the scaling allows that.
  bool (*fuses)(const QuantizeJob&) = nullptr;

  // The end of a step of delayed scaling; delayed_step defines the update of one tensor.
  void (*delayed_update)(const Exec&, const DelayedJob&) = nullptr;

  // GEMM; a backend may offer some jobs only (gemm_offered). `out` overlaps no operand.
  // Exec::workspace has at least gemm_workspace(exec, job) bytes, aligned to 64.
  void (*gemm)(const Exec&, const GemmJob&) = nullptr;
  std::int64_t (*gemm_workspace)(const Exec&, const GemmJob&) = nullptr;  // null: none
  bool (*gemm_offered)(const GemmJob&) = nullptr;                         // null: all of them

  // Packed weights, B of a GEMM that is packed once: the order of panels for such an operand, whose
  // codes of four bits may be two in a byte, others a byte each; no order where rows are as good.
  // Null: never. pack_panels copies rows to memory of that order, `to`, all of it.
  PanelOrder (*gemm_panels)(const GemmOperand& b) = nullptr;
  void (*pack_panels)(const Exec&, const Matrix& rows, const Matrix& to) = nullptr;

  // Column sums: one row with the sum of every column of `values`, plus `before` where it has data.
  // A tree of sums of kColumnRun rows: each run is summed from its first row on, and the run sums
  // are the rows of the next level, until one is left; in f32, or in f64 where values or `sums` are
  // (then rounded once). This order fixes the bits on every device. CPU backends multiply by ones
  // instead and leave this entry null.
  void (*column_sums)(const Exec&, const Matrix& values, const Matrix& before,
                      const Matrix& sums) = nullptr;

  // Attention forward; a backend may offer some jobs only. `out` overlaps no operand. Workspace as
  // for gemm.
  void (*attention)(const Exec&, const AttentionJob&) = nullptr;
  std::int64_t (*attention_workspace)(const Exec&, const AttentionJob&) = nullptr;  // null: none
  bool (*attention_offered)(const AttentionJob&) = nullptr;  // null: all of them
  void (*attention_backward)(const Exec&, const AttentionBackwardJob&) = nullptr;
  std::int64_t (*attention_backward_workspace)(const Exec&, const AttentionBackwardJob&) = nullptr;
  bool (*attention_backward_offered)(const AttentionBackwardJob&) = nullptr;
  // `to` does not overlap `from`.
  void (*attention_prepare)(const Exec&, const AttentionPrepareJob&) = nullptr;
  void (*attention_statistics)(const Exec&, const AttentionStatisticsJob&) = nullptr;

  // The number of NaN elements, returned to the host: on a device this call blocks.
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

  // The update of a factorisation in f64 (F64Update above). False, with nothing done, where the
  // instruction set has no kernel for it: callers have a library then.
  bool (*subtract_f64)(const Exec&, const F64Update&) = nullptr;

  // Elements of 2, 4 or 8 bytes, dense [rows, cols] to dense [cols, rows] elsewhere.
  void (*transpose)(const Exec&, const Matrix& from, const Matrix& to) = nullptr;

  // Scaled conversions. Values times factors to codes: the exact product, rounded once; `codes` and
  // `values` do not overlap. Codes to values: the exact product, rounded once to the value type; or
  // with Factors::divide the quotient, rounded to f64 and then to the value type.
  void (*encode_scaled)(const Exec&, const Matrix& values, const Matrix& codes, const Factors&,
                        const EncodePolicy&, Counts* counts) = nullptr;
  void (*decode_scaled)(const Exec&, const Matrix& codes, const Matrix& values,
                        const Factors&) = nullptr;

  // New tokens of a KV cache (append_job.h). Lengths are read and written where the cache is.
  void (*append_tokens)(const Exec&, const AppendJob&) = nullptr;

  // Certified bounds of attention (attention_norms_job.h): norms of operands, and what the kernels
  // that `attention` chooses for a job may be off by; false where no bound of theirs is derived.
  // Null: of none. Devices leave these empty.
  void (*attention_norms)(const Exec&, const AttentionNormsJob&) = nullptr;
  bool (*attention_rounding)(const AttentionJob&, AttentionRounding&) = nullptr;
};

}  // namespace octavo

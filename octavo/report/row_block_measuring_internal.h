// Measurement of one row block. Its parts: scales and the exact path (row_block_error.cc), sums in
// f32 SIMD lanes (row_block_sums.cc), histograms (row_block_histograms.cc).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "octavo/backend/row_error_job.h"
#include "octavo/report/piece_internal.h"
#include "octavo/report/row_block_error.h"

namespace octavo {

class RowBlockMeasuring {
 public:
  RowBlockMeasuring(const View& values, const QuantizedTensor& row_block,
                    const RowBlockErrorOptions& options);
  RowBlockError run();

 private:
  // Maximum number of values per segment: two f32 buffers that stay in the L1 cache. A multiple of
  // 8, so that packed codes are split at bytes.
  static constexpr std::int64_t kSegment = static_cast<std::int64_t>(kErrorBlock) * kMaxErrorBlocks;

  void scan_scales();
  [[nodiscard]] double scale_at(std::int64_t row, std::int64_t col) const;

  // As measure_error does it, whatever the values: in f64 and element by element.
  void measure_exactly();
  void take(const PieceSums& total);

  // False where f32 is not enough.
  bool measure_fast();
  void load(std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t count);
  // Of the loaded values: those of `row`, which begin at `at`.
  void add_segment(std::int64_t row, std::int64_t col, std::int64_t at, std::int64_t count);
  void add_rest(std::int64_t row, std::int64_t col, std::int64_t at, std::int64_t count);
  void find_scales(std::int64_t row, std::int64_t col, int run, std::int64_t count);
  void count_saturated(double scale, std::int64_t first, std::int64_t end);
  void count_values(std::int64_t row, std::int64_t col, std::int64_t at, std::int64_t count);
  // Results by exponent, and their codes.
  void count_results(std::int64_t row, std::int64_t col, std::int64_t count, bool and_codes);
  void count_stretch(std::int64_t row, std::int64_t col, std::int64_t first, std::int64_t count,
                     bool and_codes);
  void take_histograms();
  void take_results();
  [[nodiscard]] float value(std::int64_t i) const {
    return x_ != nullptr ? x_[i]
                         : __builtin_bit_cast(float, static_cast<std::uint32_t>(bf16_[i]) << 16);
  }
  // Before its scale.
  [[nodiscard]] float result(std::int64_t row, std::int64_t col, std::int64_t at) const {
    if (moved_mantissa_ == 0) return y_[at];
    return static_cast<float>(job_.decoded[std::to_integer<std::size_t>(*code_address(row, col))]);
  }
  [[nodiscard]] std::byte* code_address(std::int64_t row, std::int64_t col) const;
  static std::size_t exponent_field(float x) {
    return __builtin_bit_cast(std::uint32_t, x) >> 23 & 0xFF;
  }

  RowBlockErrorOptions options_;
  Measurement job_;
  RowBlockError out_;
  bool by_code_ = false;
  std::array<double, 256> table_{};        // scales by their code
  std::array<float, 256> narrow_table_{};  // and for the lanes
  double half_step_ = 0;
  float most_error_ = 0;           // see RowErrorJob
  bool codes_show_zeros_ = false;  // a result is zero where its code, a byte, is
  int moved_mantissa_ = 0;         // codes are not decoded beforehand
  float unit_ = 1;                 // and what run_scales_ are times then
  decltype(Kernels::row_error) row_error_entry_ = nullptr;
  bool reads_codes_ = false;  // that entry, of this format
  RowErrorSums sums_;
  // Values of the segment: one of these.
  const float* x_ = nullptr;
  const std::uint16_t* bf16_ = nullptr;
  alignas(64) float wide_[kSegment];
  alignas(64) float y_[kSegment];
  // Neighbouring values often fall into the same bin; two tables avoid the store-to-load
  // dependency.
  std::array<std::array<std::uint32_t, 256>, 2> exponents_{}, counted_{}, result_exponents_{};
  float run_scales_[kSegment / kLeastErrorRun];
};

}  // namespace octavo

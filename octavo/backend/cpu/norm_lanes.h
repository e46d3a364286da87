// Loops of attention's norms (attention_row_norms.cc) that instruction sets compile for themselves:
// plain code that the compiler turns into vectors. Sums of a row are spread over eight, and
// channels are added row by row, so bits do not depend on the width of a vector.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {

inline constexpr std::int64_t kNormCols = 1024, kNormLanes = 8, kNormSide = 4;

// Channels of one piece of columns, as arrays.
template <typename T>
struct NormChannels {
  alignas(64) T center[kNormCols], least[kNormCols], most[kNormCols];
  alignas(64) T sum[kNormCols], squares[kNormCols], fourth_powers[kNormCols];
  alignas(64) T error[kNormCols], error_squares[kNormCols];
};

// kNormSide rows, followed by zeros up to a multiple of kNormLanes.
template <typename T>
struct NormRows {
  alignas(64) T given[kNormSide][kNormCols], error[kNormSide][kNormCols];
};

template <typename T>
struct NormSpansOf {
  // The sum of squares of n numbers, a multiple of kNormLanes.
  double (*squares)(const T* numbers, std::int64_t n);
  // To `error`: given minus the values in it (is_there), or minus given rounded to a type.
  void (*errors)(DType to, const T* given, bool is_there, T* error, std::int64_t n);
  // Adds the first `count` rows; their errors where there are any.
  void (*add)(const NormRows<T>& rows, std::int64_t count, std::int64_t n, bool has_errors,
              NormChannels<T>& to);
};
struct NormSpans : NormSpansOf<float> {};

namespace {

// To bf16, nearest even; a value that is not finite shows in other sums.
inline float nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

template <typename T>
void norm_errors(DType to, const T* given, bool is_there, T* error, std::int64_t n) {
  if (is_there) {
    for (std::int64_t i = 0; i < n; ++i) error[i] = given[i] - error[i];
  } else if (to == DType::f64) {
    std::fill_n(error, n, T{0});
  } else if (to == DType::f32) {
    for (std::int64_t i = 0; i < n; ++i)
      error[i] = given[i] - static_cast<T>(static_cast<float>(given[i]));
  } else {  // kernels round f64 to f32 first, too
    for (std::int64_t i = 0; i < n; ++i)
      error[i] = given[i] - static_cast<T>(nearest_bf16(static_cast<float>(given[i])));
  }
}

template <typename T>
double norm_squares(const T* numbers, std::int64_t n) {
  if (n == 0) return 0.0;
  T sums[kNormLanes] = {};
  for (std::int64_t i = 0; i < n; i += kNormLanes)
    for (std::int64_t l = 0; l < kNormLanes; ++l) sums[l] += numbers[i + l] * numbers[i + l];
  double sum = 0.0;
  for (const T one : sums) sum += static_cast<double>(one);
  return sum;
}

// Rows [first, first + kCount). A number of rows that is known is what lets this vectorise.
template <std::int64_t kCount, typename T>
void add_norm_values(const NormRows<T>& rows, std::int64_t first, std::int64_t n,
                     NormChannels<T>& to) {
  for (std::int64_t d = 0; d < n; ++d) {
    T least = to.least[d], most = to.most[d], sum = to.sum[d], squares = to.squares[d],
      fourth_powers = to.fourth_powers[d];
#pragma GCC unroll 4
    for (std::int64_t r = first; r < first + kCount; ++r) {
      const T number = rows.given[r][d], off = number - to.center[d], square = off * off;
      least = number < least ? number : least;
      most = number > most ? number : most;
      sum += off;
      squares += square;
      fourth_powers += square * square;
    }
    to.least[d] = least;
    to.most[d] = most;
    to.sum[d] = sum;
    to.squares[d] = squares;
    to.fourth_powers[d] = fourth_powers;
  }
}

template <std::int64_t kCount, typename T>
void add_norm_errors(const NormRows<T>& rows, std::int64_t first, std::int64_t n,
                     NormChannels<T>& to) {
  for (std::int64_t d = 0; d < n; ++d) {
    T most = to.error[d], squares = to.error_squares[d];
#pragma GCC unroll 4
    for (std::int64_t r = first; r < first + kCount; ++r) {
      const T error = rows.error[r][d], size = std::abs(error);
      most = size > most ? size : most;
      squares += error * error;
    }
    to.error[d] = most;
    to.error_squares[d] = squares;
  }
}

template <typename T>
void add_norm_rows(const NormRows<T>& rows, std::int64_t count, std::int64_t n, bool has_errors,
                   NormChannels<T>& to) {
  if (count == kNormSide) {
    add_norm_values<kNormSide>(rows, 0, n, to);
    if (has_errors) add_norm_errors<kNormSide>(rows, 0, n, to);
    return;
  }
  for (std::int64_t r = 0; r < count; ++r) {
    add_norm_values<1>(rows, r, n, to);
    if (has_errors) add_norm_errors<1>(rows, r, n, to);
  }
}

template <typename T>
inline constexpr NormSpansOf<T> kNormSpansOf{
    .squares = norm_squares<T>, .errors = norm_errors<T>, .add = add_norm_rows<T>};

}  // namespace
}  // namespace octavo::cpu

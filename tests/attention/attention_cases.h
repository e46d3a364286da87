// Test cases of attention: the kinds of inputs of the FP8 gate, and the row-by-row comparison with
// an oracle.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/octavo.h"
#include "tests/oracle/attention_oracle.h"
#include "tests/oracle/gemm_oracle.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {

// normal: N(0, 1). outlier: +-10 added to four channels of K. peaked: scores with a standard
// deviation of 3. biased: V has a mean of 0.7. ones: V is 1.
enum class Kind { normal, outlier, peaked, biased, ones };
inline constexpr std::array kGateKinds = {Kind::normal, Kind::outlier, Kind::peaked, Kind::biased};
inline std::string name_of(Kind kind) {
  return std::array{"normal", "outlier", "peaked", "biased",
                    "ones"}[static_cast<std::size_t>(kind)];
}

struct Sizes {
  std::int64_t batches = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 64, width = 0;
};

struct Made {
  Tensor q, k, v;
};

// The backends that a test of bounds runs on: those of a device state none, and refuse every call.
inline std::vector<BackendInfo> backends_with_bounds() {
  std::vector<BackendInfo> all = support::every_backend();
  std::erase_if(
      all, [](const BackendInfo& info) { return info.kernels->attention_rounding == nullptr; });
  return all;
}

// A type's values, nearest to those given.
inline Tensor tensor_of(const Shape& shape, const std::vector<float>& numbers, DType dtype) {
  Tensor wide = Tensor::values(shape, DType::f32);
  std::copy(numbers.begin(), numbers.end(), wide.span<float>().begin());
  if (dtype == DType::f32) return wide;
  Tensor narrow = Tensor::values(shape, dtype);
  if (dtype == DType::f64) {
    std::copy(numbers.begin(), numbers.end(), narrow.span<double>().begin());
    return narrow;
  }
  const Format& format = dtype == DType::bf16 ? bf16_format : f16_format;
  const Tensor codes = encode(wide.view(), format, {.overflow = Overflow::ieee});
  std::copy(codes.bytes().begin(), codes.bytes().end(), narrow.bytes().begin());
  return narrow;
}

inline Made make_inputs(const Sizes& sizes, Kind kind, unsigned seed, DType dtype = DType::bf16) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const std::int64_t width = sizes.width == 0 ? sizes.depth : sizes.width;
  const auto drawn = [&](std::int64_t heads, std::int64_t rows, std::int64_t cols, auto&& edit) {
    std::vector<float> numbers;
    numbers.reserve(static_cast<std::size_t>(sizes.batches * heads * rows * cols));
    for (std::int64_t i = 0; i < sizes.batches * heads * rows * cols; ++i)
      numbers.push_back(edit(normal(random), i % cols));
    return tensor_of({sizes.batches, heads, rows, cols}, numbers, dtype);
  };
  const auto of_q = [&](float x, std::int64_t) { return kind == Kind::peaked ? 3.0F * x : x; };
  const auto of_k = [&](float x, std::int64_t d) {
    const bool far = kind == Kind::outlier && d % (sizes.depth / 4) == 1;
    return far ? x + (d % (sizes.depth / 2) == 1 ? 10.0F : -10.0F) : x;
  };
  const auto of_v = [&](float x, std::int64_t) {
    return kind == Kind::ones ? 1.0F : kind == Kind::biased ? x + 0.7F : x;
  };
  Made made;
  made.q = drawn(sizes.heads, sizes.queries, sizes.depth, of_q);
  made.k = drawn(sizes.kv_heads, sizes.keys, sizes.depth, of_k);
  made.v = drawn(sizes.kv_heads, sizes.keys, width, of_v);
  return made;
}

// [B, H, rows, cols] as numbers of one head.
inline oracle::Rows rows_of(const View& view, std::int64_t batch, std::int64_t head) {
  View matrix = view;
  matrix.data =
      static_cast<std::byte*>(view.data) + batch * view.strides[0] + head * view.strides[1];
  oracle::Rows rows(static_cast<std::size_t>(view.shape[2]));
  for (std::int64_t i = 0; i < view.shape[2]; ++i)
    for (std::int64_t j = 0; j < view.shape[3]; ++j)
      rows[static_cast<std::size_t>(i)].push_back(oracle::number_at(matrix, i, j));
  return rows;
}
// Codes times scales, each scale found by the definition of its tile.
inline oracle::Rows rows_of(const QuantizedTensor& tensor, std::int64_t batch, std::int64_t head) {
  oracle::Rows rows = rows_of(tensor.rowwise.codes.view(), batch, head);
  View scales = tensor.rowwise.scales.view();
  const std::int64_t height = tensor.shape[2], width = tensor.shape[3];
  const auto extent = [](std::int64_t tile, std::int64_t size) {
    return tile == 0 ? std::max<std::int64_t>(size, 1) : tile;
  };
  if (scales.shape.rank() == 4)
    scales.data =
        static_cast<std::byte*>(scales.data) + batch * scales.strides[0] + head * scales.strides[1];
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] *=
          scales.shape.rank() == 0
              ? oracle::number_at(scales, 0, 0)
              : oracle::number_at(scales, i / extent(tensor.scaling.tile.rows, height),
                                  j / extent(tensor.scaling.tile.cols, width));
  return rows;
}

// What the gate of a kernel counts.
struct Errors {
  std::int64_t elements = 0, failures = 0;  // outside 5e-3 + 5e-3 |exact|
  double largest = 0.0, squares = 0.0, exact_squares = 0.0, products = 0.0, got_squares = 0.0;

  void add(double got, double exact) {
    const double error = std::abs(got - exact);
    ++elements;
    if (!(error <= 5e-3 + 5e-3 * std::abs(exact))) ++failures;
    largest = std::max(largest, error);
    squares += error * error;
    exact_squares += exact * exact;
    got_squares += got * got;
    products += got * exact;
  }
  [[nodiscard]] double relative_l2() const { return std::sqrt(squares / exact_squares); }
  [[nodiscard]] double cosine() const { return products / std::sqrt(got_squares * exact_squares); }
};
inline std::ostream& operator<<(std::ostream& to, const Errors& errors) {
  return to << errors.failures << " of " << errors.elements << " fail, max " << errors.largest
            << ", relative L2 " << errors.relative_l2() << ", cosine " << errors.cosine();
}

// Rows [first, first + count) of head (0, head) against the oracle at these inputs.
struct Truth {
  View q, k, v;
  oracle::Sees sees{};
  double softmax_scale = 0.0;  // 0: 1 / sqrt(D)
  double soft_cap = 0.0;
  std::vector<float> sinks{};  // of every head, or empty
};
// The logits of a head.
inline oracle::Logits logits_of(double soft_cap, const std::vector<float>& sinks,
                                std::int64_t head) {
  if (sinks.empty()) return {.soft_cap = soft_cap};
  return {.soft_cap = soft_cap, .sink = static_cast<double>(sinks[static_cast<std::size_t>(head)])};
}
inline View view_of_sinks(const std::vector<float>& sinks) {
  return sinks.empty() ? View{} : view_of(std::span<const float>(sinks));
}
inline void compare(Errors& errors, const View& out, const Truth& truth,
                    const std::vector<AttentionRange>& ranges) {
  const std::int64_t group = truth.q.shape[1] / truth.k.shape[1];
  const double scale = truth.softmax_scale != 0.0
                           ? truth.softmax_scale
                           : 1.0 / std::sqrt(static_cast<double>(truth.q.shape[3]));
  oracle::Rows q, k, v, got;
  std::int64_t batch = -1, head = -1;
  for (const AttentionRange& range : ranges) {
    if (range.batch != batch || range.head != head) {
      batch = range.batch;
      head = range.head;
      q = rows_of(truth.q, batch, head);
      k = rows_of(truth.k, batch, head / group);
      v = rows_of(truth.v, batch, head / group);
      got = rows_of(out, batch, head);
    }
    for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
      const auto at = static_cast<std::size_t>(row);
      const oracle::AttendedRow exact = oracle::attended(
          q[at], k, v, scale, truth.sees, row, logits_of(truth.soft_cap, truth.sinks, head));
      for (std::size_t e = 0; e < exact.out.size(); ++e) errors.add(got[at][e], exact.out[e]);
    }
  }
}

// `rows` rows of every head, evenly spread: the first and the last are among them.
inline std::vector<AttentionRange> spread_rows(const Sizes& sizes, std::int64_t rows) {
  std::vector<AttentionRange> ranges;
  const std::int64_t count = std::min(rows, sizes.queries);
  for (std::int64_t batch = 0; batch < sizes.batches; ++batch)
    for (std::int64_t head = 0; head < sizes.heads; ++head)
      for (std::int64_t i = 0; i < count; ++i)
        ranges.push_back({batch, head, count > 1 ? i * (sizes.queries - 1) / (count - 1) : 0, 1});
  return ranges;
}

}  // namespace octavo::testing

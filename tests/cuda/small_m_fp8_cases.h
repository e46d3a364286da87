// Shared by tests of small M GEMM by FP8 weights: every kind of weights, and some whose sums are
// exact.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "octavo/base/error.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {

inline OperandKind fp8_in_tiles(const Format& format, Tile tile, ScaleOrder order = {}) {
  return changed("fp8",
                 text(format_name(format), " ", tile.rows, "x", tile.cols,
                      order == ScaleOrder::col_major ? " by column" : ""),
                 [&](Scaling& scaling) {
                   scaling.format = format;
                   scaling.tile = tile;
                   scaling.scale_order = order;
                 });
}

inline std::vector<OperandKind> fp8_kinds() {
  std::vector<OperandKind> all{quantized_as("mxfp8"), quantized_as("mxfp8:e5m2"),
                               fp8_in_tiles(e4m3fn, {1, 128}, ScaleOrder::col_major),
                               fp8_in_tiles(e4m3fn, {48, 0}), fp8_in_tiles(e4m3fn, {24, 128})};
  for (const Format& format : {e4m3fn, e5m2})
    for (const Tile& tile : {Tile{0, 0}, Tile{1, 0}, Tile{128, 128}, Tile{1, 128}})
      all.push_back(fp8_in_tiles(format, tile));
  return all;
}

struct ExactWeights {
  QuantizedTensor tensor{};
  std::vector<float> numbers{};
};

// The values of a tensor; oracle::numbers_of is slow for many rows.
inline std::vector<float> numbers_of_fp8(const QuantizedTensor& tensor) {
  const std::int64_t n = tensor.shape[0], k = tensor.shape[1];
  const View scales = tensor.rowwise.scales.view();
  const auto codes = tensor.rowwise.codes.bytes();
  const bool per_tensor = scales.shape.rank() == 0;
  const std::int64_t rows = tile_extent(tensor.scaling.tile.rows, n),
                     cols = tile_extent(tensor.scaling.tile.cols, k);
  std::vector<float> meanings, numbers;
  for (unsigned code = 0; code < 256; ++code)
    meanings.push_back(static_cast<float>(decode(tensor.scaling.format, code)));
  for (std::int64_t row = 0; row < n; ++row)
    for (std::int64_t col = 0; col < k; ++col) {
      const auto* const at =
          static_cast<const unsigned char*>(scales.data) +
          (per_tensor ? 0 : row / rows * scales.strides[0] + col / cols * scales.strides[1]);
      float scale = 0;
      if (scales.dtype == DType::code)
        scale = static_cast<float>(decode(e8m0fnu, *at));
      else
        std::memcpy(&scale, at, sizeof(scale));
      numbers.push_back(
          meanings[static_cast<std::size_t>(codes[static_cast<std::size_t>(row * k + col)])] *
          scale);
    }
  return numbers;
}

// Sets every scale to `say` of its row of scales, wherever it lies: a value that its type holds.
template <typename Say>
void set_scales(QuantizedTensor& tensor, Say&& say) {
  const View scales = tensor.rowwise.scales.view();
  const bool per_tensor = scales.shape.rank() == 0;
  for (std::int64_t row = 0; row < (per_tensor ? 1 : scales.shape[0]); ++row)
    for (std::int64_t col = 0; col < (per_tensor ? 1 : scales.shape[1]); ++col) {
      const float scale = say(row);
      auto* const at = static_cast<unsigned char*>(scales.data) +
                       (per_tensor ? 0 : row * scales.strides[0] + col * scales.strides[1]);
      if (scales.dtype == DType::code)
        *at = static_cast<unsigned char>(std::isnan(scale) ? 255 : 127 + std::ilogb(scale));
      else
        std::memcpy(at, &scale, sizeof(scale));
    }
}

// Integers up to 8, and scales from 1 to 8 drawn for every tile: with such integers as values, sums
// of K up to 2^13 are exact.
inline ExactWeights exact_weights(const OperandKind& kind, std::int64_t n, std::int64_t k) {
  ExactWeights made;
  made.tensor = quantize(values_as(integers(n, k, 2), {n, k}, DType::f32).view(), *kind.scaling);
  std::vector<std::byte> codes;
  for (int value = -8; value <= 8; ++value) {
    unsigned code = 0;
    while (decode(kind.scaling->format, code) != std::abs(value)) ++code;
    codes.push_back(static_cast<std::byte>(code | (value < 0 ? 0x80u : 0u)));
  }
  std::mt19937 random(7);
  for (std::byte& code : made.tensor.rowwise.codes.bytes()) code = codes[random() % codes.size()];
  set_scales(made.tensor, [&](std::int64_t) { return static_cast<float>(1u << random() % 4); });
  made.numbers = numbers_of_fp8(made.tensor);
  return made;
}

}  // namespace octavo::testing

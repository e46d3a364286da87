// The scales of a batch of tiles, without a branch on data.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

inline constexpr std::int64_t kMaxTiles = 2048;  // of one batch: a stage of one-element tiles

struct ScaleBatch {
  std::uint32_t bits[kMaxTiles];     // as stored
  float scale[kMaxTiles];            // what codes are multiplied by
  float factor[kMaxTiles];           // what values are multiplied or divided by
  std::uint8_t poisoned[kMaxTiles];  // 0xFF or 0
};

// The per-tensor level of two-level scales.
struct TensorLevel {
  float scale = 1.0F, amax = 0.0F;
};

// Two levels: the scale of every e4m3 code.
std::array<TileScale, 128> two_level_scales(const ScaleSpec&, float tensor_scale);

// `amax` holds the bits of f32 magnitudes. Equal to tile_scale of each; peers' arithmetic calls
// tile_scale itself, with its branches.
void make_scales(const Isa&, const ScaleSpec&, const Format& element, const std::uint32_t* amax,
                 std::int64_t n, TensorLevel, ScaleBatch& out);

// One given scale (delayed scaling).
void give_scale(const ScaleSpec&, float inv_scale, ScaleBatch& out);

// How stored scales become f32. Choosing a kernel takes longer than decoding the scales of a row.
struct ScaleDecoder {
  Decoder decoder{};
  DecodeSpan decode = nullptr;  // null: they are f32
};
ScaleDecoder scale_decoder(const Isa&, const Matrix& scales);
void load_scales(const ScaleDecoder&, const Matrix& scales, std::int64_t grid_row,
                 std::int64_t grid_col, std::int64_t n, float* out);

// Scales of tiles (grid_row, grid_col ...) as f32, without the per-tensor scale.
void load_scales(const Isa&, const Matrix& scales, std::int64_t grid_row, std::int64_t grid_col,
                 std::int64_t n, float* out);
void store_scales(const Matrix& scales, std::int64_t grid_row, std::int64_t grid_col,
                  std::int64_t n, const std::uint32_t* bits);

}  // namespace octavo::cpu

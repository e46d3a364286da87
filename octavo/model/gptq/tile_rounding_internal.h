// TileRounding: which value a number is rounded to under the scales that a tensor's tiles have
// already: quantize()'s arithmetic, number by number.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "octavo/quant/quantized_tensor.h"
#include "octavo/scale/peer_scale.h"

namespace octavo::gptq_detail {

struct RoundedNumber {
  float code = 0.0F;   // what the code means
  float value = 0.0F;  // that times the scale, as dequantize() gives it
};

// Throws Error(unsupported) that names what GPTQ cannot do with a scaling: codes that do not follow
// from scale and number (stochastic rounding, rotations, a peer's arithmetic with scales of its
// own), or scales that do not lie tile by tile along the rows.
void check_scaling_fits(const Scaling& scaling);

class TileRounding {
 public:
  // Of the rowwise codes of a matrix, whose scaling fits.
  explicit TileRounding(const QuantizedTensor& quantized);

  [[nodiscard]] RoundedNumber round(std::int64_t row, std::int64_t col, float number) const;

 private:
  Format format_;
  EncodePolicy encode_;
  bool divides_;
  PeerAdjust adjust_;
  std::int64_t tile_rows_, tile_cols_, tiles_in_row_;
  std::vector<float> scales_, factors_;
  std::array<float, 256> values_{};
};

}  // namespace octavo::gptq_detail

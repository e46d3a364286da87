// One copy (rowwise or columnwise) of a QuantizeJob, with everything that the host can compute
// once.
#pragma once

#include "octavo/backend/kernels.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cuda {

struct CopyJob {
  QuantizeSource source{};
  bool transposed = false;
  QuantizedMatrix to{};
  Tile tile{};                                // extents, never 0
  std::int64_t tile_rows = 0, tile_cols = 0;  // number of tiles
  ScaleSpec scale{};
  EncodePolicy encode{};
  AmaxPolicy policy = AmaxPolicy::max;
  double percentile = 100.0;
  const float* column_weights = nullptr;
  bool hadamard = false, hadamard_to_bf16 = false;
  std::uint16_t signs = 0;
  AmaxOf amax_of = AmaxOf::all;
  bool division = false;
  bool is_f64 = false;
  PeerAdjust peer_adjust = PeerAdjust::none;
  std::uint32_t poison_code = 0;
  const float *given_amax = nullptr, *given_inv_scale = nullptr, *tensor_amax = nullptr;
  Counts* counts = nullptr;
};

CopyJob copy_job(const QuantizeJob& job, bool transposed);

inline bool has_one_tile(const QuantizedMatrix& copy) {
  return copy.scales.rows == 1 && copy.scales.cols == 1;
}

// A usual job, which the fast kernels accept: contiguous f32, bf16 or f16 values to contiguous
// codes, nearest even, saturating, poisoned by non-finite values.
bool is_usual(const QuantizeJob& job);
// The same in Transformer Engine's arithmetic: NaN keeps its code and is left out of the amax.
bool is_usual_te(const QuantizeJob& job);

}  // namespace octavo::cuda

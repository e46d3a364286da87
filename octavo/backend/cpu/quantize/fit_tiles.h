// Scale policies that try scales (mse and its kin): the candidate scale of each tile whose codes
// have the least squared error (scale/fit.h has the candidates and the sum). Unlike other kernels
// this searches, so that what it does depends on the data.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/backend/cpu/quantize/tile_values.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {

// Values are scaled in f32 or f64; rounding f64 through f32 is for plain casts only.
inline EncodePolicy scaled_policy(const QuantizeJob& job) {
  EncodePolicy policy = job.encode;
  policy.via_f32 = false;
  return policy;
}

template <typename Real>
class TileFit {
 public:
  // `encoder` is of the element format, from Real.
  TileFit(const Isa&, const QuantizeJob&, const TileValues<Real>&, const Encoder&, TensorLevel);

  // Replaces the scales of a row of tiles, made from these amaxes. One large tile may be shared
  // among threads.
  void fit(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax, ScaleBatch& scales,
           int threads = 1) const;

  // The squares of errors of every candidate for an amax, of an area that is a part of one tile,
  // are added to those of the parts before it.
  void add_squares(const Area& area, float amax, int threads, double* squares) const;

 private:
  [[nodiscard]] bool is_usual_fp4(const Area& area, std::int64_t tile_cols) const;
  void fit_fp4(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax,
               ScaleBatch& scales) const;
  void fours_for(const std::uint32_t* amax, std::int64_t tiles, ScaleBatch& fours) const;
  void fit_any(const Area& area, std::int64_t tile_cols, const std::uint32_t* amax,
               ScaleBatch& scales) const;
  void fit_one(const Area& area, std::uint32_t amax, ScaleBatch& scales, int threads) const;

  [[nodiscard]] TileScale candidate(float amax, std::uint32_t own_code, int i) const;
  [[nodiscard]] bool is_searched(float amax) const {
    return octavo::is_searched(job_.policy, job_.scale, amax);
  }
  void add_squares(const Area& area, std::int64_t tile_cols, const float* factors,
                   double* squares) const;

  const Isa& isa_;
  const QuantizeJob& job_;
  const TileValues<Real>& values_;
  Encoder encoder_;
  Decoder decoder_;
  EncodeSpan encode_;
  DecodeSpan decode_;
  TensorLevel tensor_;
  bool division_;
  PeerAdjust peer_adjust_;
  bool all_count_;
  int candidates_;
  int top_exponent_;  // of the largest value
  std::uint32_t next_power_from_;
  std::array<TileScale, 128> of_code_{};  // two levels: the scale of every e4m3 code
};

}  // namespace octavo::cpu

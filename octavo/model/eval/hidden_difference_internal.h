// How far hidden states are from the original's, as sums over tokens.
#pragma once

#include <cstdint>

#include "octavo/report/model_evaluation.h"
#include "octavo/tensor/view.h"

namespace octavo::eval {

struct DifferenceSums {
  double cosine = 0.0;     // of cosines
  double relative2 = 0.0;  // of |h - h0|^2 / |h0|^2
  std::int64_t tokens = 0;

  void add(const DifferenceSums& more) {
    cosine += more.cosine;
    relative2 += more.relative2;
    tokens += more.tokens;
  }
  [[nodiscard]] LayerDifference difference() const;
};

// Dense [rows, hidden] of f32 both. The same bits for any number of threads.
[[nodiscard]] DifferenceSums difference_of(const View& original, const View& hidden, int threads);

}  // namespace octavo::eval

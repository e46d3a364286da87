// SweepResult: what settings of a quantization cost and give: error beside bytes and time, as JSON
// and as one self-contained HTML page.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

// An option and the values it takes in turn: "tile" and "16", "32".
struct SweepAxis {
  std::string option;
  std::vector<std::string> values;
};

struct SweepPoint {
  std::vector<std::pair<std::string, std::string>> settings{};  // option and value, in axis order
  std::string why_not{};    // why it is not possible; then nothing else is known
  std::string scaling{};    // describe(); empty where weights have several
  std::uint64_t bytes = 0;  // of codes and scales; of a checkpoint all tensors
  double bits_per_value = 0;
  double relative_l2 = 0, sqnr = 0, cosine = 1;  // of a checkpoint: over all quantized weights
  double worst_sqnr = 0;                         // of one tensor; of an array the same as sqnr
  double seconds = 0;                            // to quantize
  // Finite values that became NaN or Inf: no error counts them, so that no such point is best.
  std::int64_t uncounted = 0;
};

struct SweepResult {
  std::string title{}, source{}, target{};  // target: of a checkpoint
  std::uint64_t bytes_before = 0;
  std::string timed{};  // what `seconds` are of, in words
  std::vector<SweepAxis> axes{};
  std::vector<SweepPoint> points{};
};

// "mxfp8 tile 16": the values of a point, those that say little by themselves with their option.
[[nodiscard]] OCTAVO_API std::string name_of(const SweepPoint& point);

// Points that no other beats: none has a higher SQNR with as few bits or fewer, or fewer bits with
// as high an SQNR. Only points that count all values are best, or beat others.
[[nodiscard]] OCTAVO_API std::vector<bool> best_of(const SweepResult& sweep);

[[nodiscard]] OCTAVO_API std::string json_of(const SweepResult& sweep);
[[nodiscard]] OCTAVO_API std::string html_of(const SweepResult& sweep);

}  // namespace octavo

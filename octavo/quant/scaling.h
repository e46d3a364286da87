// Scaling: how a tensor is quantized: element format, tile, scale format, rule and policy. A named
// Scaling is a preset; one parser serves C++, Python and the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/policy.h"
#include "octavo/scale/scale_spec.h"
#include "octavo/tensor/quantized_view.h"

namespace octavo {

// Random Hadamard transform of groups of sixteen values along a row, before quantization (NVFP4
// training). dequantize applies the inverse.
struct Hadamard {
  bool rowwise = false;
  bool columnwise = false;
  std::uint16_t signs = 0;  // bit i set: element i of every group changes its sign
  constexpr bool operator==(const Hadamard&) const = default;
};

// How the grid of scales lies in memory, [..., R, C] either way.
enum class ScaleOrder : std::uint8_t {
  row_major,  // C fastest
  col_major,  // C slowest, all that is before it fastest: for [M, K] in tiles of 1 x 128 memory is
              // [K / 128][M], which GEMMs load
};

struct Scaling {
  Format format = e4m3fn;
  // On the last two dimensions; leading dimensions are a batch of matrices, each tiled separately,
  // except that {0, 0} is always one scale for everything.
  Tile tile{};
  // The dimension that tile.cols runs along; tile.rows runs along the one before. For any but the
  // last dimension tile.rows must be 1 (or 0 with cols 0).
  int axis = -1;
  ScaleSpec scale{};
  AmaxPolicy policy = AmaxPolicy::max;
  double percentile = 100.0;
  EncodePolicy encode{};
  bool rowwise = true;
  bool columnwise = false;  // of the transpose, stored as such; see QuantizedTensor
  Hadamard hadamard{};
  bool packed = true;  // codes of fewer than eight bits, two to a byte and so on
  ScaleOrder scale_order = ScaleOrder::row_major;  // of both copies; along the last axis only

  constexpr bool operator==(const Scaling&) const = default;
};

// fp8, fp8-channel, fp8-1x128, fp8-block, mxfp8, mxfp6, mxfp4, mxint8, int8-channel, int4, nvfp4;
// after a colon the element format where there is a choice ("mxfp8:e5m2", "mxfp6:e3m2fn",
// "fp8:e5m2"). Throws Error(invalid_argument) that lists the names.
[[nodiscard]] OCTAVO_API Scaling preset(std::string_view name);
[[nodiscard]] OCTAVO_API std::vector<std::string> preset_names();

// One line that tells two Scalings apart, for messages and reports: "e4m3fn, tile 1x32, scale e8m0
// rceil". A preset begins with its name.
[[nodiscard]] OCTAVO_API std::string describe(const Scaling& scaling);

// Throws Error(invalid_argument) with what is wrong, if anything is.
OCTAVO_API void check_scaling(const Scaling& scaling);

// Names and their parsers, as in round/policy_names.h.
OCTAVO_API std::string_view name_of(ScaleFormat format);
OCTAVO_API std::string_view name_of(ScaleRule rule);
OCTAVO_API std::string_view name_of(Arith arith);
OCTAVO_API std::string_view name_of(NonFinite non_finite);
OCTAVO_API std::string_view name_of(AmaxPolicy policy);
OCTAVO_API std::string_view name_of(ScaleOrder order);
OCTAVO_API ScaleFormat parse_scale_format(std::string_view name);
OCTAVO_API ScaleRule parse_scale_rule(std::string_view name);
OCTAVO_API Arith parse_arith(std::string_view name);
OCTAVO_API NonFinite parse_non_finite(std::string_view name);
OCTAVO_API ScaleOrder parse_scale_order(std::string_view name);  // "row_major", "col_major"
// "tensor", "row", "column", or rows and columns: "1x32", "128x128"; "all" is a whole extent.
OCTAVO_API Tile parse_tile(std::string_view name);
// The same, or a number alone: a block of that size in the form of `like`, square where `like` has
// several rows (128x128 becomes 64x64), else along the row (1x64).
OCTAVO_API Tile parse_block(std::string_view name, const Tile& like);
// "max", "mse", "4over6", "wmse", "percentile:99.9"; "modelopt_sweep" also sets arith modelopt
// where it is octavo.
OCTAVO_API void parse_amax_policy(std::string_view name, Scaling& scaling);

}  // namespace octavo

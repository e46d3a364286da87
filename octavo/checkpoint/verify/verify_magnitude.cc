// Magnitudes of weights, from a decoded sample of tiles of each weight. Scales alone cannot
// distinguish a scale that was changed from a correct one.
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <span>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/convert/widen.h"
#include "octavo/format/decode.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// The sample: kCodes codes per weight, in at most kRowBlocks row blocks spread over its rows, at
// least one row block. A model has tens of thousands of weights.
constexpr std::int64_t kCodes = 1 << 17, kRowBlocks = 4, kMaxOfRowBlock = 1 << 26;
constexpr std::int64_t kStride = 7;  // of squared values: odd, so that it visits all columns
// A tile's largest code is the format's maximum where its scale is amax / maximum; scales of E4M3
// are up to a sixteenth from that.
constexpr float kTopped = 0.9F;
constexpr std::int64_t kShapes = 128;  // tiles whose distribution of values is looked at

// A scale at the lower limit of its type was clamped, not computed from its tile.
bool is_limited(float scale, const ScaleSpec& spec) {
  switch (spec.format) {
    case ScaleFormat::e4m3_f32:
      return scale < 0x1p-6F;  // subnormal: up to half of it is rounding
    case ScaleFormat::f16:
      return scale < 0x1p-14F;
    default:
      return scale < 0x1p-40F;  // 1e-12 / 448, the floor in other tools' quantizers
  }
}

class Looking {
 public:
  Looking(const VerifyView& view, const VerifiedWeight& weight)
      : view_(view), found_(*weight.found), extent_(extent_of(found_.weight)) {
    const Tile tile = found_.weight.scaling.tile;
    step_ = row_block_rows(view.recognized.dialect, found_.weight);
    const bool whole = tile == Tile{0, 0};
    const bool stack = extent_.rows > extent_.matrix_rows;
    if (extent_.rows < 1 || extent_.cols < 1 || (whole && stack)) return;
    rows_ = step_;
    if (step_ < extent_.matrix_rows || !stack)
      rows_ = std::max<std::int64_t>(1, kCodes / kRowBlocks / extent_.cols / step_) * step_;
    if (rows_ > kMaxOfRowBlock / extent_.cols) return;  // tile size is untrusted (config.json)
    const std::int64_t row_blocks = (extent_.rows + rows_ - 1) / rows_,
                       looked = std::min(
                           row_blocks, std::clamp<std::int64_t>(kCodes / (rows_ * extent_.cols), 1,
                                                                kRowBlocks));
    for (std::int64_t i = 0; i < looked; ++i)
      look(looked == 1 ? 0 : i * (row_blocks - 1) / (looked - 1));
    // Per-tensor scale: the largest code may be anywhere.
    if (whole && out_.reaching == 0)
      for (std::int64_t i = 0; i < row_blocks && out_.reaching == 0; ++i) look(i);
    finish(whole);
  }
  [[nodiscard]] const Magnitude& reach() const { return out_; }

 private:
  void look(std::int64_t row_block) {
    const std::int64_t first = row_block * rows_, rows = std::min(rows_, extent_.rows - first);
    const QuantizedTensor tensor =
        read_row_block(view_.checkpoint, view_.recognized.dialect, found_, first, rows);
    const Tensor values = dequantize(tensor);
    const Tensor scales = widened(tensor.rowwise.scales);
    const auto number = values.span<const float>();
    const auto scale = scales.span<const float>();
    const bool two = found_.weight.scaling.scale.format == ScaleFormat::e4m3_f32;
    const float second = two ? tensor.rowwise.tensor_scale.span<const float>()[0] : 1.0F;
    const Tile tile = found_.weight.scaling.tile;
    const std::int64_t high = tile_extent(tile.rows, rows),
                       wide = tile_extent(tile.cols, extent_.cols),
                       across = tile_count(tile.cols, extent_.cols);
    const auto top = static_cast<float>(max_value(found_.weight.scaling.format));
    for (std::int64_t r = 0, at = 0; r < rows; r += high)
      for (std::int64_t c = 0; c < extent_.cols; c += wide, ++at) {
        float amax = 0;
        tile_squares_ = tile_fourths_ = 0;
        tile_count_ = 0;
        for (std::int64_t y = r; y < std::min(r + high, rows); ++y)
          amax = std::max(amax, add_row(number.subspan(
                                    static_cast<std::size_t>(y * extent_.cols + c),
                                    static_cast<std::size_t>(std::min(wide, extent_.cols - c)))));
        const float own = scale[static_cast<std::size_t>(r / high * across + at % across)];
        const bool limited = is_limited(own, found_.weight.scaling.scale);
        if (!(amax > 0)) {
          // Quantizers give all-zero tiles one constant scale: 1, the smallest, or another.
          if (limited || !std::isfinite(own)) continue;
          least_ = out_.emptied == 0 ? own : std::min(least_, own);
          most_ = out_.emptied == 0 ? own : std::max(most_, own);
          ++out_.emptied;
          continue;
        }
        amaxes_.push_back(amax);
        if (limited) continue;
        out_.alike = out_.tiles == 0 || (out_.alike && own == first_);
        if (out_.tiles == 0) {
          int exponent = 0;
          first_ = own;
          out_.powers = !two && std::frexp(own, &exponent) == 0.5F;
        }
        ++out_.tiles;
        out_.reaching += amax >= own * second * top / 4 ? 1 : 0;
        out_.topped += amax >= own * second * top * kTopped ? 1 : 0;
        if (tile_squares_ > 0) {
          kurtosis_ +=
              static_cast<double>(tile_count_) * tile_fourths_ / (tile_squares_ * tile_squares_);
          for (std::int64_t y = r; y < std::min(r + high, rows); ++y)
            peaks_ += count_peaks(
                number.subspan(static_cast<std::size_t>(y * extent_.cols + c),
                               static_cast<std::size_t>(std::min(wide, extent_.cols - c))),
                amax);
          ++shapes_;
        }
        note_levels(number.subspan(static_cast<std::size_t>(r * extent_.cols + c),
                                   static_cast<std::size_t>(std::min(wide, extent_.cols - c))),
                    own * second);
      }
  }

  static double count_peaks(std::span<const float> values, float amax) {
    const float least = 0.95F * amax;
    return static_cast<double>(std::count_if(
        values.begin(), values.end(), [&](float value) { return std::fabs(value) >= least; }));
  }

  // Magnitudes of codes in the first row of a tile, in steps of a 64th: FP8 and less has no finer
  // ones above 1/8.
  void note_levels(std::span<const float> values, float scale) {
    for (const float value : values) {
      if (out_.levels >= kManyLevels) return;
      const float level = std::fabs(value) / scale;
      if (!(level > 0.125F) || level > 0x1p20F) continue;  // or NaN
      levels_.insert(static_cast<std::int64_t>(level * 64 + 0.5F));
      out_.levels = static_cast<std::int64_t>(levels_.size());
    }
  }

  // Compares magnitudes as integers, which auto-vectorizes; NaN is reported by another rule.
  float add_row(std::span<const float> values) {
    std::uint32_t most = 0;
    for (const float value : values)
      most = std::max(most, std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU);
    for (std::size_t i = 0; i < values.size(); i += kStride, ++count_)
      squares_ += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    if (shapes_ < kShapes) {
      for (const float value : values) {
        const double square = static_cast<double>(value) * static_cast<double>(value);
        tile_squares_ += square;
        tile_fourths_ += square * square;
      }
      tile_count_ += static_cast<std::int64_t>(values.size());
    }
    const auto amax = std::bit_cast<float>(most);
    return std::isnan(amax) ? 0.0F : amax;
  }

  void finish(bool whole) {
    if (whole) out_.tiles = std::min<std::int64_t>(out_.tiles, 1);
    out_.looked = true;
    if (whole || least_ == most_) out_.emptied = 0;
    if (shapes_ > 0) {
      out_.kurtosis = static_cast<float>(kurtosis_ / static_cast<double>(shapes_));
      out_.peaks = static_cast<float>(peaks_ / static_cast<double>(shapes_));
    }
    out_.rms = static_cast<float>(
        std::sqrt(squares_ / static_cast<double>(std::max<std::int64_t>(count_, 1))));
    if (amaxes_.empty()) return;
    const auto middle = amaxes_.begin() + static_cast<std::ptrdiff_t>((amaxes_.size() - 1) / 2);
    std::nth_element(amaxes_.begin(), middle, amaxes_.end());
    out_.typical = *middle;
  }

  const VerifyView& view_;
  const FoundWeight& found_;
  Extent extent_;
  std::int64_t step_ = 1, rows_ = 1, count_ = 0;
  float least_ = 0, most_ = 0;  // scales of all-zero tiles
  float first_ = 0;             // the scale of the first other tile
  double squares_ = 0, kurtosis_ = 0, peaks_ = 0;
  double tile_squares_ = 0, tile_fourths_ = 0;  // of the tile that is looked at
  std::int64_t tile_count_ = 0, shapes_ = 0;
  std::set<std::int64_t> levels_;
  std::vector<float> amaxes_;
  Magnitude out_;
};

}  // namespace

Magnitude magnitude_of(const VerifyView& view, const VerifiedWeight& weight) {
  if (!view.options.codes) return {};
  try {
    return Looking(view, weight).reach();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    return {};  // a negative scale or another fault that its own rule reports
  }
}

// Range utilization. A scale computed from a tile puts its largest code at the top of the format:
// amax / scale is the format's maximum for f32, bf16 and e4m3 scales (to within their rounding),
// above half of it for power-of-two scales of the rules rceil and even, and beyond it for floor
// and for percentiles. The rule ceil takes the power of two above the amax for the format's largest
// power of two, so that amax / scale is above half of the format's largest power of two, at least
// 0.26 of the maximum (2 of 7.5 in FP6); so does policy mse at most, or 27/16 of a quotient. So
// every tile that is not all zero reaches a quarter of the maximum; the rule requires it of half of
// the tiles. Where tensors share a scale, one of them must. Many codes at the maximum mean nothing:
// weights that were trained to have three values look so.
void check_magnitude(const VerifyView& view, Findings& out) {
  std::map<float, bool> shared;
  const auto is_shared = [](const VerifiedWeight& weight) {
    return weight.found->weight.scaling.tile == Tile{0, 0};
  };
  const auto scale_of = [&](const VerifiedWeight& weight) {
    const std::vector<float> scales = scale_numbers(view, weight);
    return scales.empty() ? 0.0F : scales.front();
  };
  for (const VerifiedWeight& weight : view.weights)
    if (is_shared(weight) && weight.reach.tiles > 0)
      shared[scale_of(weight)] |= weight.reach.reaching > 0;
  for (const VerifiedWeight& weight : view.weights) {
    const std::int64_t tiles = weight.reach.tiles, reaching = weight.reach.reaching,
                       emptied = weight.reach.emptied;
    if (emptied > 0)
      out.error({kV, kH, kS, kT}, weight.codes->plan.name,
                text("codes of ", counted(emptied, "tile"),
                     " are zero, and their scales are of tiles that were not: codes were lost"));
    if (tiles == 0 || reaching * 2 >= tiles) continue;
    if (is_shared(weight) && shared[scale_of(weight)]) continue;
    const double top = max_value(weight.found->weight.scaling.format);
    out.warn(
        {kV, kH, kS, kT}, weight.codes->plan.name,
        is_shared(weight)
            ? text("no code reaches a quarter of ", top,
                   ", as the scale that is made from a tensor has it: it is another's scale, "
                   "or none was used")
            : text("only ", reaching, " of ", tiles, " tiles have a code of a quarter of ", top,
                   " or more, as scales that are made from them have it: these are another "
                   "tensor's scales, or none were used"));
  }
}

}  // namespace octavo

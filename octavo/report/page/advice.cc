// Advice: which other preset would suit a tensor better, estimated without quantizing it again.
//
// What is known of the tensor is how many of its values lie in each binade. If those values stood
// in random order, the largest of a tile of n would have the distribution F(x)^n, and from it
// follows the scale of a tile, the step of the format at each value, and the error: step^2 / 12, or
// the value itself where it rounds to zero. That gives an SQNR for every preset (31.5 dB, or 2.65
// %, for E4M3 of any tile). Values of a real tensor are not in random order, so the figure is not
// used by itself: the gain is the difference of two, and the effect of the tensor's order is in
// both.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/quant/scaling.h"
#include "octavo/report/checkpoint_report.h"
#include "octavo/report/page/page_internal.h"

namespace octavo {
namespace {

// Presets that servers load; a target supports some of them.
constexpr std::array<std::string_view, ErrorEstimate::kPresets> kCandidates{
    "mxfp4", "nvfp4", "fp8-channel", "fp8-block", "mxfp8"};
constexpr double kWorthSaying = 1.5;  // dB; less is within what the estimate can be wrong by
constexpr std::size_t kPartsOfBinade = 8;

struct Bin {
  double low, high, share;  // of all values, zeros included
};

// How steeply the density of values falls inside binade i, from its neighbours: the d ln(density)
// over the width of the binade. Weights fall off fast at the top, where the energy is.
double slope_in(const ValueHistogram& values, std::size_t i) {
  const auto density = [&](std::size_t at) {
    const auto count = static_cast<double>(std::max<std::int64_t>(values.counts[at], 1));
    return std::log(count) - static_cast<double>(at) * std::log(2.0);
  };
  if (i == 0) return 0;
  const bool last = i + 1 == values.counts.size();
  // Middles of the binades below, here and above: 0.75, 1.5 and 3 times 2^e.
  const double slope =
      last ? (density(i) - density(i - 1)) / 0.75 : (density(i + 1) - density(i - 1)) / 2.25;
  return std::clamp(slope, -8.0, 8.0);
}

// Binades cut in parts; the last ends at the amax.
std::vector<Bin> bins_of(const ErrorMetrics& metrics) {
  const ValueHistogram& values = metrics.values;
  const auto total = static_cast<double>(counted_values(values));
  std::vector<Bin> bins;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    const double low = std::ldexp(1.0, values.first_exponent + static_cast<int>(i));
    const bool last = i + 1 == values.counts.size();
    const double high = last && metrics.amax > low ? std::min(2 * low, metrics.amax) : 2 * low;
    const double width = (high - low) / kPartsOfBinade, slope = slope_in(values, i);
    std::array<double, kPartsOfBinade> weights{};
    double sum = 0;
    for (std::size_t part = 0; part < kPartsOfBinade; ++part)
      sum += weights[part] = std::exp(slope * (static_cast<double>(part) + 0.5) * width / low);
    for (std::size_t part = 0; part < kPartsOfBinade; ++part) {
      const double from = low + static_cast<double>(part) * width;
      bins.push_back({from, from + width,
                      static_cast<double>(values.counts[i]) / total * weights[part] / sum});
    }
  }
  return bins;
}

double scale_for(const Scaling& scaling, double amax) {
  const double exact = amax / max_value(scaling.format);
  return scaling.scale.format == ScaleFormat::e8m0 ? std::exp2(std::ceil(std::log2(exact))) : exact;
}

// Of a number that is not negative, by its bits: this is the innermost loop, for every tensor. Zero
// and subnormal numbers have an exponent that no format reaches.
int exponent_of(double x) {
  return static_cast<int>(__builtin_bit_cast(std::uint64_t, x) >> 52) - 1023;
}
double power_of_two(int exponent) {
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
}

double squared_error(const Format& format, double scale, double x) {
  const double u = x / scale;
  const int exponent = std::max(exponent_of(u), format.min_exponent());
  const double step = power_of_two(exponent - format.mantissa_bits);
  const double error = u < step / 2 ? u * u : step * step / 12;
  return error * scale * scale;
}

// The largest value of a tile is the largest code times the scale, to the digits that the scale
// has.
double squared_error_of_amax(const Scaling& scaling, double scale, double amax) {
  constexpr double kOfE4m3 = 0.0265;  // relative, rms, at any size
  switch (scaling.scale.format) {
    case ScaleFormat::e8m0:
      return squared_error(scaling.format, scale, amax);
    case ScaleFormat::e4m3_f32:
      return kOfE4m3 * amax * kOfE4m3 * amax;
    default:
      return 0;
  }
}

std::int64_t values_per_tile(const Scaling& scaling, const std::vector<std::int64_t>& shape) {
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
  const auto extent = [](std::int64_t tile, std::int64_t all) {
    return std::max<std::int64_t>(1, tile == 0 ? all : std::min(tile, all));
  };
  return extent(scaling.tile.rows, rows) * extent(scaling.tile.cols, cols);
}

double bits_of(const Scaling& scaling, const std::vector<std::int64_t>& shape) {
  const ScaleFormat format = scaling.scale.format;
  const bool byte = format == ScaleFormat::e8m0 || format == ScaleFormat::e4m3_f32;
  const double scale_bits = byte ? 8 : format == ScaleFormat::f32 ? 32 : 16;
  return scaling.format.bits() + scale_bits / static_cast<double>(values_per_tile(scaling, shape));
}

// In decibels, for values in random order.
double expected_sqnr(const std::vector<Bin>& bins, double zeros, const Scaling& scaling,
                     const std::vector<std::int64_t>& shape) {
  const auto n = static_cast<double>(values_per_tile(scaling, shape));
  double error2 = 0, value2 = 0, below = zeros;
  for (std::size_t top = 0; top < bins.size(); ++top) {
    const double through = std::min(1.0, below + bins[top].share);
    const double chance = std::pow(through, n) - std::pow(below, n);  // that the largest is here
    below = through;
    if (chance < 1e-6) continue;
    const double amax = (bins[top].low + bins[top].high) / 2;
    const double scale = scale_for(scaling, amax);
    // The other n - 1 values of such a tile lie in the bins up to this one.
    double others_error = 0, others_value = 0;
    for (std::size_t i = 0; i <= top; ++i) {
      const double x = (bins[i].low + bins[i].high) / 2;
      others_error += bins[i].share * squared_error(scaling.format, scale, x);
      others_value += bins[i].share * x * x;
    }
    const double each = (n - 1) / through;
    error2 += chance * (each * others_error + squared_error_of_amax(scaling, scale, amax));
    value2 += chance * (each * others_value + amax * amax);
  }
  return error2 > 0 ? 10 * std::log10(value2 / error2) : INFINITY;
}

bool could_have(const TensorReport& tensor, std::string_view preset) {
  const auto& those = tensor.could_have;
  return !those || std::find(those->begin(), those->end(), preset) != those->end();
}

}  // namespace

std::span<const std::string_view> advised_presets() { return kCandidates; }

ErrorEstimate error_estimate_of(const TensorReport& tensor) {
  ErrorEstimate out{.elements = static_cast<double>(tensor.metrics.elements),
                    .error2 = tensor.metrics.sums.error2};
  out.gain.fill(NAN);
  if (!tensor.measured || tensor.preset.empty() || tensor.metrics.values.counts.empty()) return out;
  Scaling now;
  try {
    now = preset(tensor.preset);
  } catch (const Error&) {
    return out;  // compared checkpoints may have other scalings
  }
  const std::string_view name = std::string_view(tensor.preset).substr(0, tensor.preset.find(':'));
  const std::vector<Bin> bins = bins_of(tensor.metrics);
  const auto counted = static_cast<double>(counted_values(tensor.metrics.values));
  const double zeros = static_cast<double>(tensor.metrics.values.zeros) / counted;
  const double before = expected_sqnr(bins, zeros, now, tensor.shape);
  const double bits = bits_of(now, tensor.shape);
  for (std::size_t i = 0; i < kCandidates.size(); ++i) {
    if (kCandidates[i] == name || !could_have(tensor, kCandidates[i])) continue;
    const Scaling other = preset(kCandidates[i]);
    const double gain = expected_sqnr(bins, zeros, other, tensor.shape) - before;
    out.gain[i] = std::isfinite(gain) ? static_cast<float>(gain) : NAN;
    out.bits[i] = static_cast<float>(bits_of(other, tensor.shape) - bits);
  }
  return out;
}

std::string_view advised_preset(std::string_view advice) {
  return advice.substr(0, advice.find(' '));
}

namespace {

// What a preset would change for all of some tensors.
struct Change {
  double gain = NAN;  // decibels; NaN where one of them cannot have it
  double bits = 0;    // more for each value
  // Decibels per bit; a quarter of a bit is what scales alone make.
  [[nodiscard]] double rate() const { return gain / std::max(bits, 0.25); }
  [[nodiscard]] bool is_worth_saying() const { return std::isfinite(gain) && gain >= kWorthSaying; }
};

// Errors add up: each tensor's shrinks by its own gain. Where none has an error (which no gain
// changes) they count alike.
Change change_to(std::size_t candidate, std::span<const ErrorEstimate> tensors) {
  double error2 = 0, elements = 0;
  for (const ErrorEstimate& one : tensors) {
    error2 += one.error2;
    elements += one.elements;
  }
  double before = 0, after = 0, more = 0;
  for (const ErrorEstimate& one : tensors) {
    const double weight = error2 > 0 ? one.error2 : 1;
    before += weight;
    after += weight * std::pow(10.0, -static_cast<double>(one.gain[candidate]) / 10);  // or NaN
    const double share =
        elements > 0 ? one.elements / elements : 1 / static_cast<double>(tensors.size());
    more += static_cast<double>(one.bits[candidate]) * share;
  }
  return {10 * std::log10(before / after), more};
}

}  // namespace

// The most decibels per bit, but of presets that the estimate cannot tell apart the first of the
// list: two matrices of the same values, one tall and one wide, differ by hundredths of a bit and
// tenths of a decibel, and are to have one advice.
std::string advice_for(std::string_view preset_name, std::span<const ErrorEstimate> tensors) {
  constexpr double kSameBits = 0.3;  // MX scales take a quarter of a bit
  std::array<Change, ErrorEstimate::kPresets> changes;
  const Change* most = nullptr;
  for (std::size_t i = 0; i < kCandidates.size(); ++i) {
    changes[i] = change_to(i, tensors);
    if (changes[i].is_worth_saying() && (most == nullptr || changes[i].rate() > most->rate()))
      most = &changes[i];
  }
  if (most == nullptr) return "";
  std::size_t at = 0;
  while (!changes[at].is_worth_saying() || changes[at].gain < most->gain - kWorthSaying ||
         changes[at].bits > most->bits + kSameBits)
    ++at;
  const std::string_view best = kCandidates[at];
  const double best_gain = changes[at].gain, best_bits = changes[at].bits;
  const std::string cost = std::fabs(best_bits) < 0.05 ? "the same size"
                           : best_bits > 0             ? page::fixed(best_bits, 1) + " bits more"
                                                       : page::fixed(-best_bits, 1) + " bits less";
  return text(best, " instead of ", preset_name, " gains ", page::fixed(best_gain, 0), " dB for ",
              cost, tensors.size() > 1 ? ", with the tensors that servers fuse with it" : "");
}

std::string advice_for(const TensorReport& tensor) {
  const ErrorEstimate one = error_estimate_of(tensor);
  return advice_for(tensor.preset, {&one, 1});
}

}  // namespace octavo

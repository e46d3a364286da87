// CheckpointReport: the error of quantizing (or comparing) a checkpoint, tensor by tensor, as JSON
// and as one self-contained HTML page.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/report/error_ranges.h"
#include "octavo/report/metrics.h"
#include "octavo/report/mix_result.h"

namespace octavo {

struct TensorReport {
  std::string name;    // anything at all: escaped wherever it is shown
  std::string module;  // "model.layers.3.self_attn.q_proj"
  std::vector<std::int64_t> shape;
  std::string source;   // "bfloat16"
  std::string preset;   // "mxfp8"; empty where the tensor was copied
  std::string scaling;  // describe()
  std::string why;      // why it was not quantized, or a note of the plan
  std::uint64_t bytes_before = 0, bytes_after = 0;
  bool measured = false;
  std::int64_t same_non_finite = 0;  // NaN, or the same Inf, on both sides of a comparison
  // With the histogram of values and of codes (of many tensors, only the worst); no rows, no tiles.
  ErrorMetrics metrics{};
  ValueHistogram results{};  // of the dequantized values, in the bins of metrics.values
  std::vector<std::int64_t> scale_histogram;  // by exponent: [i] is 2^(i - 127) .. 2^(i - 126)
  // The advised_presets() that the target format supports for this tensor; empty: all.
  std::optional<std::vector<std::string_view>> could_have{};
  // Of normal weights in this scaling, for comparison; NaN: not known.
  double expected_sqnr = std::numeric_limits<double>::quiet_NaN();
  double expected_cosine = std::numeric_limits<double>::quiet_NaN();
  // Where codes were made on a text (GPTQ): the error of the layer's results there, relative to
  // them (root of squares), and the one that rounding to nearest has; NaN: not known.
  double result_error = std::numeric_limits<double>::quiet_NaN();
  double rounded_result_error = std::numeric_limits<double>::quiet_NaN();
  std::string advice;  // "fp8-block instead of nvfp4 gains 11 dB for 3.9 bits"; may be empty
  // What follows it: the value of option recipe_for,
  // "^model\\.layers\\.3\\.q_proj\\.weight$=fp8-block", for this tensor and those that must have
  // the same recipe.
  std::string recipe_for;
};

// From how many decibels on a tensor is far from what normal weights have.
inline constexpr double kFarFromNormal = 3;

// The same advice for some tensors, and one option that follows it for all of them.
struct SharedAdvice {
  std::string what;          // "fp8-block instead of nvfp4"
  std::string tensor;        // the one of the lowest SQNR: untrusted
  std::string advice;        // for that one
  std::int64_t tensors = 0;  // how many there are
  bool far_below = false;    // normal weights: these need it, others would only be better with it
  std::string recipe_for;    // for all; empty where no short expression finds them and no others
};

// Values that no metric counts: NaN or Inf before or after, and not the same on both sides. What
// was clamped is finite by then.
[[nodiscard]] inline std::int64_t uncounted(const TensorReport& tensor) {
  return tensor.metrics.elements - tensor.metrics.sums.count - tensor.same_non_finite;
}
// Nothing is wrong with it, as far as numbers go.
[[nodiscard]] inline bool is_equal(const TensorReport& tensor) {
  return tensor.metrics.sums.error2 == 0 && uncounted(tensor) == 0;
}
// What tensors are sorted by, the worst first: their SQNR, or less than any where values are
// uncounted or it is NaN.
[[nodiscard]] OCTAVO_API double order_of(const TensorReport& tensor);

// Of how many tensors a report has histograms: of all, or where there are more of the worst by
// SQNR.
inline constexpr std::size_t kMaxHistograms = 1000;
// Which of tensors with these SQNRs (or order_of()) those are, the first of equals before the
// others.
[[nodiscard]] OCTAVO_API std::vector<bool> with_histograms(const std::vector<double>& sqnrs);
// Takes them out of a tensor's report, and their memory.
OCTAVO_API void drop_histograms(TensorReport& tensor);

struct OCTAVO_API CheckpointReport {
  std::string title;                                            // the name of the model
  std::string verb = "quantize";                                // or "compare"
  std::string source, output, recipe, target;                   // as the user gave them
  std::vector<std::pair<std::string, std::string>> provenance;  // version, rule, policy, hash ...
  std::uint64_t bytes_before = 0, bytes_after = 0;
  double bits_per_weight = 0;  // of the quantized weights, scales included
  double seconds = 0;
  std::shared_ptr<const MixResult> mix{};  // how recipes were chosen; null: they were named
  bool was_complete = false;  // an earlier call had done it all: nothing was done or measured
  std::vector<std::string> written_again;  // then: files besides weights that were missing
  std::optional<ErrorRanges> ranges{};     // then: what the folder keeps of its errors
  std::vector<TensorReport> tensors;       // in the order of names, numbers in names by value
  std::vector<std::string> notes;          // what the user should know
  std::vector<SharedAdvice> advice;        // what needs it first, then most tensors
  std::int64_t copied_non_finite = 0;      // NaN and Inf in tensors that were not quantized
  // Tensors of a model that a comparison could not measure: one side has none, or another shape.
  std::vector<std::string> not_compared;
  // One of several processes with a plan: another wrote what is written last and has the tensors'
  // errors; and how many weight files this one wrote, how many jobs it took over.
  bool finished_by_another = false;
  std::int64_t files_written = 0, files_taken_over = 0;

  // Indices of measured tensors by order_of(), the worst first.
  [[nodiscard]] std::vector<std::size_t> worst(std::size_t most) const;
};

// As JSON text.
[[nodiscard]] OCTAVO_API std::string json_of(const CheckpointReport& report);
// The same a tensor at a time, with `more` members at its end (names, and JSON text of each): of
// many tensors the document would be the largest thing in memory.
using PutText = std::function<void(std::string_view)>;
using JsonMembers = std::vector<std::pair<std::string, std::string>>;
OCTAVO_API void write_json(const CheckpointReport& report, const JsonMembers& more,
                           const PutText& put);
// Its two halves, for a caller that must free the report's memory before it can compute `more`.
OCTAVO_API void begin_json(const CheckpointReport& report, const PutText& put);
OCTAVO_API void end_json(const JsonMembers& more, const PutText& put);
[[nodiscard]] OCTAVO_API std::string html_of(const CheckpointReport& report);

[[nodiscard]] OCTAVO_API std::span<const std::string_view> advised_presets();

// Estimated gain of the other advised_presets() for a tensor, from its metrics alone.
struct ErrorEstimate {
  static constexpr std::size_t kPresets = 5;
  std::array<float, kPresets> gain{};  // in decibels; NaN for those that it cannot have
  std::array<float, kPresets> bits{};  // more than now, for each value
  double elements = 0, error2 = 0;     // its weight among other tensors
};
[[nodiscard]] OCTAVO_API ErrorEstimate error_estimate_of(const TensorReport& tensor);
// "fp8-block instead of nvfp4 gains 11 dB for 3.9 bits more": the best for tensors of one preset
// that are to have one, such as q/k/v, which servers load as one matrix; "" if there is none.
[[nodiscard]] OCTAVO_API std::string advice_for(std::string_view preset,
                                                std::span<const ErrorEstimate> tensors);
// "fp8-block" of such a line.
[[nodiscard]] OCTAVO_API std::string_view advised_preset(std::string_view advice);
// The same for one alone.
[[nodiscard]] OCTAVO_API std::string advice_for(const TensorReport& tensor);

}  // namespace octavo

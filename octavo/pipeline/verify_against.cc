#include "octavo/pipeline/verify_against.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/checkpoint/verify/verify_internal.h"
#include "octavo/convert/widen.h"
#include "octavo/format/decode.h"
#include "octavo/pipeline/compare_pairs_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "verify";

// Other tools round quotients or scales to bf16 first, which moves a value by 2^-9 of itself each
// time; half a step of E4M3, the finest of the formats, is 2^-5 of it or more.
constexpr float kOtherRounding = 0x1p-8F;

// What is wrong with one tensor.
struct Wrong {
  std::int64_t count = 0, row = 0, col = 0;  // the first one's
  float is = 0, was = 0;
  double product = 0, square = 0;  // sums of is * was and was * was

  void take(std::int64_t at_row, std::int64_t at_col, float value, float wanted) {
    const bool first = count == 0 || at_row < row || (at_row == row && at_col < col);
    ++count;
    if (first) {
      row = at_row;
      col = at_col;
      is = value;
      was = wanted;
    }
  }
  void add(const Wrong& other) {
    if (other.count > 0) {
      const std::int64_t sum = count + other.count;
      const bool first = count == 0 || other.row < row || (other.row == row && other.col < col);
      if (first) {
        row = other.row;
        col = other.col;
        is = other.is;
        was = other.was;
      }
      count = sum;
    }
    product += other.product;
    square += other.square;
  }
};

// The smallest scale that a type can hold times the format's maximum: a tile below it is zero.
float underflow_of(const Scaling& scaling, float second) {
  const auto top = static_cast<float>(max_value(scaling.format));
  switch (scaling.scale.format) {
    case ScaleFormat::e4m3_f32:
      return second * 0x1p-9F * top;
    case ScaleFormat::f16:
      return 0x1p-24F * top;
    default:
      return 0x1p-120F * top;
  }
}

// The distance from a code of magnitude `code` to the next larger one. A quotient that is rounded
// to below a power of two counts as one that is not.
float step_of(const Format& format, float code) {
  constexpr float kUp = 1 + 0x1p-12F;
  constexpr int kBias = 127, kMantissa = 23;  // of f32
  const auto bits = std::bit_cast<std::uint32_t>(code * kUp);
  const int exponent =
      format.twos_complement ? 0 : static_cast<int>(bits >> kMantissa & 0xFF) - kBias;
  const int step = std::max(exponent, format.min_exponent()) - format.mantissa_bits;
  return std::bit_cast<float>(static_cast<std::uint32_t>(step + kBias) << kMantissa);
}

// Quantized values beside those they were made from, tile by tile.
Wrong look_at_codes(std::span<const float> was, const QuantizedTensor& tensor,
                    const Scaling& scaling, std::int64_t first_row, std::int64_t cols) {
  Wrong out;
  const Tensor values = dequantize(tensor, DType::f32, {.threads = 1});
  const auto is = values.span<const float>();
  const Tensor wide = widened(tensor.rowwise.scales);
  const auto scales = wide.span<const float>();
  const bool two = scaling.scale.format == ScaleFormat::e4m3_f32;
  const float second = two ? tensor.rowwise.tensor_scale.span<const float>()[0] : 1.0F;
  const float least = underflow_of(scaling, second);
  const auto top = static_cast<float>(max_value(scaling.format));
  const auto rows = static_cast<std::int64_t>(is.size()) / cols;
  const std::int64_t high = tile_extent(scaling.tile.rows, rows),
                     wide_by = tile_extent(scaling.tile.cols, cols),
                     across = tile_count(scaling.tile.cols, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<std::size_t>(r * cols + c);
      const float value = is[at], wanted = was[at];
      out.product += static_cast<double>(value) * static_cast<double>(wanted);
      out.square += static_cast<double>(wanted) * static_cast<double>(wanted);
      const float scale =
          scales[static_cast<std::size_t>(r / high * across + c / wide_by)] * second;
      const float code = scale > 0 ? std::fabs(value) / scale : 0.0F;
      const float may = std::fmax(0.5F * scale * step_of(scaling.format, code), least) +
                        kOtherRounding * std::fabs(wanted);
      if (std::fabs(value - wanted) <= may) continue;
      const bool saturated = code >= top * (1 - kOtherRounding) &&
                             std::signbit(value) == std::signbit(wanted) &&
                             std::fabs(wanted) >= std::fabs(value);
      if (!saturated) out.take(first_row + r, c, value, wanted);
    }
  return out;
}

// Values that are not quantized: equal, or rounded to another type.
Wrong look_at_values(std::span<const float> was, std::span<const float> is, bool same_type,
                     std::int64_t first_row, std::int64_t cols) {
  Wrong out;
  constexpr float kTiny = 0x1p-24F;  // the smallest number of f16
  for (std::size_t i = 0; i < was.size(); ++i) {
    const bool both_nan = std::isnan(was[i]) && std::isnan(is[i]);
    const float may = same_type ? 0.0F : kOtherRounding * std::fabs(was[i]) + kTiny;
    if (both_nan || was[i] == is[i] || std::fabs(was[i] - is[i]) <= may) continue;
    const auto at = static_cast<std::int64_t>(i);
    out.take(first_row + at / cols, at % cols, is[i], was[i]);
  }
  return out;
}

std::string message_of(const ComparedPair& pair, const Wrong& wrong) {
  std::string out =
      text(wrong.count, " of ", pair.a.rows * pair.a.cols, " values are ",
           pair.b.found != nullptr ? "further from the model's than rounding puts them"
                                   : "not the model's",
           ", the first in row ", wrong.row, ", column ", wrong.col, ": ", wrong.is, " beside ",
           wrong.was);
  const double factor = wrong.square > 0 ? wrong.product / wrong.square : 1.0;
  constexpr double kFar = 1.2;  // rounding alone stays within a few percent
  if (pair.b.found != nullptr && std::isfinite(factor) && (factor > kFar || factor < 1 / kFar))
    out += text("; all together they are ", factor, " times the model's: were scales changed?");
  else if (pair.b.found != nullptr)
    out += "; scales or codes were changed, or were not rounded to nearest";
  return out;
}

}  // namespace

std::vector<Finding> verify_against(const std::string& checkpoint, const std::string& model,
                                    int threads) {
  check(threads >= 0 && threads <= kMaxThreads, ErrorCode::invalid_argument, kOp,
        "got threads = ", threads, "; expected 0 (all) to ", kMaxThreads);
  const ComparedSide a(model), b(checkpoint);
  Unpaired unpaired;
  std::vector<ComparedPair> pairs = pair_tensors(a, b, unpaired);
  check(!pairs.empty(), ErrorCode::invalid_argument, kOp, "'", shown(checkpoint, 200), "' and '",
        shown(model, 200), "' have no tensor of the same name and shape; expected the model that ",
        "the first was made from; give that one");
  std::sort(pairs.begin(), pairs.end(), [](const ComparedPair& x, const ComparedPair& y) {
    return natural_less(x.name, y.name);
  });
  const std::vector<ComparedPiece> pieces = pieces_of(a, b, pairs);
  std::vector<Wrong> wrong(pairs.size());
  WorkLoop loop(threads == 0 ? available_threads() : threads, 0, {}, false);
  std::mutex adding;
  loop.run(pieces.size(), [&](int, std::size_t i) {
    const ComparedPiece& piece = pieces[i];
    const ComparedPair& pair = pairs[piece.pair];
    const Tensor was = a.values(pair.a, piece.first, piece.rows);
    Wrong here;
    if (pair.b.found == nullptr) {
      const bool same =
          pair.a.plain != nullptr && pair.a.plain->entry->type == pair.b.plain->entry->type;
      const Tensor is = b.values(pair.b, piece.first, piece.rows);
      here = look_at_values(was.span<const float>(), is.span<const float>(), same, piece.first,
                            pair.b.cols);
    } else if (!pair.b.found->weight.scaling.hadamard.rowwise) {  // its tiles are of other values
      here = look_at_codes(was.span<const float>(), b.codes(pair.b, piece.first, piece.rows),
                           pair.b.found->weight.scaling, piece.first, pair.b.cols);
    }
    const std::lock_guard lock(adding);
    wrong[piece.pair].add(here);
  });
  std::vector<Finding> out;
  const auto report = [&](Severity severity, const std::string& name, std::string message) {
    out.push_back({severity, "all", std::string(kAgainstRule), name, std::move(message),
                   severity == Severity::error});
  };
  for (std::size_t i = 0; i < pairs.size(); ++i)
    if (wrong[i].count > 0) report(Severity::error, pairs[i].name, message_of(pairs[i], wrong[i]));
  for (const std::string& name : unpaired.other_shape)
    report(Severity::error, name, "it has another shape in the model");
  for (const std::string& name : unpaired.only_a)
    if (!is_dialect_tensor(name))
      report(Severity::error, name, "the model has it, and this has not");
  for (const std::string& name : unpaired.only_b)
    if (!is_dialect_tensor(name)) report(Severity::warning, name, "the model does not have it");
  return out;
}

}  // namespace octavo

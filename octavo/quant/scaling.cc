#include "octavo/quant/scaling.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <span>

#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"

namespace octavo {
namespace {

// In the order of the enumerations.
constexpr std::array<std::string_view, 5> kScaleFormats{"f32", "bf16", "f16", "e8m0", "e4m3+f32"};
constexpr std::array<std::string_view, 5> kRules{"f32", "rceil", "floor", "ceil", "even"};
constexpr std::array<std::string_view, 7> kAriths{
    "octavo", "divide", "te", "torchao", "modelopt", "torchao_inference", "modelopt_qtensor"};
constexpr std::array<std::string_view, 2> kNonFinites{"poison", "saturate"};
constexpr std::array<std::string_view, 6> kPolicies{"max",    "percentile",     "mse",
                                                    "4over6", "modelopt_sweep", "wmse"};
constexpr std::array<std::string_view, 2> kOrders{"row_major", "col_major"};

template <typename Enum>
std::string_view name_in(std::span<const std::string_view> names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

template <typename Enum>
Enum find(std::span<const std::string_view> names, std::string_view name, std::string_view what) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    known += text(i ? ", " : "", names[i]);
  }
  fail(ErrorCode::invalid_argument, what, "got '", shown(name), "'; expected one of ", known);
}

struct Preset {
  std::string_view name;
  Scaling scaling;
  std::string_view formats;  // what may follow a colon; the first is the default
};

constexpr ScaleSpec kF32{}, kE8m0{.format = ScaleFormat::e8m0, .rule = ScaleRule::rceil},
    kBf16{.format = ScaleFormat::bf16}, kTwoLevel{.format = ScaleFormat::e4m3_f32};

constexpr std::array<Preset, 11> kPresets{{
    {"fp8", {.tile = {0, 0}, .scale = kF32}, "e4m3fn e5m2"},
    {"fp8-channel", {.tile = {1, 0}, .scale = kF32}, "e4m3fn e5m2"},
    {"fp8-1x128", {.tile = {1, 128}, .scale = kF32}, "e4m3fn e5m2"},
    {"fp8-block", {.tile = {128, 128}, .scale = kF32}, "e4m3fn e5m2"},
    {"mxfp8", {.tile = {1, 32}, .scale = kE8m0}, "e4m3fn e5m2"},
    {"mxfp6", {.format = e2m3fn, .tile = {1, 32}, .scale = kE8m0}, "e2m3fn e3m2fn"},
    {"mxfp4", {.format = e2m1fn, .tile = {1, 32}, .scale = kE8m0}, "e2m1fn"},
    {"mxint8", {.format = mxint8, .tile = {1, 32}, .scale = kE8m0}, "mxint8"},
    {"int8-channel", {.format = int8, .tile = {1, 0}, .scale = kF32}, "int8"},
    {"int4", {.format = int4, .tile = {1, 128}, .scale = kBf16}, "int4"},
    {"nvfp4", {.format = e2m1fn, .tile = {1, 16}, .scale = kTwoLevel}, "e2m1fn"},
}};

bool lists(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

std::string extent_text(std::int64_t extent) {
  return extent == 0 ? "all" : std::to_string(extent);
}

// An arith that reproduces a peer does not do what the peer does not.
void check_peer(const ScaleSpec& scale) {
  const Arith arith = scale.arith;
  if (!is_peer(arith)) return;
  const auto wrong = [&](const auto&... parts) {
    fail(ErrorCode::invalid_argument, "scaling", "arith ", name_of(arith), " ", parts...);
  };
  if (scale.format == ScaleFormat::bf16 || scale.format == ScaleFormat::f16)
    wrong("has no scales of ", name_of(scale.format), "; expected f32, e8m0 or e4m3+f32");
  const bool by_torchao = arith == Arith::torchao || arith == Arith::torchao_inference;
  const bool with_powers = arith == Arith::te || arith == Arith::torchao;
  if (scale.format == ScaleFormat::e8m0 && scale.rule != ScaleRule::rceil && !by_torchao)
    wrong("has no rule ", name_of(scale.rule), " for e8m0 scales; expected rceil");
  if (scale.format == ScaleFormat::f32 && scale.rule != ScaleRule::f32 &&
      !(with_powers && scale.rule == ScaleRule::rceil))
    wrong("has no rule ", name_of(scale.rule), " for f32 scales; expected f32",
          with_powers ? " or rceil" : "");
  if (scale.margin != 0 && !(arith == Arith::te && scale.format == ScaleFormat::f32))
    wrong("has no margin here, got ", scale.margin);
}

// Policies that know one family of scales, or one copy.
void check_search(const Scaling& scaling) {
  const auto wrong = [&](const auto&... parts) {
    fail(ErrorCode::invalid_argument, "scaling", "policy ", name_of(scaling.policy), " ", parts...);
  };
  const bool is_sweep = scaling.policy == AmaxPolicy::modelopt_sweep,
             is_four_over_six = scaling.policy == AmaxPolicy::four_over_six;
  if ((is_sweep || is_four_over_six) &&
      (scaling.format != e2m1fn || scaling.scale.format != ScaleFormat::e4m3_f32))
    wrong("is for e2m1fn with e4m3+f32 scales (nvfp4), got ", format_name(scaling.format), " with ",
          name_of(scaling.scale.format), " scales; expected policy mse here");
  if (is_sweep && scaling.scale.arith != Arith::modelopt)
    wrong("is ModelOpt's: expected arith modelopt, got ", name_of(scaling.scale.arith));
  if (is_four_over_six && is_peer(scaling.scale.arith))
    wrong("needs a tensor scale that leaves room, which arith ", name_of(scaling.scale.arith),
          " does not; expected arith octavo or divide");
  if (scaling.policy == AmaxPolicy::wmse &&
      (scaling.columnwise || scaling.axis != -1 || scaling.hadamard.rowwise))
    wrong(
        "weighs columns of the values as they are: expected a rowwise copy alone, axis -1, and "
        "no Hadamard transform");
}

}  // namespace

Scaling preset(std::string_view name) {
  const std::size_t colon = name.find(':');
  for (const Preset& known : kPresets) {
    if (known.name != name.substr(0, colon)) continue;
    Scaling scaling = known.scaling;
    if (colon != std::string_view::npos) {
      const std::string_view format = name.substr(colon + 1);
      check(lists(known.formats, format), ErrorCode::invalid_argument, "preset", "got '",
            shown(name), "'; expected '", known.name, ":' and one of: ", known.formats,
            "; build a Scaling for other element formats");
      scaling.format = parse_format(format);
    }
    return scaling;
  }
  std::string names;
  for (const Preset& known : kPresets) names += text(names.empty() ? "" : ", ", known.name);
  fail(ErrorCode::invalid_argument, "preset", "got '", shown(name), "'; expected one of ", names);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& known : kPresets) names.emplace_back(known.name);
  return names;
}

std::string describe(const Scaling& scaling) {
  std::string out;
  for (const Preset& known : kPresets) {
    Scaling same = scaling;
    // Another rule for the same scales is appended: "mxfp4: ..., scale e8m0 even".
    if (same.scale.format == ScaleFormat::e8m0) same.scale.rule = known.scaling.scale.rule;
    same.format = known.scaling.format;
    same.encode = known.scaling.encode;
    same.rowwise = known.scaling.rowwise;
    same.columnwise = known.scaling.columnwise;
    same.scale_order = known.scaling.scale_order;
    if (same == known.scaling && lists(known.formats, format_name(scaling.format)))
      out = text(known.name, ": ");
  }
  out += text(format_name(scaling.format), ", tile ", extent_text(scaling.tile.rows), "x",
              extent_text(scaling.tile.cols), ", scale ", name_of(scaling.scale.format));
  if (is_power_of_two_rule(scaling.scale.rule)) out += text(" ", name_of(scaling.scale.rule));
  if (scaling.scale.margin != 0) out += text(", margin ", scaling.scale.margin);
  if (scaling.policy != AmaxPolicy::max) out += text(", ", name_of(scaling.policy));
  if (scaling.policy == AmaxPolicy::percentile) out += text(" ", scaling.percentile);
  if (scaling.scale.arith != Arith::octavo) out += text(", arith ", name_of(scaling.scale.arith));
  if (scaling.axis != -1) out += text(", axis ", scaling.axis);
  const EncodePolicy &encode = scaling.encode, usual;
  if (scaling.scale.min_amax != 0.0F) out += text(", min_amax ", scaling.scale.min_amax);
  if (scaling.scale.non_finite != NonFinite::poison)
    out += text(", non-finite ", name_of(scaling.scale.non_finite));
  if (encode.rounding != usual.rounding) out += text(", rounding ", name_of(encode.rounding));
  if (encode.rounding == Rounding::stochastic)
    out += text(" (seed ", encode.seed, ", ", encode.stochastic_bits, " bits)");
  if (encode.overflow != usual.overflow) out += text(", overflow ", name_of(encode.overflow));
  if (encode.nan_input != usual.nan_input) out += text(", NaN ", name_of(encode.nan_input));
  if (scaling.columnwise) out += scaling.rowwise ? ", rowwise and columnwise" : ", columnwise";
  if (scaling.hadamard != Hadamard{}) out += text(", Hadamard signs ", scaling.hadamard.signs);
  if (!scaling.packed && scaling.format.bits() < 8) out += ", unpacked";
  if (scaling.scale_order != ScaleOrder::row_major) out += ", scales column-major";
  return out;
}

void check_scaling(const Scaling& scaling) {
  constexpr std::string_view kOp = "scaling";
  const auto wrong = [&](const auto&... parts) {
    fail(ErrorCode::invalid_argument, kOp, parts...);
  };
  if (const auto problem = format_problem(scaling.format))
    wrong("the element format cannot be: ", *problem);
  if (!scaling.format.is_signed)
    wrong("got the unsigned format ", format_name(scaling.format),
          "; expected a signed one: values have signs");
  const double max = max_value(scaling.format);
  if (max < 0x1p-60 || max > 0x1p60)
    wrong("the largest ", format_name(scaling.format), " is ", max,
          ", and scales are f32: expected between 2^-60 and 2^60");
  if (scaling.tile.rows < 0 || scaling.tile.cols < 0)
    wrong("got a tile of ", scaling.tile.rows, "x", scaling.tile.cols,
          "; expected sizes of 1 or more, or 0 for the whole extent");
  const ScaleSpec& scale = scaling.scale;
  if (scale.format == ScaleFormat::e8m0 && !is_power_of_two_rule(scale.rule))
    wrong("e8m0 scales are powers of two; expected rule rceil, floor, ceil or even");
  if (scale.format == ScaleFormat::e4m3_f32 && is_power_of_two_rule(scale.rule))
    wrong("e4m3+f32 scales take the rule f32, got ", name_of(scale.rule));
  if (scale.format == ScaleFormat::e4m3_f32 && scaling.tile == Tile{0, 0})
    wrong(
        "e4m3+f32 has a scale per tile besides the tensor's; expected a tile smaller than the "
        "tensor, such as 1x16");
  if (scale.margin < -kMaxMargin || scale.margin > kMaxMargin)
    wrong("got margin ", scale.margin, "; expected ", -kMaxMargin, " to ", kMaxMargin);
  check_peer(scale);
  if (!(scale.min_amax >= 0.0F) || scale.min_amax > 1e30F)
    wrong("got min_amax ", scale.min_amax, "; expected 0 to 1e30");
  if (scaling.policy == AmaxPolicy::percentile &&
      !(scaling.percentile > 0.0 && scaling.percentile <= 100.0))
    wrong("got percentile ", scaling.percentile, "; expected more than 0 and at most 100");
  check_search(scaling);
  if (scaling.scale_order == ScaleOrder::col_major && scaling.axis != -1)
    wrong("got scale_order col_major along axis ", scaling.axis,
          "; it is for tiles along the last dimension; expected axis -1 or row_major");
  if (!scaling.rowwise && !scaling.columnwise)
    wrong("neither rowwise nor columnwise is expected; ask for one at least");
  if (scaling.encode.stochastic_bits < 1 || scaling.encode.stochastic_bits > kMaxStochasticBits)
    wrong("got stochastic_bits ", scaling.encode.stochastic_bits, "; expected 1 to ",
          kMaxStochasticBits);
}

std::string_view name_of(ScaleFormat format) { return name_in(kScaleFormats, format); }
std::string_view name_of(ScaleRule rule) { return name_in(kRules, rule); }
std::string_view name_of(Arith arith) { return name_in(kAriths, arith); }
std::string_view name_of(NonFinite non_finite) { return name_in(kNonFinites, non_finite); }
std::string_view name_of(AmaxPolicy policy) { return name_in(kPolicies, policy); }
std::string_view name_of(ScaleOrder order) { return name_in(kOrders, order); }

ScaleFormat parse_scale_format(std::string_view name) {
  return find<ScaleFormat>(kScaleFormats, name, "scale");
}
ScaleRule parse_scale_rule(std::string_view name) { return find<ScaleRule>(kRules, name, "rule"); }
Arith parse_arith(std::string_view name) { return find<Arith>(kAriths, name, "arith"); }
NonFinite parse_non_finite(std::string_view name) {
  return find<NonFinite>(kNonFinites, name, "non_finite");
}

ScaleOrder parse_scale_order(std::string_view name) {
  return find<ScaleOrder>(kOrders, name, "scale_order");
}

Tile parse_tile(std::string_view name) {
  if (name == "tensor") return {0, 0};
  if (name == "row") return {1, 0};
  if (name == "column") return {0, 1};
  const auto extent = [&](std::string_view digits) {
    std::int64_t value = 0;
    if (digits == "all") return value;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    check(error == std::errc{} && end == digits.end() && value > 0, ErrorCode::invalid_argument,
          "tile", "got '", shown(name),
          "'; expected tensor, row, column or rows and columns such as 1x32 and 128x128");
    return value;
  };
  const std::size_t cross = std::min(name.find('x'), name.size());
  const std::int64_t rows = extent(name.substr(0, cross));
  return {rows, extent(name.substr(std::min(cross + 1, name.size())))};
}

Tile parse_block(std::string_view name, const Tile& like) {
  const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  if (!digits) return parse_tile(name);
  const std::int64_t size = parse_tile(octavo::text(name, "x", name)).rows;
  return {like.rows > 1 ? size : 1, size};
}

void parse_amax_policy(std::string_view name, Scaling& scaling) {
  const std::size_t colon = name.find(':');
  const auto policy = find<AmaxPolicy>(kPolicies, name.substr(0, colon), "policy");
  const bool wants_number = policy == AmaxPolicy::percentile;
  check(wants_number == (colon != std::string_view::npos), ErrorCode::invalid_argument, "policy",
        "got '", shown(name),
        "'; expected max, mse, 4over6, wmse, modelopt_sweep or percentile:P with P in (0, 100]");
  if (wants_number) {
    const std::string_view digits = name.substr(colon + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    check(error == std::errc{} && end == digits.end() && value > 0 && value <= 100,
          ErrorCode::invalid_argument, "policy", "got '", shown(name),
          "'; expected percentile:P with P in (0, 100]");
    scaling.percentile = value;
  }
  scaling.policy = policy;
  if (policy == AmaxPolicy::modelopt_sweep && scaling.scale.arith == Arith::octavo)
    scaling.scale.arith = Arith::modelopt;
}

}  // namespace octavo

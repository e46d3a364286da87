#include "cli/npy/cast_plan.h"

#include <algorithm>
#include <utility>

#include "cli/npy/npy_element.h"
#include "octavo/base/error.h"
#include "octavo/format/decode.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::cli {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[cast] ", parts...));
}

// Defaults: float types round to nearest and overflow to Inf, codes saturate; a profile and then
// each option overrides that.
EncodePolicy encode_policy(const CastOptions& options, const Element& target) {
  EncodePolicy policy;
  if (!target.is_code()) {
    policy.overflow = Overflow::ieee;
    policy.nan_code = NanCode::signed_quiet;
  }
  if (options.profile) {
    const Profile profile =
        named_argument("[cast] --profile:", *options.profile, profile_names(), parse_profile);
    if (!target.is_code()) {
      refuse("--profile ", *options.profile, " is about 8-bit and smaller formats, but --to is ",
             target.name(), "; leave out --profile");
    }
    policy = profile_policy(profile, target.format);
  }
  if (options.rounding)
    policy.rounding =
        named_argument("[cast] --rounding:", *options.rounding, rounding_names(), parse_rounding);
  if (options.overflow)
    policy.overflow =
        named_argument("[cast] --overflow:", *options.overflow, overflow_names(), parse_overflow);
  if (options.nan) {
    policy.nan_input =
        named_argument("[cast] --nan:", *options.nan, nan_input_names(), parse_nan_input);
    if (target.as_format().has_nan()) {
      refuse("--nan ", *options.nan, " says what NaN becomes in a format without NaN, but ",
             target.name(), " has it and keeps it; leave out --nan");
    }
  }
  if ((options.seed || options.stochastic_bits) && policy.rounding != Rounding::stochastic) {
    refuse(options.seed ? "--seed" : "--stochastic-bits", " needs --rounding stochastic, got ",
           name_of(policy.rounding));
  }
  if (options.seed) policy.seed = *options.seed;
  if (options.stochastic_bits) policy.stochastic_bits = *options.stochastic_bits;
  return policy;
}

void refuse_policy_options(const CastOptions& options, const Element& target) {
  const std::pair<bool, std::string_view> given[] = {
      {options.rounding.has_value(), "--rounding"},
      {options.overflow.has_value(), "--overflow"},
      {options.nan.has_value(), "--nan"},
      {options.profile.has_value(), "--profile"},
      {options.seed.has_value(), "--seed"},
      {options.stochastic_bits.has_value(), "--stochastic-bits"}};
  for (const auto& [is_given, name] : given) {
    if (is_given)
      refuse(name, " has nothing to choose: ", target.name(),
             " is wide enough to decode into; leave it out");
  }
}

void check_packable(const Element& element, std::string_view option) {
  if (!element.is_code() || element.format.bits() >= 8) {
    refuse(option, " packs codes of fewer than 8 bits, but ", element.name(), " has ",
           8 * element_bytes(element.dtype, element.format) > 8 ? "more" : "8", "; leave it out");
  }
}

// Sizes are untrusted, and an empty array or a pipe has no bytes to check them against. Below this
// limit no count of bits or bytes here can overflow.
void check_sizes(const std::vector<std::int64_t>& shape) {
  constexpr std::int64_t kMax = std::int64_t{1} << 56;
  const std::int64_t largest = shape.empty() ? 1 : *std::max_element(shape.begin(), shape.end());
  if (largest > kMax || element_count({.shape = shape}) > kMax) {
    fail(ErrorCode::io, "cast", "got shape ", shape_text(shape),
         "; expected at most 2^56 elements");
  }
}

// The last dimension of a packed file counts bytes; the number of codes is not always determined by
// it (three bytes are three or four 6-bit codes), so --columns may give it.
std::int64_t packed_columns(const CastOptions& options, const Format& format,
                            std::int64_t row_bytes) {
  const std::int64_t most = row_bytes * 8 / format.bits();
  const std::int64_t columns = options.columns.value_or(most);
  if (columns < 0 || columns > most || packed_row_bytes(columns, format) != row_bytes) {
    refuse("rows of ", row_bytes, " bytes hold up to ", most, " packed codes of ", format.bits(),
           " bits, but --columns says ", columns);
  }
  return columns;
}

// Values of up to 16 bits have few significant bits, so float32 holds all that are in its range.
bool decodes_exactly(const Format& format, DType target) {
  const auto fits = [](double value) {
    return static_cast<double>(static_cast<float>(value)) == value;
  };
  return target == DType::f64 || (fits(max_value(format)) && fits(min_positive(format)));
}

NpyHeader output_header(const CastSide& target, const std::vector<std::int64_t>& shape,
                        bool fortran_order) {
  NpyHeader header;
  const bool is_numpy_float = !target.element.is_code() && target.element.dtype != DType::bf16;
  header.kind = is_numpy_float ? NpyKind::real : NpyKind::integer;
  header.item_bytes =
      target.packed ? 1 : element_bytes(target.element.dtype, target.element.format);
  header.fortran_order = fortran_order;
  header.shape = shape;
  if (target.packed) header.shape.back() = packed_row_bytes(shape.back(), target.element.format);
  return header;
}

}  // namespace

std::int64_t CastSide::bytes(std::int64_t rows, std::int64_t cols) const {
  if (packed) return rows * packed_row_bytes(cols, element.format);
  return rows * cols * element_bytes(element.dtype, element.format);
}

CastPlan plan_cast(const CastOptions& options, const NpyHeader& header) {
  CastPlan plan;
  plan.target = {element_argument("[cast] --to:", options.to), options.packed};
  plan.source = {npy_element("cast", options.input, header, options.from), options.from_packed};
  const Element &source = plan.source.element, &target = plan.target.element;
  if (!source.has_16_bits_or_fewer() && !target.has_16_bits_or_fewer()) {
    refuse(source.name(), " to ", target.name(),
           " has no side of 16 bits or fewer, which is what octavo converts; use numpy's astype");
  }
  if (options.packed) check_packable(target, "--packed");
  if (options.from_packed) check_packable(source, "--from-packed");
  if (options.columns && !options.from_packed) refuse("--columns needs --from-packed");
  if ((options.packed || options.from_packed) && header.shape.empty()) {
    refuse("'", options.input,
           "' holds a scalar, and a scalar cannot be packed; save an array of at ",
           "least one dimension");
  }
  if ((options.packed || options.from_packed) && header.fortran_order && header.shape.size() > 1) {
    refuse("'", options.input,
           "' is in Fortran order, and packed rows run along the last dimension; save it with ",
           "numpy.ascontiguousarray first");
  }

  check_sizes(header.shape);
  plan.shape = header.shape;
  if (options.from_packed) {
    plan.shape.back() = packed_columns(options, source.format, plan.shape.back());
  }
  const std::int64_t count = element_count({.shape = plan.shape});
  plan.cols = count;
  if (options.packed || options.from_packed) {
    plan.cols = plan.shape.back();
    plan.rows = plan.cols == 0 ? 0 : count / plan.cols;
  }
  plan.output_header = output_header(plan.target, plan.shape, header.fortran_order);
  plan.encodes = target.has_16_bits_or_fewer();
  if (plan.encodes) {
    plan.policy = encode_policy(options, target);
  } else {
    plan.exact = decodes_exactly(source.as_format(), target.dtype);
    refuse_policy_options(options, target);
  }
  plan.threads = options.threads.value_or(0);
  return plan;
}

}  // namespace octavo::cli

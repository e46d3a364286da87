#include "octavo/convert/convert.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <variant>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/quant/scaled_convert.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::python {
namespace {

using Name = std::optional<std::string>;

// A profile is where the policy starts from; what is named beside it changes that one choice.
EncodePolicy policy_of(const Format& format, const Name& rounding, const Name& overflow,
                       const Name& nan, const Name& profile, std::uint64_t seed,
                       std::uint64_t first_index, int stochastic_bits) {
  EncodePolicy policy = profile ? profile_policy(parse_profile(*profile), format) : EncodePolicy{};
  if (rounding) policy.rounding = parse_rounding(*rounding);
  if (overflow) policy.overflow = parse_overflow(*overflow);
  if (nan) policy.nan_input = parse_nan_input(*nan);
  policy.seed = seed;
  policy.first_index = first_index;
  policy.stochastic_bits = stochastic_bits;
  return policy;
}

// Runs encode(policy, options) without the GIL, and returns its counts.
template <typename Encode>
std::optional<CountTuple> counted(const EncodePolicy& policy, Device device, int threads,
                                  bool count, std::uintptr_t stream, Encode&& encode) {
  const nb::gil_scoped_release released;
  Counting counting(count, device, stream);
  encode(policy,
         ConvertOptions{.threads = threads, .counts = counting.at(), .stream = stream_of(stream)});
  return counting.found();
}

std::optional<CountTuple> encode_view(const View& source, const View& target, const Name& rounding,
                                      const Name& overflow, const Name& nan, const Name& profile,
                                      std::uint64_t seed, std::uint64_t first_index,
                                      int stochastic_bits, int threads, bool count,
                                      std::uintptr_t stream) {
  const EncodePolicy policy = policy_of(target.format, rounding, overflow, nan, profile, seed,
                                        first_index, stochastic_bits);
  return counted(policy, source.device, threads, count, stream,
                 [&](const EncodePolicy& chosen, const ConvertOptions& options) {
                   encode(source, target, chosen, options);
                 });
}

// A number, or a view of numbers.
using GivenFactor = std::variant<double, View>;
Factor factor_of(const GivenFactor& given) {
  if (const auto* number = std::get_if<double>(&given)) return {.value = *number};
  const View& each = std::get<View>(given);
  // To the library a scalar without memory is none.
  check(each.data != nullptr || each.shape.rank() > 0, ErrorCode::invalid_argument, "factor",
        "got one number without memory (null data)");
  return {.each = each};
}

std::optional<CountTuple> encode_scaled_view(const View& source, const View& target,
                                             const GivenFactor& inv_scale, const Name& rounding,
                                             const Name& overflow, const Name& nan,
                                             const Name& profile, std::uint64_t seed,
                                             std::uint64_t first_index, int stochastic_bits,
                                             int threads, bool count, std::uintptr_t stream) {
  const EncodePolicy policy = policy_of(target.format, rounding, overflow, nan, profile, seed,
                                        first_index, stochastic_bits);
  return counted(policy, source.device, threads, count, stream,
                 [&](const EncodePolicy& chosen, const ConvertOptions& options) {
                   encode_scaled(source, target, factor_of(inv_scale), chosen, options);
                 });
}

std::optional<CountTuple> encode_dynamic_view(const View& source, const View& target,
                                              const std::string& rule, const View& inv_scale,
                                              const Name& rounding, const Name& overflow,
                                              const Name& nan, const Name& profile,
                                              std::uint64_t seed, std::uint64_t first_index,
                                              int stochastic_bits, int threads, bool count,
                                              std::uintptr_t stream) {
  const EncodePolicy policy = policy_of(target.format, rounding, overflow, nan, profile, seed,
                                        first_index, stochastic_bits);
  return counted(policy, source.device, threads, count, stream,
                 [&](const EncodePolicy& chosen, const ConvertOptions& options) {
                   encode_dynamic(source, target, parse_dynamic_rule(rule),
                                  static_cast<double*>(inv_scale.data), chosen, options);
                 });
}

void decode_scaled_view(const View& source, const View& target, const GivenFactor& factor,
                        bool divide, int threads, std::uintptr_t stream) {
  const nb::gil_scoped_release released;
  decode_scaled(source, target, factor_of(factor), divide ? DecodeBy::inv_scale : DecodeBy::scale,
                {.threads = threads, .stream = stream_of(stream)});
}

void decode_view(const View& source, const View& target, int threads, std::uintptr_t stream) {
  const nb::gil_scoped_release released;
  decode(source, target, {.threads = threads, .stream = stream_of(stream)});
}

}  // namespace

void bind_convert(nb::module_& module) {
  module.def(
      "encode", &encode_view, nb::arg("source"), nb::arg("target"), nb::kw_only(),
      nb::arg("rounding").none() = nb::none(), nb::arg("overflow").none() = nb::none(),
      nb::arg("nan").none() = nb::none(), nb::arg("profile").none() = nb::none(),
      nb::arg("seed") = 0, nb::arg("first_index") = 0, nb::arg("stochastic_bits") = 16,
      nb::arg("threads") = 0, nb::arg("count") = false, nb::arg("stream") = 0,
      "Values, or codes of another format, to codes. With count: (saturated, flushed, nan).");
  module.def("decode", &decode_view, nb::arg("source"), nb::arg("target"), nb::kw_only(),
             nb::arg("threads") = 0, nb::arg("stream") = 0, "Codes to values.");
  const auto def_scaled = [&](const char* name, auto function, const char* factor, const char* text,
                              auto... more) {
    module.def(name, function, nb::arg("source"), nb::arg("target"), nb::arg(factor), more...,
               nb::kw_only(), nb::arg("rounding").none() = nb::none(),
               nb::arg("overflow").none() = nb::none(), nb::arg("nan").none() = nb::none(),
               nb::arg("profile").none() = nb::none(), nb::arg("seed") = 0,
               nb::arg("first_index") = 0, nb::arg("stochastic_bits") = 16, nb::arg("threads") = 0,
               nb::arg("count") = false, nb::arg("stream") = 0, text);
  };
  def_scaled("encode_scaled", &encode_scaled_view, "inv_scale",
             "Values times a number, or a view of numbers of their shape, to codes. With count: "
             "(saturated, flushed, nan).");
  def_scaled("encode_dynamic", &encode_dynamic_view, "rule",
             "The same with a factor from the amax, which is written to inv_scale.",
             nb::arg("inv_scale"));
  module.def("decode_scaled", &decode_scaled_view, nb::arg("source"), nb::arg("target"),
             nb::arg("factor"), nb::kw_only(), nb::arg("divide"), nb::arg("threads") = 0,
             nb::arg("stream") = 0,
             "Codes times a number, or a view of numbers of their shape, or divided, to values.");
  module.def("roundings", &rounding_names, "The names that rounding= takes.");
  module.def("overflows", &overflow_names, "The names that overflow= takes.");
  module.def("nan_inputs", &nan_input_names, "The names that nan= takes.");
  module.def("profiles", &profile_names, "The names that profile= takes.");
}

}  // namespace octavo::python

#include "octavo/convert/convert.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/round/policy_names.h"
#include "octavo/round/profile.h"

namespace octavo::python {
namespace {

using Name = std::optional<std::string>;

std::optional<CountTuple> encode_view(const View& source, const View& target, const Name& rounding,
                                      const Name& overflow, const Name& nan, const Name& profile,
                                      std::uint64_t seed, std::uint64_t first_index,
                                      int stochastic_bits, int threads, bool count,
                                      std::uintptr_t stream) {
  // A profile is where the policy starts from; what is named beside it changes that one choice.
  EncodePolicy policy =
      profile ? profile_policy(parse_profile(*profile), target.format) : EncodePolicy{};
  if (rounding) policy.rounding = parse_rounding(*rounding);
  if (overflow) policy.overflow = parse_overflow(*overflow);
  if (nan) policy.nan_input = parse_nan_input(*nan);
  policy.seed = seed;
  policy.first_index = first_index;
  policy.stochastic_bits = stochastic_bits;
  const nb::gil_scoped_release released;
  Counting counting(count, source.device, stream);
  encode(source, target, policy,
         {.threads = threads, .counts = counting.at(), .stream = stream_of(stream)});
  return counting.found();
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
  module.def("roundings", &rounding_names, "The names that rounding= takes.");
  module.def("overflows", &overflow_names, "The names that overflow= takes.");
  module.def("nan_inputs", &nan_input_names, "The names that nan= takes.");
  module.def("profiles", &profile_names, "The names that profile= takes.");
}

}  // namespace octavo::python

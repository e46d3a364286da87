// Delayed-scaling state as views of the caller's arrays, which must stay alive during the call.
#include "octavo/quant/delayed.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <optional>

#include "bind.h"

namespace octavo::python {
namespace {

DelayedState state_of(const View& history, const View& inv_scale, const std::optional<View>& scale,
                      const std::optional<View>& calls) {
  return {.history = history,
          .inv_scale = inv_scale,
          .scale = scale.value_or(View{}),
          .calls = calls.value_or(View{})};
}

}  // namespace

void bind_delayed(nb::module_& module) {
  module.def(
      "reset_delayed",
      [](const View& history, const View& inv_scale, const std::optional<View>& scale,
         const std::optional<View>& calls, std::uintptr_t stream) {
        reset_delayed(state_of(history, inv_scale, scale, calls), stream_of(stream));
      },
      nb::arg("history"), nb::arg("inv_scale"), nb::arg("scale").none(), nb::arg("calls").none(),
      nb::kw_only(), nb::arg("stream") = 0, "As before the first step.");
  module.def(
      "update_delayed",
      [](const View& history, const View& inv_scale, const std::optional<View>& scale,
         const std::optional<View>& calls, const Format& format, std::string_view policy,
         int margin, float decay, std::int64_t interval, std::uintptr_t stream) {
        update_delayed(state_of(history, inv_scale, scale, calls),
                       {.format = format,
                        .policy = parse_history_policy(policy),
                        .margin = margin,
                        .decay = decay,
                        .interval = interval},
                       stream_of(stream));
      },
      nb::arg("history"), nb::arg("inv_scale"), nb::arg("scale").none(), nb::arg("calls").none(),
      nb::kw_only(), nb::arg("format"), nb::arg("policy"), nb::arg("margin"), nb::arg("decay"),
      nb::arg("interval"), nb::arg("stream") = 0, "The end of a step.");
}

}  // namespace octavo::python

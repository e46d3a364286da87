#include "octavo/quant/layout.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>

#include "bind.h"
#include "octavo/base/error.h"

namespace octavo::python {
namespace {

// In the order of ScaleLayout.
constexpr std::array<std::string_view, 3> kLayouts{"row_major", "swizzled_128x4", "transposed"};

ScaleLayout parse_layout(std::string_view name) {
  for (std::size_t i = 0; i < kLayouts.size(); ++i)
    if (kLayouts[i] == name) return static_cast<ScaleLayout>(i);
  fail(ErrorCode::invalid_argument, "layout", "got '", shown(name),
       "'; expected row_major, swizzled_128x4 or transposed");
}

}  // namespace

void bind_layout(nb::module_& module) {
  module.def(
      "to_layout",
      [](const SharedTensor& scales, std::string_view layout, int pad) {
        return share(to_layout(scales.tensor, parse_layout(layout), pad));
      },
      nb::arg("scales"), nb::arg("layout"), nb::arg("pad") = 0,
      "A row-major grid of scales in another order.");
  module.def(
      "from_layout",
      [](const SharedTensor& scales, std::string_view layout,
         const std::vector<std::int64_t>& grid) {
        return share(from_layout(scales.tensor, parse_layout(layout), checked_shape(grid)));
      },
      nb::arg("scales"), nb::arg("layout"), nb::arg("grid"), "Back to a row-major grid.");
}

}  // namespace octavo::python

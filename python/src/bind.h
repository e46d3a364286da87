// The extension module octavo._octavo: thin bindings, one file per room. What a Python user calls
// is in python/octavo/; here are only the doors into the library, over plain views.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "octavo/tensor/view.h"

namespace octavo::python {

namespace nb = nanobind;

// What an element is, as Python says it: a code of a format, or a value type by name ("float32").
using Kind = std::variant<Format, std::string>;

// Throws Error(invalid_argument) where the library's Shape would cut sizes off.
Shape checked_shape(const std::vector<std::int64_t>& sizes);

void bind_error(nb::module_& module);
void bind_format(nb::module_& module);
void bind_tensor(nb::module_& module);
void bind_dlpack(nb::module_& module);
void bind_convert(nb::module_& module);
void bind_backend(nb::module_& module);

}  // namespace octavo::python

// Argument checks of views, shared by all public operations.
#pragma once

#include <string_view>

#include "octavo/tensor/view.h"

namespace octavo {

// Memory, strides and format make sense. `what` names the view in messages. exec/place_internal.h
// checks the device and the pointer.
void check_view(const View& view, std::string_view op, std::string_view what);

// For operations that only the CPU offers.
void check_on_cpu(const View& view, std::string_view op, std::string_view what);

// It may be written, and is contiguous.
void check_output(const View& out, std::string_view op);

}  // namespace octavo

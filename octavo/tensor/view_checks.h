// What every public operation asks of the views it is given.
#pragma once

#include <string_view>

#include "octavo/tensor/view.h"

namespace octavo {

// Memory, strides and format make sense, on the CPU. `what` names the view in messages.
void check_view(const View& view, std::string_view op, std::string_view what);

// It may be written, and is contiguous.
void check_output(const View& out, std::string_view op);

}  // namespace octavo

// What every public operation asks of the views it is given.
#pragma once

#include <string_view>

#include "octavo/tensor/view.h"

namespace octavo {

// Memory, strides and format make sense. `what` names the view in messages. On which device it is
// and whether the memory is there is for convert/place_internal.h to ask.
void check_view(const View& view, std::string_view op, std::string_view what);

// For what only the CPU does.
void check_on_cpu(const View& view, std::string_view op, std::string_view what);

// It may be written, and is contiguous.
void check_output(const View& out, std::string_view op);

}  // namespace octavo

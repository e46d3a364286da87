// A mix as a part of other documents.
#pragma once

#include "octavo/base/json/json.h"
#include "octavo/report/mix_result.h"

namespace octavo {

[[nodiscard]] Json json_object_of(const MixResult& mix);

}  // namespace octavo

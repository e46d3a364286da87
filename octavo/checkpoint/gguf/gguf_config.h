// config.json from a GGUF file's metadata.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_header.h"

namespace octavo::gguf {

// null where octavo does not know the architecture. Throws Error(invalid_argument) where a size
// that a model must have is missing. What cannot be expressed is noted. `factors` are those of
// kRopeFactors.
[[nodiscard]] Json make_config(const Header& header, const std::vector<float>& factors,
                               std::vector<std::string>& notes);

// A number that was stored as f32, with the fewest digits that read back as that f32: 1e-05, and
// not 9.999999747378752e-06.
[[nodiscard]] double shortest(double number);

}  // namespace octavo::gguf

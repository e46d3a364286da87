// A hash of a text (FNV-1a), to tell two apart: no protection against forgery. For fingerprints of
// sources and records of work.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo {

[[nodiscard]] std::uint64_t text_hash(std::string_view text, std::uint64_t seed = 0);

}  // namespace octavo

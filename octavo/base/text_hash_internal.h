// A hash of a text, to tell two apart: no protection against forgery. Of fingerprints and records.
#pragma once

#include <cstdint>
#include <string_view>

namespace octavo {

[[nodiscard]] std::uint64_t text_hash(std::string_view text, std::uint64_t seed = 0);  // FNV-1a

}  // namespace octavo

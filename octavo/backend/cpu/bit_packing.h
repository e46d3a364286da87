// Codes below eight bits as a little-endian bit stream: code i takes bits [i * bits, (i + 1) *
// bits). Spans start on a byte, so a row may be packed in pieces of a multiple of eight codes.
#pragma once

#include <cstdint>

namespace octavo::cpu {

// Reads n codes, writes ceil(n * bits / 8) bytes; unused bits of the last byte are zero.
void pack_codes(const std::uint8_t* codes, std::int64_t n, int bits, std::uint8_t* packed);
void unpack_codes(const std::uint8_t* packed, std::int64_t n, int bits, std::uint8_t* codes);

}  // namespace octavo::cpu

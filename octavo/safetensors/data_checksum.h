// A checksum of a safetensors file's data that does not depend on the order or the pieces in which
// the bytes are written: it can be computed while writing, and again from the file. It detects
// accidental damage; it is not cryptographic.
//
// The data are little-endian words w(i) of 32 bits, and the checksum is the sum of (2 i + 1) w(i)
// modulo 2^64: a change of one word changes it, and so does an exchange of two that differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "octavo/safetensors/file_reader.h"

namespace octavo::safetensors {

// The contribution of a piece that begins at byte `offset` of the data.
[[nodiscard]] std::uint64_t piece_checksum(std::uint64_t offset, std::span<const std::byte> bytes);

// The checksum of all data of a file, read in windows of a megabyte.
[[nodiscard]] std::uint64_t data_checksum(const FileReader& file);

// Is this the file's checksum, as sixteen hexadecimal digits? Anything else is not.
[[nodiscard]] bool has_checksum(const FileReader& file, std::string_view digits);

}  // namespace octavo::safetensors

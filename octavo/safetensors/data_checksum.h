// A number for the bytes behind a file's header that does not depend on the order or the pieces
// they were written in, so that it can be had while they are written, and again from the file. It
// tells damage by accident; it is no protection against somebody who wants it to be the same.
//
// The data are little-endian words w(i) of 32 bits, and the number is the sum of (2 i + 1) w(i)
// modulo 2^64: a change of one word changes it, and so does an exchange of two that differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/safetensors/file_reader.h"

namespace octavo::safetensors {

// What a piece that begins at byte `offset` of the data adds.
[[nodiscard]] std::uint64_t piece_checksum(std::uint64_t offset, std::span<const std::byte> bytes);

// Of all data of a file, read in windows of a megabyte.
[[nodiscard]] std::uint64_t data_checksum(const FileReader& file);

}  // namespace octavo::safetensors

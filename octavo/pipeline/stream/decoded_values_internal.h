// Decoded weights: overflow of the target type, and writing them to their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"
#include "octavo/safetensors/file_writer.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Rows [first_row, ...) of a weight as f32, f16 or bf16: Inf means that scale times code overflows
// the type (or that a code is Inf). Throws Error(invalid_argument) with weight, row and column, or
// with `clamp` replaces it by the type's largest value.
void settle_overflow(const Tensor& values, std::string_view weight, std::int64_t first_row,
                     bool clamp);

// Writes such rows to their place in `tensor`: the weight itself, or the expert stack that it is
// merged into.
void write_decoded(const Tensor& values, const SourcePart& part, std::int64_t first_row,
                   const safetensors::TensorEntry& tensor, safetensors::FileWriter& writer);

// Writes a piece of an output from a byte of it on, each row to its place in the file.
void write_rows(const DialectTensor& output, std::uint64_t offset, std::span<const std::byte> bytes,
                safetensors::FileWriter& writer);

}  // namespace octavo

// Decodes the block types of GGUF files to f32. Every value is the one that the Python package
// gguf computes: the same operations in f32, in the same order (docs/numerics/gguf.md).
#pragma once

#include <cstddef>
#include <span>

#include "octavo/checkpoint/gguf/gguf_type.h"

namespace octavo::gguf {

// The largest block: of a K-quant.
inline constexpr std::size_t kMaxBlockElements = 256;

// Whole blocks: `values` has type.elements for each type.bytes of `blocks`. The type is a block
// type that octavo decodes.
void decode_blocks(const TensorType& type, std::span<const std::byte> blocks,
                   std::span<float> values);

// One block, of the K-quants (block_decode_k.cc).
void decode_q2_k(const std::byte* block, float* values);
void decode_q3_k(const std::byte* block, float* values);
void decode_q4_k(const std::byte* block, float* values);
void decode_q5_k(const std::byte* block, float* values);
void decode_q6_k(const std::byte* block, float* values);

// The f16 at this address, as f32.
[[nodiscard]] float half_at(const std::byte* bytes);

}  // namespace octavo::gguf

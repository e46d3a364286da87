// Tensors of two checkpoints that are the same one, by name or as a part of an expert stack, and
// the row blocks in which both are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/pipeline/compare_side_internal.h"

namespace octavo {

struct ComparedPair {
  std::string name;
  ComparedNumbers a{}, b{};
};

struct Unpaired {
  std::vector<std::string> only_a, only_b, other_shape;
};
// An expert stack on one side is paired with its matrices on the other.
[[nodiscard]] std::vector<ComparedPair> pair_tensors(const ComparedSide& a, const ComparedSide& b,
                                                     Unpaired& unpaired);

struct ComparedPiece {
  std::size_t pair = 0, ordinal = 0;
  std::int64_t first = 0, rows = 0;
};
// Row blocks of about half a megabyte of f32 a side, which begin where both sides can.
[[nodiscard]] std::vector<ComparedPiece> pieces_of(const ComparedSide& a, const ComparedSide& b,
                                                   const std::vector<ComparedPair>& pairs);

// Static scales and file markers, which only a quantized model has beside its weights.
[[nodiscard]] bool is_dialect_tensor(std::string_view name);

}  // namespace octavo

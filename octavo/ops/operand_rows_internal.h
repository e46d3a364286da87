// Row blocks of an operand, for operations that compute a product block by block.
#pragma once

#include <cstdint>

#include "octavo/ops/gemm.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Rows of a matrix in the same memory.
View rows_of(View matrix, std::int64_t first, std::int64_t count);
// `first` is the beginning of a tile. Shares memory with the tensor. The rowwise copy only.
QuantizedTensor rows_of(const QuantizedTensor& matrix, std::int64_t first, std::int64_t count);

// Row granularity of the scales: the matrix can be split at multiples of it; 0: it cannot. The
// scaling is null for values.
std::int64_t rows_of_a_tile(const Scaling* scaling, std::int64_t rows);

class OperandRows {
 public:
  OperandRows(const Operand& matrix, std::int64_t first, std::int64_t count);
  [[nodiscard]] Operand operand() const {
    return is_quantized_ ? Operand(quantized_) : Operand(values_);
  }

 private:
  bool is_quantized_ = false;
  QuantizedTensor quantized_{};
  View values_{};
};

}  // namespace octavo

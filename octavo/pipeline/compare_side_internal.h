// One side of a comparison: every tensor of a checkpoint as values, however it is stored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/report/value_error.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// One tensor of a checkpoint as values.
struct ComparedNumbers {
  const StoredTensor* plain = nullptr;  // floating point, integers, or codes without a scale
  bool integers = false;                // or booleans
  const FoundWeight* found = nullptr;
  std::vector<std::int64_t> shape{};
  std::int64_t rows = 1, cols = 1;
  std::uint64_t bytes = 0;
  // A matrix of an expert stack: its first row in the stack, or for [in, out] its first column in
  // one matrix of the stack.
  std::int64_t first = 0;
  bool transposed = false;
  std::int64_t matrix = 0, matrix_cols = 0;  // if transposed: matrix index and its stored width
};

class ComparedSide {
 public:
  using Numbers = ComparedNumbers;

  explicit ComparedSide(const std::string& path);

  [[nodiscard]] const CheckpointReader& checkpoint() const { return checkpoint_; }
  [[nodiscard]] const std::map<std::string, Numbers>& all() const { return all_; }
  // The number of tensors that cannot be compared.
  [[nodiscard]] std::size_t unknown() const { return unknown_; }

  // Row blocks must begin at multiples of this.
  [[nodiscard]] std::int64_t unit(const Numbers& numbers) const;
  [[nodiscard]] QuantizedTensor codes(const Numbers& numbers, std::int64_t first,
                                      std::int64_t rows) const;
  [[nodiscard]] Tensor values(const Numbers& numbers, std::int64_t first, std::int64_t rows) const;
  // Values in their stored type, before conversion to f32; codes and transposed matrices are f32 at
  // most.
  [[nodiscard]] Tensor wide_values(const Numbers& numbers, std::int64_t first,
                                   std::int64_t rows) const;

  // For a comparison with integers, which f32 does not hold.
  [[nodiscard]] WideValues all_digits(const Numbers& numbers, std::int64_t first,
                                      std::int64_t rows) const;

  // The matrices of an expert stack under their per-expert names; empty where it is no stack, or
  // its orientation is unknown.
  [[nodiscard]] std::vector<std::pair<std::string, Numbers>> split_experts(
      const std::string& name, const Numbers& whole) const;

 private:
  [[nodiscard]] Tensor as_stored(const Numbers& numbers, std::int64_t first,
                                 std::int64_t rows) const;
  [[nodiscard]] Tensor read_transposed(const Numbers& numbers, std::int64_t first,
                                       std::int64_t rows) const;
  void add(const std::string& name, Numbers numbers);

  CheckpointReader checkpoint_;
  Recognized recognized_;
  std::map<std::string, Numbers> all_;
  std::size_t unknown_ = 0;
};

}  // namespace octavo

// One side of a comparison: every tensor of a checkpoint as numbers, whatever it is stored as.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// One tensor of a checkpoint as numbers, whatever it is stored as.
struct ComparedNumbers {
  const StoredTensor* plain = nullptr;  // floating point, or codes without a scale
  const FoundWeight* found = nullptr;
  std::vector<std::int64_t> shape{};
  std::int64_t rows = 1, cols = 1;
  std::uint64_t bytes = 0;
  // A matrix of a stack of experts: where it begins among the stack's rows, or for [in, out] among
  // the columns of one of its matrices.
  std::int64_t first = 0;
  bool transposed = false;
  std::int64_t matrix = 0, matrix_cols = 0;  // which, and how wide it lies, where transposed
};

class ComparedSide {
 public:
  using Numbers = ComparedNumbers;

  explicit ComparedSide(const std::string& path);

  [[nodiscard]] const CheckpointReader& checkpoint() const { return checkpoint_; }
  [[nodiscard]] const std::map<std::string, Numbers>& all() const { return all_; }
  // How many tensors hold nothing that is compared.
  [[nodiscard]] std::size_t unknown() const { return unknown_; }

  // Bands must begin at multiples of this.
  [[nodiscard]] std::int64_t unit(const Numbers& numbers) const;
  [[nodiscard]] QuantizedTensor codes(const Numbers& numbers, std::int64_t first,
                                      std::int64_t rows) const;
  [[nodiscard]] Tensor values(const Numbers& numbers, std::int64_t first, std::int64_t rows) const;
  // Values before they are f32; those that are codes, or lie the other way, are f32 at most.
  [[nodiscard]] Tensor wide_values(const Numbers& numbers, std::int64_t first,
                                   std::int64_t rows) const;

  // The matrices of a stack of experts under the names that they have where it is taken apart;
  // nothing where it is none, or lies in a way that is not known.
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

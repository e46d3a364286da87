// WeightFiles: the tensors of a checkpoint in any dialect, as weights to multiply with: values as
// they are stored, or codes with scales in octavo's layout.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/model/input_quantization_internal.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

class WeightFiles {
 public:
  // `type`: of values in memory; none: as they are stored (f64 as f32).
  WeightFiles(const std::string& path, std::optional<DType> type, int threads);

  [[nodiscard]] const CheckpointReader& reader() const { return reader_; }
  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] bool is_quantized(const std::string& name) const { return found_.contains(name); }
  // Of the values; nullopt where there is no such tensor.
  [[nodiscard]] std::optional<Shape> shape_of(const std::string& name) const;
  // Throws Error(invalid_argument) that names a tensor which is missing or has another shape.
  void check_shape(const std::string& name, const Shape& wanted) const;

  // Rows [first, first + count) of a tensor, all leading dimensions collapsed: values, or codes.
  [[nodiscard]] LinearWeight rows(const std::string& name, std::int64_t first,
                                  std::int64_t count) const;
  // The same, dequantized if need be.
  [[nodiscard]] Tensor row_values(const std::string& name, std::int64_t first,
                                  std::int64_t count) const;
  // Rows that are read of codes begin at multiples of this, and end there or with the last.
  [[nodiscard]] std::int64_t rows_together(const std::string& name) const;
  [[nodiscard]] Tensor values(const std::string& name) const;  // whole, dequantized if need be
  [[nodiscard]] LinearWeight weight(const std::string& name) const;  // of two dimensions
  [[nodiscard]] InputQuantization input_of(const std::string& name) const;
  [[nodiscard]] std::int64_t nbytes_of(const std::string& name) const;  // in memory

 private:
  [[nodiscard]] Tensor stored_rows(const StoredTensor& tensor, std::int64_t first,
                                   std::int64_t count, std::int64_t cols) const;

  CheckpointReader reader_;
  Recognized recognized_;
  InputQuantizations inputs_;
  std::map<std::string, const FoundWeight*, std::less<>> found_;
  std::optional<DType> type_;
  int threads_;
};

}  // namespace octavo

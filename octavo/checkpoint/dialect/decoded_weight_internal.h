// DecodedWeight: a quantized weight as the values it holds, decoded a row block at a time. Weights
// of octavo's dialects, and of a form that octavo reads and does not write: gpt-oss's MXFP4 stacks.
// docs/numerics/dialects.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "octavo/checkpoint/dialect/dialect.h"

namespace octavo {

class DecodedWeight {
 public:
  virtual ~DecodedWeight();
  DecodedWeight(const DecodedWeight&) = delete;
  DecodedWeight& operator=(const DecodedWeight&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] DType source() const { return source_; }
  // Rows that are decoded together, from a multiple of this on; the last ones may be fewer.
  [[nodiscard]] std::int64_t rows_together() const { return rows_together_; }
  // The tensors of the checkpoint that hold it.
  [[nodiscard]] virtual std::vector<std::string> tensors() const = 0;
  // Any byte range of the values. From any thread.
  void read(const CheckpointReader& checkpoint, std::uint64_t offset,
            std::span<std::byte> into) const;

 protected:
  DecodedWeight(std::string name, const Shape& shape, DType source, std::int64_t rows_together)
      : name_(std::move(name)), shape_(shape), source_(source), rows_together_(rows_together) {}
  // The values of rows [first, first + rows); `first` is a multiple of rows_together().
  [[nodiscard]] virtual Tensor decode_rows(const CheckpointReader& checkpoint, std::int64_t first,
                                           std::int64_t rows) const = 0;

 private:
  std::string name_;
  Shape shape_;
  DType source_;
  std::int64_t rows_together_;
};

using DecodedWeights = std::vector<std::unique_ptr<const DecodedWeight>>;

[[nodiscard]] std::unique_ptr<const DecodedWeight> decoded_weight(Dialect dialect,
                                                                  FoundWeight found);

// Stacks of gpt-oss: NAME_blocks [experts, out, in / 32, 16] and NAME_scales [experts, out, in /
// 32] are the weight NAME [experts, in, out] of the model in bf16. None where there are none.
[[nodiscard]] DecodedWeights gpt_oss_weights(const CheckpointReader& checkpoint);
// The same stacks as codes in octavo's layout, [experts, out, in] of the preset mxfp4, for
// read_row_block with Dialect::octavo; of gate_up_proj rows of gate and up alternate.
[[nodiscard]] std::vector<FoundWeight> gpt_oss_stacks(const CheckpointReader& checkpoint);

}  // namespace octavo

// A matrix and its quantization in device memory, and the reference's result to compare with.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/cuda/device_memory.h"

namespace octavo::support {

inline Matrix dense_matrix(void* data, const View& like, std::int64_t rows, std::int64_t cols) {
  const std::int64_t element = element_bytes(like.dtype, like.format);
  return {.data = data,
          .dtype = like.dtype,
          .format = like.format,
          .packed = like.packed,
          .rows = rows,
          .cols = cols,
          .row_pitch = like.packed ? packed_row_bytes(cols, like.format) : cols * element,
          .col_stride = element};
}

class DeviceQuantizer {
 public:
  // `shift`: every buffer begins this many elements after an aligned address.
  DeviceQuantizer(std::int64_t rows, std::int64_t cols, DType dtype, const Scaling& scaling,
                  std::size_t shift = 0)
      : rows_(rows),
        cols_(cols),
        dtype_(dtype),
        scaling_(scaling),
        shift_(shift),
        values_(bytes_of(Tensor::values({rows, cols}, dtype))),
        amax_(sizeof(float)) {
    const QuantizedTensor layout = make_quantized({rows, cols}, dtype, scaling);
    if (scaling.rowwise) rowwise_ = make_copy(layout.rowwise, rows, cols);
    if (scaling.columnwise) columnwise_ = make_copy(layout.columnwise, cols, rows);
  }

  // New data.
  void set(unsigned seed) {
    host_ = std::make_unique<Tensor>(testing::values_as(
        testing::all_kinds_of_values(rows_ * cols_, seed), {rows_, cols_}, dtype_));
    values_.write(host_->bytes(), shift_ * static_cast<std::size_t>(element_bytes(dtype_)));
  }

  // Queues all kernel calls, through the kernel table, as quant would on a device.
  void queue(const DeviceApi& api, const Exec& exec) const {
    const Kernels& kernels = *api.kernels;
    QuantizeJob job{.scale = scaling_.scale,
                    .encode = scaling_.encode,
                    .policy = scaling_.policy,
                    .percentile = scaling_.percentile};
    job.source.values =
        dense_matrix(values_.data() + shift_ * static_cast<std::size_t>(element_bytes(dtype_)),
                     value_view(nullptr, dtype_, {0}), rows_, cols_);
    job.scale.context = {.input = dtype_ == DType::bf16  ? InputType::bf16
                                  : dtype_ == DType::f16 ? InputType::f16
                                                         : InputType::f32,
                         .per_tensor = scaling_.tile == Tile{0, 0}};
    if (rowwise_) job.rowwise = rowwise_->matrix;
    if (columnwise_) job.columnwise = columnwise_->matrix;
    if (scaling_.scale.format == ScaleFormat::e4m3_f32) {
      auto* const amax = reinterpret_cast<float*>(amax_.data());
      api.clear(exec, amax, sizeof(float));
      kernels.amax(exec, job.source, tensor_amax_of(job.scale), amax);
      for (const QuantizedMatrix* copy : {&job.rowwise, &job.columnwise})
        if (copy->wanted())
          kernels.tensor_scale(exec, job.scale, scaling_.format, amax, copy->tensor_scale);
      job.tensor_amax = amax;
    }
    kernels.quantize(exec, job);
  }

  // Differences from the reference's result for the data last set; empty if none.
  [[nodiscard]] std::string difference() const {
    const QuantizedTensor wanted =
        octavo::quantize(host_->view(), scaling_, {.backend = &reference_backend()});
    std::string found;
    if (rowwise_) found = difference(*rowwise_, wanted.rowwise, "rowwise");
    if (columnwise_ && found.empty())
      found = difference(*columnwise_, wanted.columnwise, "columnwise");
    return found;
  }

 private:
  struct Copy {
    DeviceMemory codes, scales, tensor_scale;
    QuantizedMatrix matrix{};
  };

  [[nodiscard]] std::size_t bytes_of(const Tensor& tensor) const {
    return static_cast<std::size_t>(tensor.nbytes()) + shift_ * 8;
  }
  [[nodiscard]] std::size_t shift_of(const View& view) const {
    return shift_ * static_cast<std::size_t>(element_bytes(view.dtype, view.format));
  }

  std::unique_ptr<Copy> make_copy(const QuantizedCopy& layout, std::int64_t rows,
                                  std::int64_t cols) const {
    auto copy = std::make_unique<Copy>(Copy{DeviceMemory(bytes_of(layout.codes)),
                                            DeviceMemory(bytes_of(layout.scales)),
                                            DeviceMemory(sizeof(float))});
    const View &codes = layout.codes.view(), &scales = layout.scales.view();
    copy->matrix.codes = dense_matrix(copy->codes.data() + shift_of(codes), codes, rows, cols);
    copy->matrix.scales =
        dense_matrix(copy->scales.data() + shift_of(scales), scales,
                     tile_count(scaling_.tile.rows, rows), tile_count(scaling_.tile.cols, cols));
    copy->matrix.tile = scaling_.tile;
    if (scaling_.scale.format == ScaleFormat::e4m3_f32)
      copy->matrix.tensor_scale = reinterpret_cast<float*>(copy->tensor_scale.data());
    return copy;
  }

  [[nodiscard]] std::string difference(const Copy& got, const QuantizedCopy& wanted,
                                       const std::string& which) const {
    const auto differs = [&](const DeviceMemory& memory, const Tensor& want, std::size_t at) {
      const std::vector<std::byte> bytes = memory.read(at, static_cast<std::size_t>(want.nbytes()));
      return std::memcmp(bytes.data(), want.bytes().data(), bytes.size()) != 0;
    };
    if (got.matrix.tensor_scale != nullptr && differs(got.tensor_scale, wanted.tensor_scale, 0))
      return which + " tensor scale";
    if (differs(got.scales, wanted.scales, shift_of(wanted.scales.view())))
      return which + " scales";
    if (differs(got.codes, wanted.codes, shift_of(wanted.codes.view()))) return which + " codes";
    return "";
  }

  std::int64_t rows_, cols_;
  DType dtype_;
  Scaling scaling_;
  std::size_t shift_;
  DeviceMemory values_, amax_;
  std::unique_ptr<Tensor> host_;
  std::unique_ptr<Copy> rowwise_, columnwise_;
};

}  // namespace octavo::support

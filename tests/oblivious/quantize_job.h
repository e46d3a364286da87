// A quantize job for the kernel table over a whole matrix, bypassing quantize(): with two levels of
// scales that function branches on the tensor's amax. The largest magnitude of a tensor, and so its
// scale, is therefore not a secret of NVFP4 (it is stored beside the codes); everything after it is
// checked.
#pragma once

#include "octavo/backend/kernels.h"
#include "octavo/quant/quantized_tensor.h"

namespace octavo::oblivious {

inline Matrix matrix_of(const View& view) {
  const std::int64_t columns = view.shape[1];
  return {.data = view.data,
          .dtype = view.dtype,
          .format = view.format,
          .packed = view.packed,
          .rows = view.shape[0],
          .cols = columns,
          .row_pitch = view.strides[0],
          .col_stride = view.strides[1]};
}

inline QuantizeJob two_level_job(const View& values, QuantizedTensor& out) {
  QuantizeJob job{.scale = out.scaling.scale, .encode = out.scaling.encode};
  job.source.values = matrix_of(values);
  job.rowwise = {.codes = matrix_of(out.rowwise.codes.view()),
                 .scales = matrix_of(out.rowwise.scales.view()),
                 .tile = out.scaling.tile,
                 .tensor_scale = static_cast<float*>(out.rowwise.tensor_scale.view().data)};
  return job;
}

}  // namespace octavo::oblivious

// Encodes tensor maps (TMA descriptors). cuTensorMapEncodeTiled is looked up by name in the driver,
// so that the library need not be linked with it.
#include "octavo/backend/cuda/hopper/tensor_map.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encode_entry() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  OCTAVO_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                     cudaEnableDefault, &found));
  check(
      entry != nullptr && found == cudaDriverEntryPointSuccess, ErrorCode::unsupported, "cuda",
      "got a driver without cuTensorMapEncodeTiled; expected CUDA 12 or newer; update the driver");
  return reinterpret_cast<Encode>(entry);
}

int bytes_each(const Matrix& matrix) { return matrix.dtype == DType::code ? 1 : 2; }

CUtensorMap encode_tensor_map(const Matrix& matrix, CUtensorMapDataType type, std::int64_t cols,
                              int box_cols, int box_rows, CUtensorMapSwizzle swizzle) {
  static const Encode encode = encode_entry();
  CUtensorMap map{};
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(matrix.rows)},
                   pitches[1] = {static_cast<cuuint64_t>(matrix.row_pitch)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_cols), static_cast<cuuint32_t>(box_rows)},
                   steps[2] = {1, 1};
  const CUresult status =
      encode(&map, type, 2, matrix.data, sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, ErrorCode::device, "cuda",
        "cuTensorMapEncodeTiled made no TMA tensor map of a matrix of ", matrix.rows, " x ",
        matrix.cols, " with rows ", matrix.row_pitch, " bytes apart (error ",
        static_cast<int>(status), ")");
  return map;
}

}  // namespace

bool fits_tensor_map(const Matrix& matrix) {
  const int each = bytes_each(matrix);
  return (matrix.dtype == DType::code
              ? matrix.format.bits() == 8
              : matrix.dtype == DType::bf16 || matrix.dtype == DType::f16) &&
         (matrix.cols <= 1 || matrix.col_stride == each) && matrix.row_pitch > 0 &&
         has_aligned_pitch(matrix, 16);
}

CUtensorMap tensor_map_of(const Matrix& matrix, int box_rows) {
  const CUtensorMapDataType type = matrix.dtype == DType::code   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : matrix.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return encode_tensor_map(matrix, type, matrix.cols, 128 / bytes_each(matrix), box_rows,
                           CU_TENSOR_MAP_SWIZZLE_128B);
}

CUtensorMap tensor_map_of_bytes(const Matrix& matrix, std::int64_t row_bytes, int box_bytes,
                                int box_rows) {
  const CUtensorMapSwizzle swizzle = box_bytes == 32   ? CU_TENSOR_MAP_SWIZZLE_32B
                                     : box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                       : CU_TENSOR_MAP_SWIZZLE_128B;
  return encode_tensor_map(matrix, CU_TENSOR_MAP_DATA_TYPE_UINT8, row_bytes, box_bytes, box_rows,
                           swizzle);
}

CUtensorMap tensor_map_of_heads(const Matrix& first, std::int64_t heads, std::int64_t head_pitch,
                                std::int64_t batches, std::int64_t batch_pitch, int box_bytes,
                                int box_rows) {
  static const Encode encode = encode_entry();
  CUtensorMap map{};
  // The pitch of a single head or batch is not used, but checked.
  if (heads <= 1) head_pitch = first.row_pitch;
  if (batches <= 1) batch_pitch = head_pitch;
  const auto size = [](std::int64_t number) { return static_cast<cuuint64_t>(number); };
  const cuuint64_t sizes[4] = {size(first.cols), size(first.rows), size(heads), size(batches)},
                   pitches[3] = {size(first.row_pitch), size(head_pitch), size(batch_pitch)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(box_bytes / bytes_each(first)),
                             static_cast<cuuint32_t>(box_rows), 1, 1},
                   steps[4] = {1, 1, 1, 1};
  const CUresult status = encode(
      &map,
      first.dtype == DType::code ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      4, first.data, sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      box_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, ErrorCode::device, "cuda",
        "cuTensorMapEncodeTiled made no TMA tensor map of ", batches, " x ", heads, " matrices of ",
        first.rows, " x ", first.cols, " (error ", static_cast<int>(status), ")");
  return map;
}

int clusters_on(const Exec& exec, int blocks) {
  int processors = 0;
  OCTAVO_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, exec.device.index));
  return processors / blocks;
}

}  // namespace octavo::cuda

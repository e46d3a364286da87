#include "bench/cuda/lab.h"

#include "bench/cuda/device_side.h"
#include "octavo/base/error.h"

namespace octavo::bench {

void must(cudaError_t status, const char* what) {
  check(status == cudaSuccess, ErrorCode::unsupported, "bench", what, ": ",
        cudaGetErrorString(status));
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) { must(cudaMalloc(&memory_, bytes), "memory"); }
DeviceBuffer::~DeviceBuffer() { (void)cudaFree(memory_); }

Lab::Lab(std::int64_t row_count, std::int64_t col_count)
    : rows(row_count), cols(col_count), api_(device_api({DeviceKind::cuda, 0})) {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
}

Lab::~Lab() { (void)cudaStreamDestroy(stream_); }

Buffer Lab::buffer(std::int64_t bytes) {
  return std::make_shared<DeviceBuffer>(static_cast<std::size_t>(bytes));
}

Matrix Lab::values(DType dtype, int turn) {
  Buffer& memory = values_[{dtype, turn}];
  const std::int64_t size = element_bytes(dtype);
  if (memory == nullptr) {
    memory = buffer(count() * size);
    fill_normal(memory->data(),
                dtype == DType::f32    ? Kind::f32
                : dtype == DType::bf16 ? Kind::bf16
                                       : Kind::f16,
                count(), stream_);
    must(cudaGetLastError(), "fill");
  }
  return {.data = memory->data(),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .row_pitch = cols * size,
          .col_stride = size};
}

Matrix Lab::matrix(DType dtype, const Format& format, bool packed, std::int64_t row_count,
                   std::int64_t col_count, std::vector<Buffer>& keep) {
  const std::int64_t size = element_bytes(dtype, format),
                     pitch = packed ? packed_row_bytes(col_count, format) : col_count * size;
  keep.push_back(buffer(row_count * pitch));
  return {.data = keep.back()->data(),
          .dtype = dtype,
          .format = format,
          .packed = packed,
          .rows = row_count,
          .cols = col_count,
          .row_pitch = pitch,
          .col_stride = size};
}

float* Lab::number(float value, std::vector<Buffer>& keep) const {
  keep.push_back(buffer(sizeof(float)));
  void* const memory = keep.back()->data();
  must(cudaMemcpyAsync(memory, &value, sizeof(float), cudaMemcpyHostToDevice, stream_), "copy");
  must(cudaStreamSynchronize(stream_), "copy");
  return static_cast<float*>(memory);
}

std::int64_t bytes_of(const Matrix& matrix) {
  return matrix.rows * (matrix.packed ? packed_row_bytes(matrix.cols, matrix.format)
                                      : matrix.cols * element_bytes(matrix.dtype, matrix.format));
}

}  // namespace octavo::bench

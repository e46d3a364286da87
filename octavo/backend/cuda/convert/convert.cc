// Dispatch: chooses the kernel of a conversion.
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

void encode_apart(const Exec& exec, const Matrix& values, const Matrix& codes,
                  const EncodePolicy& policy, Counts* counts) {
  if (encode_hardware(exec, values, codes, policy, counts)) return;
  // Counting comes first: in-place encoding overwrites the values.
  if (counts != nullptr && count_vectorized(exec, values, codes.format, policy, counts))
    counts = nullptr;
  if (counts == nullptr && encode_vectorized(exec, values, codes, policy)) return;
  encode_general(exec, values, codes, policy, counts);
}

}  // namespace

void encode_matrix(const Exec& exec, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy, Counts* counts) {
  if (values.rows == 0 || values.cols == 0) return;
  const Scope scope(exec);
  if (values.data != codes.data || stored_bits_of(values) == stored_bits_of(codes))
    return encode_apart(exec, values, codes, policy, counts);
  // In place: threads that are ahead would overwrite what others have yet to read, so a copy is
  // converted. In-place views are dense.
  const auto bytes = static_cast<std::size_t>((codes.rows - 1) * codes.row_pitch +
                                              codes.cols * codes.format.code_bytes());
  const Scratch aside(exec, bytes);
  Matrix out = codes;
  out.data = aside.as<void>();
  encode_apart(exec, values, out, policy, counts);
  OCTAVO_CUDA_CHECK(
      cudaMemcpyAsync(codes.data, out.data, bytes, cudaMemcpyDeviceToDevice, stream_of(exec)));
}

void decode_matrix(const Exec& exec, const Matrix& codes, const Matrix& values) {
  if (codes.rows == 0 || codes.cols == 0) return;
  const Scope scope(exec);
  if (!decode_hardware(exec, codes, values) && !decode_vectorized(exec, codes, values))
    decode_general(exec, codes, values);
}

void encode_scaled_matrix(const Exec& exec, const Matrix& values, const Matrix& codes,
                          const Factors& factors, const EncodePolicy& policy, Counts* counts) {
  if (values.rows == 0 || values.cols == 0) return;
  const Scope scope(exec);
  if (counts == nullptr && encode_scaled_vectorized(exec, values, codes, factors, policy)) return;
  encode_scaled_general(exec, values, codes, factors, policy, counts);
}

void decode_scaled_matrix(const Exec& exec, const Matrix& codes, const Matrix& values,
                          const Factors& factors) {
  if (codes.rows == 0 || codes.cols == 0) return;
  const Scope scope(exec);
  if (!decode_scaled_vectorized(exec, codes, values, factors))
    decode_scaled_general(exec, codes, values, factors);
}

}  // namespace octavo::cuda

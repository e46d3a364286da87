#include "octavo/backend/cuda/runtime/kernel_table.h"

namespace octavo::cuda {

const Kernels kCudaKernels{.name = "cuda",
                           .description = "CUDA kernels for Hopper (sm_90a)",
                           .encode = encode_matrix,
                           .decode = decode_matrix,
                           .quantize = quantize_matrix,
                           .dequantize = dequantize_matrix,
                           .amax = amax_matrix,
                           .tensor_scale = tensor_scale,
                           .align_exponents = align_exponents_matrix,
                           .quantize_aligned = quantize_aligned,
                           .produce = produce_matrix,
                           .fuses = fuses,
                           .delayed_update = delayed_update,
                           .gemm = gemm_matrix,
                           .gemm_offered = gemm_offered,
                           .column_sums = column_sums,
                           .count_nan = count_nan,
                           .encode_scaled = encode_scaled_matrix,
                           .decode_scaled = decode_scaled_matrix};

}  // namespace octavo::cuda

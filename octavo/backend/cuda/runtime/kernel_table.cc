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
                           .attention = attention,
                           .attention_workspace = attention_workspace,
                           .attention_offered = attention_offered,
                           .attention_backward = attention_backward,
                           .attention_backward_workspace = attention_backward_workspace,
                           .attention_backward_offered = attention_backward_offered,
                           .attention_prepare = attention_prepare,
                           .attention_statistics = attention_statistics,
                           .count_nan = count_nan,
                           .encode_scaled = encode_scaled_matrix,
                           .decode_scaled = decode_scaled_matrix,
                           .append_tokens = append_tokens};

}  // namespace octavo::cuda

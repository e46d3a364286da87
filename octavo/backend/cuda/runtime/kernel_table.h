// Functions of the CUDA backend's kernel table, by the file that implements them.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

extern const Kernels kCudaKernels;  // kernel_table.cc

// convert.cc dispatches to the kernels below.
void encode_matrix(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                   Counts*);
void decode_matrix(const Exec&, const Matrix& codes, const Matrix& values);
std::int64_t count_nan(const Exec&, const Matrix& values);

// Return true if they took the job.
bool encode_hardware(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                     Counts*);
// Adds the counts of a cast of these values, without encoding them.
bool count_vectorized(const Exec&, const Matrix& values, const Format&, const EncodePolicy&,
                      Counts*);
bool encode_vectorized(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&);
bool decode_hardware(const Exec&, const Matrix& codes, const Matrix& values);
bool decode_vectorized(const Exec&, const Matrix& codes, const Matrix& values);
void encode_general(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                    Counts*);
void decode_general(const Exec&, const Matrix& codes, const Matrix& values);

// Scaled conversions; convert.cc dispatches. The first two return true if they took the job.
void encode_scaled_matrix(const Exec&, const Matrix& values, const Matrix& codes, const Factors&,
                          const EncodePolicy&, Counts*);
void decode_scaled_matrix(const Exec&, const Matrix& codes, const Matrix& values, const Factors&);
bool encode_scaled_vectorized(const Exec&, const Matrix& values, const Matrix& codes,
                              const Factors&, const EncodePolicy&);
bool decode_scaled_vectorized(const Exec&, const Matrix& codes, const Matrix& values,
                              const Factors&);
void encode_scaled_general(const Exec&, const Matrix& values, const Matrix& codes, const Factors&,
                           const EncodePolicy&, Counts*);
void decode_scaled_general(const Exec&, const Matrix& codes, const Matrix& values, const Factors&);

// quantize.cc dispatches to the kernels below.
void quantize_matrix(const Exec&, const QuantizeJob&);
void dequantize_matrix(const Exec&, const QuantizedMatrix&, const Matrix& values);
void amax_matrix(const Exec&, const QuantizeSource&, AmaxOf, float* amax);
void tensor_scale(const Exec&, const ScaleSpec&, const Format& element, const float* amax,
                  float* scale);

// Return true if they took the job.
bool quantize_1d_blocks(const Exec&, const QuantizeJob&);   // 1x16, 1x32, 1x64, 1x128
bool quantize_rows(const Exec&, const QuantizeJob&);        // 1 x all
bool quantize_squares(const Exec&, const QuantizeJob&);     // 128x128
bool quantize_tensor(const Exec&, const QuantizeJob&);      // per tensor
bool quantize_mx_columns(const Exec&, const QuantizeJob&);  // MX, columnwise with or without rows
bool quantize_vectorized(const Exec&, const QuantizeJob&);  // any scales
// quantize_staged.cc: stages a row block in another form, then calls quantize_matrix. One copy
// each, no amax.
bool requantize_rows(const Exec&, const QuantizeJob&);
bool quantize_transposed(const Exec&, const QuantizeJob&);
bool requantize_amax(const Exec&, const QuantizeSource&, AmaxOf, float* amax);
// Whether the columnwise copy is the transpose of the rowwise one, bit for bit; and that transpose.
bool can_transpose(const QuantizeJob& job);
void transpose_quantized(const Exec& exec, const QuantizedMatrix& rows,
                         const QuantizedMatrix& cols);
// Elements of one, two or four bytes. Rows of `to` begin at multiples of 16 bytes and have room up
// to one.
void transpose_values(const Exec&, const Matrix& from, const Matrix& to);
bool dequantize_vectorized(const Exec&, const QuantizedMatrix&, const Matrix& values);
bool amax_vectorized(const Exec&, const QuantizeSource&, AmaxOf, float* amax);
void quantize_general(const Exec&, const QuantizeJob&);
void dequantize_general(const Exec&, const QuantizedMatrix&, const Matrix& values);
void amax_general(const Exec&, const QuantizeSource&, AmaxOf, float* amax);
void amax_as_copied(const Exec&, const QuantizeJob&);  // of a job without copies

void align_exponents_matrix(const Exec&, const MxAlignJob&);  // align_exponents.cc
// quantize_mx_aligned.cu; returns true if it took the job.
bool quantize_aligned(const Exec&, const QuantizeJob& mx, const QuantizedMatrix& to,
                      std::int64_t* changed);

// produce_rows.cc: norms and activations.
void produce_matrix(const Exec&, const Matrix& x, const Producer&, const Matrix& out);
bool fuses(const QuantizeJob&);
bool quantize_produced(const Exec&, const QuantizeJob&);  // true if it took the job
void produce_general(const Exec&, const Matrix& x, const Producer&, const Matrix& out);

void delayed_update(const Exec&, const DelayedJob&);  // delayed_update.cu

// gemm.cc dispatches. The tensor-core kernels are declared in gemm_plan.h.
bool gemm_offered(const GemmJob&);
void gemm_matrix(const Exec&, const GemmJob&);
bool fits_general(const GemmJob&);
void gemm_general(const Exec&, const GemmJob&);

void column_sums(const Exec&, const Matrix& values, const Matrix& before,
                 const Matrix& sums);  // column_sums.cu

// attention.cc dispatches to the kernels of attention/.
bool attention_offered(const AttentionJob&);
std::int64_t attention_workspace(const Exec&, const AttentionJob&);
void attention(const Exec&, const AttentionJob&);
// backward.cc dispatches.
bool attention_backward_offered(const AttentionBackwardJob&);
std::int64_t attention_backward_workspace(const Exec&, const AttentionBackwardJob&);
void attention_backward(const Exec&, const AttentionBackwardJob&);
void attention_prepare(const Exec&, const AttentionPrepareJob&);        // attention_prepare.cu
void attention_statistics(const Exec&, const AttentionStatisticsJob&);  // attention_statistics.cu
void append_tokens(const Exec&, const AppendJob&);                      // append_tokens.cu

}  // namespace octavo::cuda

// The entries of the reference kernel table, by file.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo::reference {

void encode_matrix(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                   Counts*);                                                 // reference_convert.cc
void decode_matrix(const Exec&, const Matrix& codes, const Matrix& values);  // reference_convert.cc
std::int64_t count_nan(const Exec&, const Matrix& values);                   // reference_convert.cc

void encode_scaled_matrix(const Exec&, const Matrix& values, const Matrix& codes, const Factors&,
                          const EncodePolicy&, Counts*);  // reference_scaled.cc
void decode_scaled_matrix(const Exec&, const Matrix& codes, const Matrix& values,
                          const Factors&);  // reference_scaled.cc

void quantize_matrix(const Exec&, const QuantizeJob&);  // reference_quantize.cc
void dequantize_matrix(const Exec&, const QuantizedMatrix&,
                       const Matrix&);                                      // reference_quantize.cc
void amax_matrix(const Exec&, const QuantizeSource&, AmaxOf, float* amax);  // reference_quantize.cc
void tensor_scale(const Exec&, const ScaleSpec&, const Format& element, const float* amax,
                  float* scale);  // reference_quantize.cc
void count_magnitudes(const Exec&, const QuantizeJob&, const RankDigit&,
                      std::int64_t* counts);  // reference_quantize.cc
void add_fit_squares(const Exec&, const QuantizeJob&, float amax,
                     double* squares);                // reference_quantize.cc
void delayed_update(const Exec&, const DelayedJob&);  // reference_quantize.cc

void align_exponents_matrix(const Exec&, const MxAlignJob&);  // reference_align.cc

void produce_matrix(const Exec&, const Matrix& x, const Producer&,
                    const Matrix& out);  // reference_produce.cc
bool fuses(const QuantizeJob&);          // reference_produce.cc

void rope(const Exec&, const RopeJob&);  // reference_rope.cc

void gemm(const Exec&, const GemmJob&);  // reference_gemm.cc
void column_sums(const Exec&, const Matrix& values, const Matrix& before,
                 const Matrix& sums);  // reference_sums.cc

void attention(const Exec&, const AttentionJob&);  // reference_attention.cc
void attention_backward(const Exec&,
                        const AttentionBackwardJob&);             // reference_attention_backward.cc
void attention_prepare(const Exec&, const AttentionPrepareJob&);  // reference_attention_prepare.cc
void attention_norms(const Exec&, const AttentionNormsJob&);      // reference_attention_norms.cc
bool attention_rounding(const AttentionJob&, AttentionRounding&);  // reference_attention_norms.cc
void attention_statistics(const Exec&,
                          const AttentionStatisticsJob&);  // reference_attention_statistics.cc
void append_tokens(const Exec&, const AppendJob&);         // reference_append.cc

std::uint32_t row_error(const Exec&, const RowErrorJob&, RowErrorSums&);  // reference_row_error.cc
bool row_error_reads_codes(const Format&);                                // reference_row_error.cc

bool subtract_f64(const Exec&, const F64Update&);
std::uint64_t largest_bits(const Exec&, DType, const void* values,
                           std::int64_t count);                     // reference_elements.cc
void transpose(const Exec&, const Matrix& from, const Matrix& to);  // reference_elements.cc

}  // namespace octavo::reference

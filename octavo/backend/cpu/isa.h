// The interface between the CPU drivers and an instruction set (`Isa`). Everything a matrix needs
// (strides, packing, threads, in place, counts) is in the drivers (convert/convert_driver.cc and
// others). An instruction set gives span kernels, which convert a run of contiguous elements, and
// chooses one for each call.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/backend/kernels.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode_edges.h"
#include "octavo/scale/scale_parts.h"

namespace octavo::cpu {

// The parameters of one encode call for a span kernel, computed once.
struct Encoder {
  Format format{};
  EncodePolicy policy{};
  DType source = DType::f32;  // f32, f64, f16 or bf16
  // The codes of NaN and Inf do not matter: the quantizer overwrites them. Saturating policies
  // only.
  bool only_finite = false;
  // No relevant value lies half a step or more above the largest value: no need to saturate.
  bool within_range = false;
  std::uint8_t poison_code = 0;  // code of elements of a tile with NaN or Inf, in scaled spans

  // From encode_edges, indexed by the sign of the input.
  std::array<std::uint32_t, 2> overflow_field{};
  std::array<std::uint32_t, 2> inf_code{};
  std::array<std::uint32_t, 2> nan_code{};
};

struct Decoder {
  Format format{};
  DType target = DType::f32;
  bool streams = false;  // values that no cache will hold: stored past the caches where that helps
};

// `index` is the stochastic index of the first element.
using EncodeSpan = void (*)(const Encoder&, const void* values, void* codes, std::int64_t n,
                            std::uint64_t index);
using CountSpan = Counts (*)(const Encoder&, const void* values, std::int64_t n,
                             std::uint64_t index);
using DecodeSpan = void (*)(const Decoder&, const void* codes, void* values, std::int64_t n);

// Encodes value * factor, rounded to f32: factors[i / width] for element i. width is a multiple of
// 16. Where poisoned[i / width] is 0xFF instead of 0, writes the poison code.
using ScaledSpan = void (*)(const Encoder&, const void* values, void* codes, std::int64_t n,
                            const float* factors, const std::uint8_t* poisoned, std::int64_t width);

// Decodes one-byte codes to bf16, each times the scale of its tile, scales[i / width] for element
// i; products are exact in bf16. width is a multiple of 16.
using DecodeScaled = void (*)(const Decoder&, const void* codes, std::uint16_t* values,
                              std::int64_t n, const float* scales, std::int64_t width);

// The parameters of the MX kernels: blocks of 32 values with e8m0 scales, quantized in one pass.
struct MxBlocks {
  Format format{};
  DType source = DType::f32;  // f32 or bf16
  ScaleRule rule = ScaleRule::rceil;
  std::uint8_t poison_code = 0;  // code of elements of a block with NaN or Inf
  bool searches = false;         // policy mse, whatever the rule; of E2M1 only
  bool ranks = false;            // policy percentile; rows only
  // For that, in place of the amax of each block that is finite, unless it is zero; there is room
  // for 16 more.
  const std::uint32_t* ranked = nullptr;
};

// n values of a row, the last block possibly short, to n codes.
using MxRows = void (*)(const MxBlocks&, const void* values, std::uint8_t* codes,
                        std::uint8_t* scales, std::int64_t n);

// A panel: up to 32 rows and kMxPanelCols columns that are read once for the rowwise and the
// columnwise copy. Column blocks go down the columns, to the transpose: `codes` and `scales` are
// those of the first column, pitches in bytes lead to the next, and there is room for 32 codes of
// each. Rows are quantized too where row_codes is given.
struct MxPanel {
  const void* values;
  std::int64_t row_pitch, rows, cols;
  std::uint8_t *codes, *scales;
  std::int64_t code_pitch, scale_pitch;
  std::uint8_t *row_codes, *row_scales;
  std::int64_t row_code_pitch, row_scale_pitch;
};
inline constexpr std::int64_t kMxPanelCols = 256;
using MxPanelSpan = void (*)(const MxBlocks&, const MxPanel&);

struct MxKernels {
  MxRows rows = nullptr;         // unpacked codes
  MxRows packed_rows = nullptr;  // two codes of four bits to a byte
  MxPanelSpan panel = nullptr;
};

// NVFP4: tiles of sixteen values in E2M1, packed, with e4m3 scales and one f32 scale per tensor.
struct Fp4Tiles {
  float tensor_scale = 1.0F;
  // Policies that search: the scale of each of 128 codes of e4m3. Null: that of the amax is taken.
  const TileScale* searched = nullptr;
  AmaxPolicy policy = AmaxPolicy::mse;  // of the search
  const float* weights = nullptr;       // policy wmse: of the columns of a row's first value on
};
inline constexpr std::int64_t kFp4Tile = 16;
// Codes of scales that no amax gives: of a tile of zeros, and of a poisoned one.
struct Fp4SpecialScales {
  std::uint32_t zero = 0, poison = 0;
};
Fp4SpecialScales fp4_special_scales(float tensor_scale);

// n values of a row, the last tile possibly short.
using Fp4Rows = void (*)(const Fp4Tiles&, const void* values, std::uint8_t* codes,
                         std::uint8_t* scales, std::int64_t n);

// The magnitude of a rank (1: the largest) in tiles of `cols` values, one behind the other. Values
// are the bits of f32, or bf16; signs do not count.
struct RankedTiles {
  const void* values = nullptr;
  DType dtype = DType::f32;
  std::int64_t cols = 0, tiles = 0;
  int rank = 1;
};
inline constexpr int kMaxRanks = 16;
// found[t] becomes the bits of an f32.
using RankTiles = void (*)(const RankedTiles&, std::uint32_t* found);

// FitRun (scale/fit.h) of n values in E2M1, n a multiple of 16 and at most kFitRun, for `count`
// factors: sums[i] of u - value(code), u = x * factors[i]. Null weights: all are one. There is room
// for a multiple of four factors and sums.
using Fp4Squares = void (*)(const float* x, const float* weights, std::int64_t n,
                            const float* factors, int count, float* sums);

// Products of n values and n factors. `_odd`: to odd, so that a second, coarser rounding rounds as
// if the product were exact. Those in f32 lose rests below 2^-100; those in f64 make kTinyProduct
// of smaller ones, other than zero. narrow_odd and _long_odd make 2^-126 of what is smaller.
struct ProductSpans {
  void (*f32_odd)(const void* values, const float* factors, float* out, std::int64_t n);
  void (*bf16_odd)(const void* values, const float* factors, float* out, std::int64_t n);
  // By one factor of more than 24 bits.
  void (*f32_long_odd)(const void* values, double factor, float* out, std::int64_t n);
  void (*bf16_long_odd)(const void* values, double factor, float* out, std::int64_t n);
  void (*f32_f64_odd)(const void* values, const double* factors, double* out, std::int64_t n);
  void (*bf16_f64_odd)(const void* values, const double* factors, double* out, std::int64_t n);
  void (*f64_odd)(const void* values, const double* factors, double* out, std::int64_t n);
  // To nearest even.
  void (*f32)(const float* values, const float* factors, float* out, std::int64_t n);
  void (*f64)(const double* values, const double* factors, double* out, std::int64_t n);
  void (*divide)(const double* values, const double* factors, double* out, std::int64_t n);
  void (*divide_f32)(const float* values, const float* factors, float* out, std::int64_t n);
  // Quotients, to odd: of values from 2^kTinyF32Rest on, which are not below that themselves.
  void (*divide_f32_odd)(const float* values, const float* factors, float* out, std::int64_t n);
  // By one factor, the bits of `divide`: values and factor are zero or within 2^+-kQuotientRange.
  void (*divide_by_one)(const double* values, double factor, double* out, std::int64_t n);
  // f64 to f32: to odd, and to nearest even.
  void (*narrow_odd)(const double* values, float* out, std::int64_t n);
  void (*narrow)(const double* values, float* out, std::int64_t n);
  // By one factor of any bits, within 2^+-kQuotientRange as the values are: the exact product, and
  // the quotient rounded to f64, to f32; the latter to odd.
  void (*long_products)(const float* values, double factor, float* out, std::int64_t n);
  void (*quotients)(const float* values, double factor, float* out, std::int64_t n);
  void (*quotients_odd)(const float* values, double factor, float* out, std::int64_t n);
};
inline constexpr int kTinyProduct = -900;  // of two
inline constexpr int kTinyF32Rest = -100;
inline constexpr int kQuotientRange = 300;

// out[i] = activation(x[i]) * gate[i], computed in f64 and rounded once; gate null: without it.
using ActivateSpan = void (*)(ProducerKind, const double* x, const double* gate, float* out,
                              std::int64_t n);

struct NormSpans;  // norm_lanes.h

struct Isa {
  EncodeSpan (*encode)(const Encoder&);
  DecodeSpan (*decode)(const Decoder&);
  CountSpan count;
  // Fused quantize kernels; null, or returning null, where there is none.
  ScaledSpan (*encode_scaled)(const Encoder&) = nullptr;
  MxKernels (*mx)(const MxBlocks&) = nullptr;
  // Raises amax[t] by the amax of tile t of sixteen f32 or bf16; returns the number of tiles done.
  std::int64_t (*amax16)(DType, const void* values, std::int64_t tiles,
                         std::uint32_t* amax) = nullptr;
  // The bits of the amax of n f32 or bf16.
  std::uint32_t (*amax)(DType, const void* values, std::int64_t n) = nullptr;
  Fp4Rows (*fp4)(DType source) = nullptr;
  bool fp4_searches = false;                                // does that take Fp4Tiles::searched?
  bool fp4_searches_more = false;                           // also of 4over6 and wmse?
  DecodeScaled (*decode_scaled)(const Decoder&) = nullptr;  // null, or returning null: none
  // f32 to bf16, to nearest even; NaN becomes quiet and keeps its sign. Null: a portable loop.
  void (*narrow_bf16)(const float* values, std::uint16_t* out, std::int64_t n) = nullptr;
  RankTiles rank;
  Fp4Squares fp4_squares;
  // Kernels::row_error, and whether it reads codes: those of e4m3fn and e5m2.
  std::uint32_t (*row_error)(const RowErrorJob&, RowErrorSums&);
  bool row_error_reads_codes = false;
  const ProductSpans* products = nullptr;  // never null
  // Null: those that the drivers are compiled with.
  const NormSpans* norms = nullptr;
  // bf16 to f32. Null: a portable loop, here and below.
  void (*widen_bf16)(const void* values, float* out, std::int64_t n) = nullptr;
  ActivateSpan activate = nullptr;
  bool mx_searches = false;  // does `mx` take MxBlocks::searches?
  bool mx_ranks = false;     // and MxBlocks::ranks?
  void (*subtract_f64)(const F64Update&) = nullptr;
};

Encoder make_encoder(const Format& format, const EncodePolicy& policy, DType source);

// The entries of the kernel table, for one Isa.
void encode_matrix(const Isa&, const Exec&, const Matrix& values, const Matrix& codes,
                   const EncodePolicy&, Counts*);
void decode_matrix(const Isa&, const Exec&, const Matrix& codes, const Matrix& values);
std::int64_t count_nan_matrix(const Exec&, const Matrix& values);
void encode_scaled_matrix(const Isa&, const Exec&, const Matrix& values, const Matrix& codes,
                          const Factors&, const EncodePolicy&, Counts*);
void decode_scaled_matrix(const Isa&, const Exec&, const Matrix& codes, const Matrix& values,
                          const Factors&);
void quantize_matrix(const Isa&, const Exec&, const QuantizeJob&);
void dequantize_matrix(const Isa&, const Exec&, const QuantizedMatrix&, const Matrix& values);
void amax_matrix(const Isa&, const Exec&, const QuantizeSource&, AmaxOf, float* amax);
void count_magnitudes(const Isa&, const QuantizeJob&, const RankDigit&, std::int64_t* counts);
void add_fit_squares(const Isa&, const Exec&, const QuantizeJob&, float amax, double* squares);
void tensor_scale(const Exec&, const ScaleSpec&, const Format& element, const float* amax,
                  float* scale);
void produce_matrix(const Isa&, const Exec&, const Matrix& x, const Producer&, const Matrix& out);
void rope_heads(const Isa&, const Exec&, const RopeJob&);

// The GEMM method that an instruction set chooses for a job (gemm.h); null: falls back to the
// reference.
struct GemmMethod;
using ChooseGemm = const GemmMethod* (*)(const GemmJob&);

void gemm_matrix(const Isa&, const GemmMethod&, const Exec&, const GemmJob&);
std::int64_t gemm_workspace(const GemmMethod&, const Exec&, const GemmJob&);
PanelOrder gemm_panels(ChooseGemm, const GemmOperand& b);
void pack_panels(const Exec&, const Matrix& rows, const Matrix& to);

// The attention method that an instruction set chooses for a job (attention.h); null: falls back to
// the reference.
struct AttentionMethod;
using ChooseAttention = const AttentionMethod* (*)(const AttentionJob&);

void attend(const Isa&, const AttentionMethod&, const Exec&, const AttentionJob&);
std::int64_t attention_workspace(const Isa&, const AttentionMethod&, const Exec&,
                                 const AttentionJob&);
void attend_backward(const Isa&, const AttentionMethod&, const Exec&, const AttentionBackwardJob&);
std::int64_t attention_backward_workspace(const Isa&, const AttentionMethod&, const Exec&,
                                          const AttentionBackwardJob&);
// The method of the backward pass, or null.
const AttentionMethod* backward_method(ChooseAttention choose, const AttentionBackwardJob&);
void prepare_attention(const Isa&, const Exec&, const AttentionPrepareJob&);
void measure_attention_statistics(const Isa&, const Exec&, const AttentionStatisticsJob&);
void measure_attention_norms(const Isa&, const Exec&, const AttentionNormsJob&);
bool attention_rounding_of(const AttentionMethod&, const AttentionJob&, AttentionRounding&);

void delayed_update(const Exec&, const DelayedJob&);
void align_exponents_matrix(const Exec&, const MxAlignJob&);

std::uint64_t largest_bits(const Exec&, DType, const void* values, std::int64_t count);
void transpose_matrix(const Exec&, const Matrix& from, const Matrix& to);

template <const Isa& kIsa, ChooseGemm kGemm, ChooseAttention kAttention>
constexpr Kernels make_kernels(const char* name, const char* description) {
  return {
      .name = name,
      .description = description,
      .encode = [](const Exec& exec, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy,
                   Counts* counts) { encode_matrix(kIsa, exec, values, codes, policy, counts); },
      .decode = [](const Exec& exec, const Matrix& codes,
                   const Matrix& values) { decode_matrix(kIsa, exec, codes, values); },
      .quantize = [](const Exec& exec,
                     const QuantizeJob& job) { quantize_matrix(kIsa, exec, job); },
      .dequantize = [](const Exec& exec, const QuantizedMatrix& from,
                       const Matrix& values) { dequantize_matrix(kIsa, exec, from, values); },
      .amax = [](const Exec& exec, const QuantizeSource& source, AmaxOf of,
                 float* amax) { amax_matrix(kIsa, exec, source, of, amax); },
      .count_magnitudes = [](const Exec&, const QuantizeJob& job, const RankDigit& digit,
                             std::int64_t* counts) { count_magnitudes(kIsa, job, digit, counts); },
      .add_fit_squares = [](const Exec& exec, const QuantizeJob& job, float amax,
                            double* squares) { add_fit_squares(kIsa, exec, job, amax, squares); },
      .tensor_scale = tensor_scale,
      .align_exponents = align_exponents_matrix,
      .produce = [](const Exec& exec, const Matrix& x, const Producer& producer,
                    const Matrix& out) { produce_matrix(kIsa, exec, x, producer, out); },
      .rope = [](const Exec& exec, const RopeJob& job) { rope_heads(kIsa, exec, job); },
      .delayed_update = delayed_update,
      .gemm = [](const Exec& exec,
                 const GemmJob& job) { gemm_matrix(kIsa, *kGemm(job), exec, job); },
      .gemm_workspace = [](const Exec& exec,
                           const GemmJob& job) { return gemm_workspace(*kGemm(job), exec, job); },
      .gemm_offered = [](const GemmJob& job) { return kGemm(job) != nullptr; },
      .gemm_panels = [](const GemmOperand& b) { return gemm_panels(kGemm, b); },
      .pack_panels = pack_panels,
      .attention = [](const Exec& exec,
                      const AttentionJob& job) { attend(kIsa, *kAttention(job), exec, job); },
      .attention_workspace =
          [](const Exec& exec, const AttentionJob& job) {
            return attention_workspace(kIsa, *kAttention(job), exec, job);
          },
      .attention_offered = [](const AttentionJob& job) { return kAttention(job) != nullptr; },
      .attention_backward =
          [](const Exec& exec, const AttentionBackwardJob& job) {
            attend_backward(kIsa, *backward_method(kAttention, job), exec, job);
          },
      .attention_backward_workspace =
          [](const Exec& exec, const AttentionBackwardJob& job) {
            return attention_backward_workspace(kIsa, *backward_method(kAttention, job), exec, job);
          },
      .attention_backward_offered =
          [](const AttentionBackwardJob& job) {
            return backward_method(kAttention, job) != nullptr;
          },
      .attention_prepare =
          [](const Exec& exec, const AttentionPrepareJob& job) {
            prepare_attention(kIsa, exec, job);
          },
      .attention_statistics =
          [](const Exec& exec, const AttentionStatisticsJob& job) {
            measure_attention_statistics(kIsa, exec, job);
          },
      .count_nan = count_nan_matrix,
      .row_error = [](const Exec&, const RowErrorJob& job,
                      RowErrorSums& sums) { return kIsa.row_error(job, sums); },
      .row_error_reads_codes =
          [](const Format& format) {
            return kIsa.row_error_reads_codes && (format == e4m3fn || format == e5m2);
          },
      .largest_bits = largest_bits,
      .subtract_f64 =
          [](const Exec&, const F64Update& update) {
            if (kIsa.subtract_f64 == nullptr) return false;
            kIsa.subtract_f64(update);
            return true;
          },
      .transpose = transpose_matrix,
      .encode_scaled =
          [](const Exec& exec, const Matrix& values, const Matrix& codes, const Factors& factors,
             const EncodePolicy& policy, Counts* counts) {
            encode_scaled_matrix(kIsa, exec, values, codes, factors, policy, counts);
          },
      .decode_scaled =
          [](const Exec& exec, const Matrix& codes, const Matrix& values, const Factors& factors) {
            decode_scaled_matrix(kIsa, exec, codes, values, factors);
          },
      .attention_norms =
          [](const Exec& exec, const AttentionNormsJob& job) {
            measure_attention_norms(kIsa, exec, job);
          },
      .attention_rounding =
          [](const AttentionJob& job, AttentionRounding& rounding) {
            return attention_rounding_of(*kAttention(job), job, rounding);
          }};
}

}  // namespace octavo::cpu

// CPU GEMM: the interface between the driver and the microkernels of an instruction set. The driver
// (gemm_driver.cc) does the blocking (mc, nc, kc), packs operands into panels, applies scales and
// runs the epilogue; an instruction set gives the innermost loop, in two forms. A microkernel sums
// an MR x NR tile of the result from packed panels. A dot kernel, for small M and GEMV, sums along
// unpacked rows, where packing would cost more than it saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "octavo/backend/kernels.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

// The element type of packed panels and rows: what is multiplied.
enum class PackedType : std::uint8_t {
  f32,
  f16,
  bf16,
  i8,  // an e2m1fn, e2m3fn, mxint8 or int8 as an integer, in units of its smallest value
};
constexpr std::int64_t packed_bytes(PackedType packed_type) {
  return packed_type == PackedType::f32 ? 4 : packed_type == PackedType::i8 ? 1 : 2;
}

// Arguments of a microkernel. Products are summed in runs along K. After each run the microkernel
// multiplies by the scales of its rows and columns and adds to f32 sums; without scales it
// continues the sums it finds.
struct MicrokernelJob {
  const std::byte *a, *b;  // packed panels: [depth / step][rows or cols][step] elements
  std::int64_t run, runs;  // products per run, a multiple of step; number of runs
  const float *a_scale,
      *b_scale;        // [runs][rows], [runs][cols]; both null: applied already
  float* sums;         // rows x cols, accumulated into
  std::int64_t pitch;  // from one row of sums to the next
  // The first run replaces the sums instead of adding to them. Only microkernels of methods with a
  // kc of their own take that, matrix tiles, and those of AttentionMethod::overwrites_scores.
  bool overwrites = false;
  // What follows is for matrix tiles (an a_step of their own).
  // Sums of earlier blocks of K are continued as they are, and scales, which are those of all of K,
  // are applied at the end. Null scales: this is not the last block.
  bool scales_at_end = false;
  int rows = 0;  // rows of A that count; 0: all. Others may be left out.
  // To be prefetched into L1 meanwhile: a part of the next panel of A.
  const std::byte* prefetch = nullptr;
  std::int64_t prefetch_bytes = 0;
};
inline constexpr int kMaxPanelRows = 48;
struct Microkernel {
  int rows, cols, step;  // MR, NR, and K elements interleaved per row (the K step); at most
                         // kMaxPanelRows rows or columns
  void (*run)(const MicrokernelJob&);
  int a_step = 0;  // the K step of panels of A, a multiple of `step`, where it is another; or 0

  [[nodiscard]] constexpr int step_of_a() const { return a_step != 0 ? a_step : step; }
};

inline constexpr int kDotRows = 4, kDotCols = 4;
inline constexpr std::int64_t kDotStep = 16;
// Arguments of a dot kernel (small M, GEMV): up to kDotRows rows of A by kDotCols rows of B, along
// K.
struct DotJob {
  const std::byte *a[kDotRows], *b[kDotCols];  // rows of elements, not packed
  std::int64_t run, runs;                      // a run is a multiple of kDotStep
  const float* a_scale[kDotRows];              // [runs] each
  const float* b_scale;  // [runs][kDotCols]; null: scales were applied to the elements
  // The same, [runs] for each column: where the method asks for it (dot_scale_rows).
  const float* b_scale_rows[kDotCols];
  float* sums;  // rows x kDotCols, accumulated into
  std::int64_t pitch;
  bool a_scale_changes;    // along K; else all runs of a row have its first
  int rows;                // of A: M of this call, 1 to kDotRows
  std::int64_t ahead = 0;  // bytes from a row of B to one of the next call, to be prefetched
};
using DotKernel = void (*)(const DotJob&);

// Calls one.operator()<rows>(), so that a kernel knows its number of rows at compile time.
template <typename One>
[[gnu::always_inline]] inline void with_rows(int rows, const One& one) {
  switch (rows) {
    case 1:
      return one.template operator()<1>();
    case 2:
      return one.template operator()<2>();
    case 3:
      return one.template operator()<3>();
    default:
      return one.template operator()<kDotRows>();
  }
}

enum class PanelOf : std::uint8_t { a, b };
// Decodes and packs rows of codes into a panel: a byte for each code, or two codes of four bits in
// one. f32 and f16 panels are [n][count], bf16 panels have the steps of the microkernel. n is a
// multiple of 16, for matrix tiles of their steps.
struct PackJob {
  const std::uint8_t* const* rows;
  const std::uint8_t* words;  // instead of rows: codes of packed weights, in their order
  int count;                  // MR or NR of the method's microkernel
  std::int64_t n, run;
  // f32 panels: [runs][count]; runs are multiples of 16 except the last. bf16 panels:
  // [count][runs], runs being powers of two; null where none are applied.
  const float* scales;
  // Instead of those, where the method takes them (scale_codes): the codes of each row, of
  // scales_there runs, and zeros beyond.
  const std::uint8_t* const* scale_codes;
  std::int64_t scales_there;
  bool powers;   // scales are powers of two, or NaN (e8m0); codes of others are e4m3
  float factor;  // f16 panels: multiplies all elements, a power of two
  std::byte* panel;
  const Format* format = nullptr;  // of the codes

  [[nodiscard]] bool is_scaled() const { return scales != nullptr || scale_codes != nullptr; }
};
using PackCodes = void (*)(const Format&, const PackJob&);
// Decodes codes of B and multiplies them by a panel of A in one kernel. The job has no B.
using MultiplyCodes = void (*)(const PackJob&, const MicrokernelJob&);
// Up to kLineRows rows of A by kLineCols rows of B as they are in memory: those are lines of matrix
// tiles, and A is packed as a panel of B is.
inline constexpr int kLineRows = 16, kLineCols = 64;
struct LinesJob {
  const std::byte* a;                      // the panel, all of K: [K / step][kLineRows][step]
  const std::byte* const* columns;         // rows of B; beyond its edge the last one
  int columns_there;                       // before that edge
  const std::uint8_t* const* scale_codes;  // of their tiles, which are multiplied in; or null
  std::int64_t row_pitch, scale_pitch;     // of B and of its scales, in bytes
  std::int64_t tile;                       // elements of K of a tile
  // Of K, in whole lines of tiles: all; and products between scales of sums, or all.
  std::int64_t depth, run;
  const float *a_scale, *b_scale;  // [runs][kLineRows], [runs][kLineCols]; null: none are left
  float* sums;                     // rows x kLineCols
  std::int64_t pitch;
  int rows;  // of A
};
using MultiplyLines = void (*)(const LinesJob&);
// What codes are packed: of which format, for which operand, and are there two in a byte?
struct PackedCodes {
  const Format& format;
  PanelOf side;
  bool nibbles;
  bool in_panels = false;  // packed weights: PackJob::words
};

// A GEMM method of an instruction set: element type of panels, microkernel, dot (GEMV) kernels,
// packing functions.
struct GemmMethod {
  const char* name = "";  // for logs and reports
  PackedType packed_type = PackedType::f32;
  // The f32 method that applies scales while packing, for jobs whose sums must not be scaled; null:
  // this method itself.
  const GemmMethod* wide = nullptr;
  Microkernel tile{};
  DotKernel dot = nullptr;
  // Of up to small_m->tile.rows rows by rows of B as they are: a method that decodes and multiplies
  // them in one kernel (its multiply_codes, multiply_values). Null: this method itself.
  const GemmMethod* small_m = nullptr;
  // Interleaves rows into a panel: words of `step` elements, [count][words] to [words][count];
  // null: the driver's loop.
  void (*interleave)(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) = nullptr;
  // The same for panels of A, where their step is another.
  void (*interleave_a)(const std::byte* const* rows, int count, std::int64_t words,
                       std::byte* panel) = nullptr;
  // Blocking for microkernels near the peak of their instructions, to which packing A again for
  // each block, or loading sums more often than K demands, is a loss. kc is the most products of a
  // block of K: a panel of A of that depth stays in L1. 0: the common blocking.
  std::int64_t kc = 0;
  // With that blocking: are panels summed in the memory of the result, where that is all there is
  // to do? ARM cores are slower so: rows of the result are a power of two apart.
  bool sums_in_place = false;
  // Called by each thread before and after it runs the microkernel: for state of a thread that
  // other code may change, such as the shapes of AMX tiles.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
  // Decode and pack in one kernel; null, or returning null, where there is none. f32 panels with
  // scales applied, f16 panels without, bf16 panels with those of tiles or without.
  PackCodes (*pack_codes)(const PackedCodes&) = nullptr;
  // Those of B decode scales of tiles themselves (PackJob::scale_codes).
  bool scale_codes = false;
  // The order of packed weights that this method's panels are made from, for elements of this
  // type and format; null, or returning none, where rows are as good. Panels of bf16 values and of
  // integers have the order of packed weights; others are made by pack_codes.
  PanelOrder (*panels)(const Matrix& elements) = nullptr;
  // For up to multiply_rows rows, to which panels of B are of use once; null, or returning null,
  // where there is none. Where sums of runs are scaled, those are multiples of multiply_run.
  MultiplyCodes (*multiply_codes)(const PackedCodes&) = nullptr;
  // The same for values; those of any type are bytes to it (PackJob::rows).
  MultiplyCodes (*multiply_values)(DType) = nullptr;
  int multiply_rows = 0;
  std::int64_t multiply_run = 1;
  // The same for rows of B as they are, kLineRows of A and fewer, by elements of B and the scales
  // that are applied to them (null: none), one for `tile` elements; null, or returning null, where
  // there is none. K is whole lines, tile.a_step, and runs are multiples of line_run.
  MultiplyLines (*multiply_lines)(const Matrix& elements, const Matrix* scales,
                                  std::int64_t tile) = nullptr;
  std::int64_t line_run = 1;
  // GEMV: `dot` for one row of A by B's one-byte codes, decoded in registers, with scales; null, or
  // returning null, where there is none. Code 0 is zero.
  DotKernel (*dot_codes)(const Format&) = nullptr;
  bool dot_scale_rows = false;  // those take DotJob::b_scale_rows
  // The same for two codes of four bits in a byte.
  DotKernel (*dot_nibbles)(const Format&) = nullptr;
  // f32 to f16, to nearest even; for f16 panels.
  void (*narrow)(const float* values, std::byte* packed, std::int64_t n) = nullptr;
  // Codes of up to six bits to the integers in a table; for int8 panels.
  void (*look_up)(const std::int8_t* table, const std::uint8_t* codes, std::int64_t n,
                  std::int8_t* packed) = nullptr;
};

// kc, the K blocking: products per block along K; every run divides it.
inline constexpr std::int64_t kGemmKc = 512;
// kc at very small M, four times as deep: longer contiguous reads of B.
inline constexpr std::int64_t kMaxKc = 2048;
// kc of GEMV by codes: whole rows of B, so that what is prefetched is one stretch of memory.
inline constexpr std::int64_t kGemvKc = 8192;

// The longest run in which neither operand's scale changes, that divides kc.
inline std::int64_t common_run(const GemmJob& job) {
  std::int64_t run = job.accumulator == Accumulator::f16 ? kF16Run : kGemmKc;
  for (const GemmOperand* operand : {&job.a, &job.b}) {
    const std::int64_t tile = operand->quantized.tile.cols;
    if (operand->is_quantized() && tile != 0 && tile < operand->cols()) run = std::gcd(run, tile);
  }
  return run;
}

// Are panels of B made from packed weights?
inline bool reads_panels(const GemmMethod& method, const GemmOperand& b) {
  const Matrix& elements = b.elements();
  return elements.panels.exists() && method.panels != nullptr &&
         method.panels(elements) == elements.panels;
}

// Is every element a bf16?
inline bool fits_bf16(const GemmOperand& operand) {
  return operand.is_quantized() ? octavo::fits_bf16(operand.quantized.codes.format)
                                : operand.values.dtype == DType::bf16;
}
inline bool is_bfloat_job(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 && fits_bf16(job.a) && fits_bf16(job.b) &&
         common_run(job) % kDotStep == 0;
}

// Does the scale of an operand change along K?
inline bool scales_change(const GemmOperand& operand) {
  return operand.is_quantized() &&
         tile_extent(operand.quantized.tile.cols, operand.cols()) < operand.cols();
}

// Are both operands codes whose values are small integers in units of the smallest one? Then
// products of int8 are exact.
inline bool is_integer_job(const GemmJob& job) {
  const auto fits = [](const GemmOperand& operand) {
    const Format& format = operand.quantized.codes.format;
    return operand.is_quantized() &&
           (format == e2m1fn || format == e2m3fn || format.is_byte_integer());
  };
  return job.accumulator == Accumulator::f32 && fits(job.a) && fits(job.b) &&
         common_run(job) % kDotStep == 0;
}

}  // namespace octavo::cpu

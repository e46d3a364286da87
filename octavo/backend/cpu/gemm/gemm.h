// How CPU backends multiply. The driver (gemm_driver.cc) cuts a product into blocks, turns operands
// into lanes, scales and finishes; what differs between instruction sets is the innermost loop, in
// two forms. A tile kernel sums a small rectangle of the result from packed panels, for products
// with many rows. A dot kernel sums along rows that lie as they are, for products with so few rows
// that packing would cost more than it saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>

#include "octavo/backend/kernels.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {

// What an element is when it is multiplied.
enum class PackedType : std::uint8_t {
  f32,
  f16,
  bf16,
  i8,  // an e2m1fn or e2m3fn in units of its smallest value
};
constexpr std::int64_t packed_bytes(PackedType packed_type) {
  return packed_type == PackedType::f32 ? 4 : packed_type == PackedType::i8 ? 1 : 2;
}

// Products are summed in runs. After each one the kernel multiplies by the scales of its rows and
// adds to f32 sums; without scales it goes on with the sums it finds.
struct MicrokernelJob {
  const std::byte *a, *b;          // panels: [depth / step][rows or cols][step] lanes
  std::int64_t run, runs;          // products in each, a multiple of step; and how many runs
  const float *a_scale, *b_scale;  // [runs][rows], [runs][cols]; both null: lanes are scaled
  float* sums;                     // rows x cols, added to
  std::int64_t pitch;              // from one row of sums to the next
};
inline constexpr int kMostPanelRows = 32;
struct Microkernel {
  int rows, cols, step;  // at most kMostPanelRows of each
  void (*run)(const MicrokernelJob&);
};

inline constexpr int kDotRows = 4, kDotCols = 4;
inline constexpr std::int64_t kDotStep = 16;
struct DotJob {
  const std::byte *a[kDotRows], *b[kDotCols];  // rows of lanes
  std::int64_t run, runs;                      // a run is a multiple of kDotStep
  const float* a_scale[kDotRows];              // [runs] each
  const float* b_scale;                        // [runs][kDotCols]; null: lanes are scaled
  float* sums;                                 // rows x kDotCols, added to
  std::int64_t pitch;
  int rows;  // of A, 1 to kDotRows
};
using DotKernel = void (*)(const DotJob&);

// Calls one.operator()<rows>(), so that a kernel knows how many there are when it is compiled.
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

// Rows of codes of a byte, decoded, as a panel of lanes, [n][count]; n is a multiple of 16.
struct PackJob {
  const std::uint8_t* const* rows;
  int count;  // rows or columns of the method's tile
  std::int64_t n, run;
  const float* scales;  // f32 lanes: [runs][count]; runs are multiples of 16 but for the last one
  float factor;         // f16 lanes: of all of them, a power of two
  std::byte* panel;
};
using PackCodes = void (*)(const Format&, const PackJob&);

// One way to multiply.
struct GemmMethod {
  const char* name = "";  // for people
  PackedType packed_type = PackedType::f32;
  // In whose lanes of f32 scales can be multiplied, where sums must not be; null: in its own.
  const GemmMethod* wide = nullptr;
  Microkernel tile{};
  DotKernel dot = nullptr;
  // Rows of words of step lanes to a panel, [count][words] to [words][count]; null: the driver's.
  void (*interleave)(const std::byte* const* rows, int count, std::int64_t words,
                     std::byte* panel) = nullptr;
  // Both at once for codes of a format; null, or returning null, where there is none. Lanes of f32
  // with scales, or of f16 without.
  PackCodes (*pack_codes)(const Format&) = nullptr;
  // The same as `dot`, for one row of A, of B's codes of a byte as they are, with scales; null, or
  // returning null, where there is none. Code 0 is zero.
  DotKernel (*dot_codes)(const Format&) = nullptr;
  // f32 to f16, to nearest even; where lanes are f16.
  void (*narrow)(const float* values, std::byte* packed, std::int64_t n) = nullptr;
  // Codes of up to six bits to the integers in a table; where lanes are i8.
  void (*look_up)(const std::int8_t* table, const std::uint8_t* codes, std::int64_t n,
                  std::int8_t* packed) = nullptr;
};

// So many products at most are summed before blocks change; every run divides it.
inline constexpr std::int64_t kGemmKc = 512;
// With very few rows four times as many: memory then comes in longer pieces.
inline constexpr std::int64_t kMaxKc = 2048;

// The longest run in which neither operand's scale changes, that blocks can be cut into.
inline std::int64_t common_run(const GemmJob& job) {
  std::int64_t run = job.accumulator == Accumulator::f16 ? kF16Run : kGemmKc;
  for (const GemmOperand* operand : {&job.a, &job.b}) {
    const std::int64_t tile = operand->quantized.tile.cols;
    if (operand->is_quantized() && tile != 0 && tile < operand->cols()) run = std::gcd(run, tile);
  }
  return run;
}

// Is every element exact, and normal, in bf16?
inline bool fits_bf16(const GemmOperand& operand) {
  if (!operand.is_quantized()) return operand.values.dtype == DType::bf16;
  const Format& format = operand.quantized.codes.format;
  constexpr int kSmallest = -60;  // products of two are normal too
  return format.bits() <= 8 && format.mantissa_bits <= 7 &&
         format.min_step_exponent() >= kSmallest && max_value(format) < 0x1p+60;
}
inline bool is_bfloat_job(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 && fits_bf16(job.a) && fits_bf16(job.b) &&
         common_run(job) % kDotStep == 0;
}

// Codes whose values are small integers in units of the smallest one, both of them: products of
// int8 are then exact.
inline bool is_integer_job(const GemmJob& job) {
  const auto fits = [](const GemmOperand& operand) {
    const Format& format = operand.quantized.codes.format;
    return operand.is_quantized() && (format == e2m1fn || format == e2m3fn);
  };
  return job.accumulator == Accumulator::f32 && fits(job.a) && fits(job.b) &&
         common_run(job) % kDotStep == 0;
}

}  // namespace octavo::cpu
